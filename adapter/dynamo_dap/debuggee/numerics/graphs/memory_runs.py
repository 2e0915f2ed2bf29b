"""Runs a graph on copies of a call's inputs, to see how it changes its inputs and uses uninitialized memory.

``WrittenInputs`` compares the contents of the inputs after a compiled graph with those after Dynamo's graph, and finds
the operation that wrote them. ``of_uninitialized_memory`` finds the elements of outputs that no operation has set. Runs
on the program's thread that makes the call.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any

from dynamo_dap.debuggee.numerics.graphs.differences import DISTURBED_RUNS, Difference, Referee, difference
from dynamo_dap.debuggee.numerics.graphs.exact_runs import ExactRuns, left_key, overwritten_key
from dynamo_dap.debuggee.replay.replayed_graph import ReplayedGraph, has_transforms
from dynamo_dap.debuggee.torch_api.graphs.graph import node_with_result
from dynamo_dap.debuggee.torch_api.graphs.graph_runs import has_own_memory
from dynamo_dap.debuggee.torch_api.graphs.operations import (
    ZEROS,
    Fill,
    makes_unset_memory,
    makes_unset_memory_inside,
    set_memory_of,
)
from dynamo_dap.debuggee.torch_api.graphs.tensor_facts import has_all_memory, version_of
from dynamo_dap.debuggee.torch_api.isolation import data_reading, random_state
from dynamo_dap.debuggee.torch_api.objects import GraphModule, Node, Tensor
from dynamo_dap.debuggee.torch_api.traced.fake_evaluation import storage_of
from dynamo_dap.debuggee.torch_api.traced.replays import compile_by, compiling_in_isolation

_FILLS = (ZEROS, Fill(200, 1), Fill(-200, 2))
"""The contents of uninitialized memory, one for each run."""


@dataclass(frozen=True)
class WrittenInput:
    """An input that the compiled graph and Dynamo's graph leave with different contents."""

    placeholder: Node
    writer: Node | None
    """The operation that wrote the input last; None if Dynamo's graph does not write to it."""
    difference: Difference
    value: object
    """The contents after the compiled graph."""


class WrittenInputs:
    """The contents of the inputs after Dynamo's graph has run."""

    def __init__(self, graph: ReplayedGraph, random: Iterable[Callable[[], None]], runs: ExactRuns) -> None:
        """Run ``graph`` on copies of its inputs; ``random`` restores the call's random states.

        ``runs`` are the float64 runs of the graph, which judge rounding errors in what it writes.

        Raises:
            Exception: whatever an operation raises.
        """
        self._graph = graph
        self._runs = runs
        self._random = tuple(random)
        self._placeholders = [node for node in graph.nodes if node.op == "placeholder"]
        self._attributes = list(graph.own_attributes())
        """The graph's own tensors that are not inputs, such as an optimizer's parameters."""
        self._writers: dict[Node, list[Node]] = {}
        """The operations that wrote to each input, in order."""
        self._left = self._run(self._interpret)

    def _run(self, run: Callable[[list[object]], object]) -> list[object]:
        """Call ``run`` with copies of all inputs, and return these copies and the graph's own tensors after it."""
        torch = sys.modules["torch"]
        with compiling_in_isolation(), torch.set_grad_enabled(has_transforms(self._graph.nodes)):
            given = self._graph.fresh_inputs(copies_all=True)
            for restore in self._random:
                restore()
            run(given)
            with data_reading():
                return [*given, *(own.detach().clone() for _, own, _ in self._attributes)]

    def _watched(self, given: Sequence[object]) -> dict[Node, Tensor]:
        """Return the tensors that the graph may write to: inputs and the graph's own ones, by node."""
        inputs = dict(zip(self._placeholders, given, strict=True))
        owned = {node: own for node, own, _ in self._attributes}
        return {node: each for node, each in {**inputs, **owned}.items() if has_own_memory(each)}

    def _interpret(self, given: list[object]) -> None:
        torch: Any = sys.modules["torch"]
        watched = self._watched(given)
        versions = {node: version_of(each) for node, each in watched.items()}
        writers = self._writers
        writers.clear()

        class Watching(torch.fx.Interpreter):  # type: ignore[misc]  # the base is known at run time
            def run_node(self, node: Node) -> object:
                result = super().run_node(node)
                for placeholder, tensor in watched.items():
                    if version_of(tensor) != versions[placeholder]:
                        versions[placeholder] = version_of(tensor)
                        writers.setdefault(placeholder, []).append(node)
                return result

        Watching(self._graph.module).run(*given)

    def _writer_by_contents(self, placeholder: Node) -> Node | None:
        """Return the last operation that changes an input, judged by its contents, or None.

        Some operations, such as batch norm, change a tensor without raising its version.
        """
        torch: Any = sys.modules["torch"]
        found: list[Node] = []

        def run(given: list[object]) -> None:
            tensor = self._watched(given)[placeholder]
            known = [tensor.detach().clone()]

            class Watching(torch.fx.Interpreter):  # type: ignore[misc]  # the base is known at run time
                def run_node(self, node: Node) -> object:
                    result = super().run_node(node)
                    if difference(known[0], tensor).largest:
                        known[0] = tensor.detach().clone()
                        found.append(node)
                    return result

            Watching(self._graph.module).run(*given)

        self._run(run)
        return found[-1] if found else None

    def first_difference(self, after: Sequence[Any]) -> WrittenInput | None:
        """Return the first input that a compiled call leaves with other contents, in the order of writes; else None.

        ``after`` has the inputs after the compiled call. It may also have the graph's own tensors. Without them, their
        present contents are compared.
        """
        nodes = [*self._placeholders, *(node for node, _, _ in self._attributes)]
        if len(after) == len(self._placeholders):
            after = [*after, *(original for _, _, original in self._attributes)]
        order: dict[object, int] = {node: at for at, node in enumerate(self._graph.nodes)}
        found = []
        for placeholder, expected, other in zip(nodes, self._left, after, strict=False):
            how = self._difference(placeholder, expected, other)
            if not how.is_same:
                with data_reading():
                    value = other.detach().clone()
                written = self._writers.get(placeholder)
                writer = written[-1] if written else self._writer_by_contents(placeholder)
                found.append(WrittenInput(placeholder, writer, how, value))
        return min(found, key=lambda each: order.get(each.writer, len(order)), default=None)

    def is_right(self, expected: object, stored: Any, after: Sequence[object]) -> bool:
        """Return whether ``stored`` equals an input after the compiled call, whose eager contents match ``expected``.

        ``after`` has the inputs after the compiled call.
        """
        torch = sys.modules["torch"]
        return any(
            has_own_memory(other)
            and (stored.shape, stored.dtype) == (other.shape, other.dtype)
            and torch.equal(stored, other)
            and self._difference(placeholder, left, expected).is_same
            for placeholder, left, other in zip(self._placeholders, self._left, after, strict=False)
        )

    def _difference(self, placeholder: Node, expected: object, other: object) -> Difference:
        if has_own_memory(other) and not has_all_memory(other):
            return Difference(0.0, 0.0, True)  # its memory was released: ``storage_sizes`` compares their size
        how = difference(expected, other, self._runs.referee(left_key(placeholder.name)))
        given = self._graph.inputs.get(placeholder)
        if has_own_memory(given) and storage_of(given) not in self._graph.written:
            return replace(how, is_same=not how.largest)  # an input to which the graph does not write has no rounding
        return how

    def first_wrong_writer(
        self, found: WrittenInput, backend: Callable[..., object], prefix: Callable[[Sequence[Node]], object]
    ) -> Node | None:
        """Return the first operation that writes wrong contents to the input of ``found`` when compiled.

        If none of the earlier operations is proven wrong, return the last writer. ``prefix`` returns the graph up to
        the last of some operations.
        """
        nodes = [*self._placeholders, *(node for node, _, _ in self._attributes)]
        at = nodes.index(found.placeholder)
        for writer in self._writers.get(found.placeholder, [])[:-1]:
            try:
                expected, other = (each[at] for each in self._left_by_prefix(writer, backend, prefix))
                if not difference(expected, other, self._runs.referee(overwritten_key(writer.name))).is_same:
                    return writer
            except Exception:  # noqa: BLE001  (whatever the backend raises: then the last writer is the answer)
                break
        return found.writer

    def _left_by_prefix(
        self, writer: Node, backend: Callable[..., object], prefix: Callable[[Sequence[Node]], Any]
    ) -> tuple[list[Any], list[Any]]:
        """Return the inputs after the graph up to ``writer``: run eagerly, and compiled by ``backend``."""

        def run_compiled(given: list[object]) -> None:
            compile_by(backend, prefix([writer]), self._graph.fresh_inputs(copies_all=True))(*given)

        return self._run(lambda given: prefix([writer])(*given)), self._run(run_compiled)

    def left_by(self, backend: Callable[..., object]) -> list[object]:
        """Return the inputs after a call of the graph compiled by ``backend``.

        Raises:
            Exception: whatever the backend raises.
        """
        return self._run(
            lambda given: compiled_by(backend, self._graph.module, self._graph.fresh_inputs(copies_all=True))(*given)
        )


def random_state_after(
    backend: Callable[..., object], graph: ReplayedGraph, random: Iterable[Callable[[], None]]
) -> object:
    """Compile the graph by ``backend``, run it from the random states ``random``, and return the states after it.

    Raises:
        Exception: whatever the backend raises.
    """
    with compiling_in_isolation():
        compiled = compiled_by(backend, graph.module, graph.fresh_inputs(copies_all=True))
        given = graph.fresh_inputs(copies_all=True)
        for restore in random:
            restore()
        compiled(*given)
        return random_state()


def raises_by(
    backend: Callable[..., object], graph: ReplayedGraph, random: Iterable[Callable[[], None]], problem: str
) -> bool:
    """Return whether the graph compiled by ``backend`` raises an exception of the type that ``problem`` names first."""
    try:
        random_state_after(backend, graph, random)
    except Exception as raised:  # noqa: BLE001  (whatever the backend raises is the answer)
        return type(raised).__name__ == problem.partition(":")[0]
    return False


def compiled_by(backend: Callable[..., object], module: GraphModule, given: Sequence[object]) -> Callable[..., object]:
    """Compile a copy of a graph, as backends change graphs in place; ``given`` are example inputs.

    Raises:
        Exception: whatever the backend raises.
    """
    torch: ModuleType = sys.modules["torch"]
    graph = torch.fx.Graph()
    graph.output(graph.graph_copy(module.graph, {}))
    return compile_by(backend, torch.fx.GraphModule(module, graph), given)


@dataclass(frozen=True)
class Uninitialized:
    """The elements of results that depend on uninitialized memory."""

    nodes: Mapping[str, tuple[object, ...]]
    """By operation's name, the masks of such elements in its result, or in each of its results; None without any."""
    outputs: tuple[object, ...]
    """For each output, a mask of such elements; None if there are none."""

    @property
    def is_returned(self) -> bool:
        """Whether an output has such elements."""
        return any(each is not None for each in self.outputs)


def of_uninitialized_memory(graph: ReplayedGraph) -> Uninitialized | None:
    """Return the elements that depend on uninitialized memory; None if there are none.

    They differ between runs in which that memory has different contents.
    """
    if not makes_unset_memory_inside(graph.module):
        return None
    first: dict[str, list[Any]] = {}
    masks: dict[str, list[Any]] = {}

    def note(node: Node, known: Mapping[Node, object]) -> None:
        values = _tensors(known[node_with_result(node)])
        first[node.name] = [each.detach().clone() for each in values]

    def compare(node: Node, known: Mapping[Node, object]) -> None:
        values = _tensors(known[node_with_result(node)])
        found = [_apart(*each) for each in zip(first.get(node.name, ()), values, strict=False)]
        masks[node.name] = list(map(_either, masks.get(node.name, [None] * len(found)), found))

    outputs = _filled(graph, _FILLS[0]).run(note)
    of_outputs: list[Any] = [None] * len(outputs)
    for fill in _FILLS[1:]:
        others = _filled(graph, fill).run(compare)
        of_outputs = list(map(_either, of_outputs, map(_apart, outputs, others)))
    nodes = {name: tuple(each) for name, each in masks.items() if any(mask is not None for mask in each)}
    return Uninitialized(nodes, tuple(of_outputs)) if nodes or any(each is not None for each in of_outputs) else None


def _tensors(result: object) -> list[Tensor]:
    """Return the tensors with own memory of an operation's result."""
    return [each for each in (result if isinstance(result, list | tuple) else [result]) if has_own_memory(each)]


def without(value: object, mask: Any) -> object:
    """Return a tensor with zeros in the elements of ``mask``."""
    if mask is None or not has_own_memory(value) or value.shape != mask.shape:
        return value
    with data_reading():
        return value.detach().masked_fill(mask, 0)


@dataclass(frozen=True)
class InitializedOnly:
    """A referee that knows nothing of the elements in ``mask``: their errors would excuse those of other elements."""

    of: Referee
    mask: object

    def exact(self) -> object:
        """Return the result of a float64 run; None if there is none."""
        return without(self.of.exact(), self.mask)

    def disturbed(self, count: int = DISTURBED_RUNS, times: float = 1.0) -> Sequence[object]:
        """Return results of disturbed runs: see ``Referee``."""
        return [without(each, self.mask) for each in self.of.disturbed(count, times)]


def _apart(one: object, two: Any) -> Tensor | None:
    """Return a mask of the elements in which two results differ; None if there are none."""
    if not has_own_memory(one) or one.shape != two.shape:
        return None
    with data_reading():
        mask = (one != two) & ~((one != one) & (two != two))  # noqa: PLR0124  (only NaN differs from itself)
        return mask if bool(mask.any()) else None


def _either(one: Any, two: Any) -> Any:
    """Return a mask of the elements in either mask, where None masks nothing."""
    if one is None or two is None:
        return one if two is None else two
    with data_reading():
        return one | two


def _filled(graph: ReplayedGraph, fill: Fill) -> ReplayedGraph:
    module, copies = _filled_module(graph.module, fill)
    return graph.with_inputs(module, {copies[node]: value for node, value in graph.inputs.items()})


def _filled_module(module: GraphModule, fill: Fill) -> tuple[GraphModule, dict[Node, Any]]:
    """Return a copy of a graph, and of the graphs inside it, that fills its unset memory; and the copy of each node."""
    torch = sys.modules["torch"]
    copy = torch.fx.Graph()
    copies: dict[Node, Any] = {}
    for node in module.graph.nodes:
        made = copies[node] = copy.node_copy(node, copies.__getitem__)
        if makes_unset_memory(node):
            set_memory_of(made, fill)
    filled = torch.fx.GraphModule(module, copy)
    modules: Any = module
    for name, each in modules.named_children():
        if makes_unset_memory_inside(each):
            setattr(filled, name, _filled_module(each, fill)[0])
    return filled, copies
