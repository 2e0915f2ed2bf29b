"""Compares the results of the compiler's stages for one call: Dynamo's graph, AOTAutograd, the backend.

The graphs for this are compiled in isolation from the program. The module ``differences`` has the tolerances. Runs on
the thread that makes the call.
"""

from __future__ import annotations

import functools
import operator
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from dynamo_dap.debuggee.numerics.faults.body_faults import ALONE, ComparedBody
from dynamo_dap.debuggee.numerics.faults.stage_search import DYNAMO, ladder, part_at_fault
from dynamo_dap.debuggee.numerics.faults.stored_state import StoredDifference
from dynamo_dap.debuggee.numerics.graphs.differences import Difference, Referee, difference, zeros_of_other_sign
from dynamo_dap.debuggee.numerics.graphs.exact_runs import ExactRuns, TakenResult, overwritten_key, version_after
from dynamo_dap.debuggee.numerics.graphs.memory_runs import (
    InitializedOnly,
    Uninitialized,
    WrittenInputs,
    of_uninitialized_memory,
    random_state_after,
    without,
)
from dynamo_dap.debuggee.numerics.graphs.transforms import VisibleGraph
from dynamo_dap.debuggee.replay.replayed_graph import ReplayedGraph, places_of
from dynamo_dap.debuggee.torch_api.compiles.backends import draws_its_own_numbers
from dynamo_dap.debuggee.torch_api.features import Feature
from dynamo_dap.debuggee.torch_api.graphs.custom_operators import (
    OPERATOR,
    CheckedCalls,
    OperatorFault,
    differing_repeat,
)
from dynamo_dap.debuggee.torch_api.graphs.graph import node_with_result, number_of, operation_name
from dynamo_dap.debuggee.torch_api.graphs.graph_runs import Failed, NoRealValue, has_own_memory, in_transform
from dynamo_dap.debuggee.torch_api.graphs.operations import is_custom_operator
from dynamo_dap.debuggee.torch_api.graphs.tensor_facts import has_all_memory, version_of
from dynamo_dap.debuggee.torch_api.graphs.transforms import is_visible
from dynamo_dap.debuggee.torch_api.isolation import data_reading, random_state
from dynamo_dap.debuggee.torch_api.objects import Node, Tensor
from dynamo_dap.debuggee.torch_api.traced.fake_evaluation import storage_of
from dynamo_dap.debuggee.torch_api.traced.replays import compile_by, compiling_in_isolation
from dynamo_dap.protocol.requests.comparisons import JudgedStage
from dynamo_dap.protocol.texts import first_line_of

_COMPILED = "torch.fx:GraphModule"

COMPARING = Feature("comparing what compiled graphs return", _COMPILED)

_RANDOM_STATE = "It leaves torch's random number generator in another state than eager: the next numbers differ."


class EagerRaises(NoRealValue):
    """An operation of Dynamo's graph raises, though the compiled call has returned."""

    def __init__(self, reason: str, node: Node, graph: ReplayedGraph, problem: str) -> None:
        super().__init__(reason)
        self.node = node
        self.graph = graph
        self.problem = problem


class Reference:
    """Each operation's eager result in one call of a graph."""

    def __init__(self, graph: ReplayedGraph, *, may_fail: bool = False) -> None:
        """Run ``graph``. With ``may_fail``, an operation that raises is noted in ``failed``.

        Raises:
            NoRealValue: some operation cannot be run again, or raises without ``may_fail``.
        """
        self.graph = graph
        self.values: dict[Node, Tensor] = {}
        """Each operation's result, unless a later operation writes to it."""
        self.overwritten: dict[Node, Tensor] = {}
        """The other results, before a later operation writes to them. For an assignment, the tensor that it changes."""
        self._seen: dict[Node, tuple[Tensor, int, Tensor]] = {}
        self._taken: dict[str, TakenResult] = {}
        self._random: Any = None
        self.several: dict[Node, list[Tensor]] = {}
        """The results of each operation with several, except those to which later operations write."""
        self._several: dict[Node, list[tuple[Tensor, int, Tensor]]] = {}
        self.failed: tuple[Node, str] | None = None
        """The first operation that has raised, and the exception."""
        self._problem = ""
        self.visible = VisibleGraph(graph)
        self._calls = CheckedCalls(self.visible.graph.promised)
        try:
            self.outputs = self.visible.graph.run(self._note, self._calls)
        except NoRealValue as problem:
            if not self._calls.faults and not (may_fail and self.failed):
                raise self._raised() or problem from None
            self.outputs = []  # an operation has raised; a wrong declaration of an operator may be the cause
        graph.written = self.visible.graph.written
        seen = [(node, *self._seen[node]) for node in graph.nodes if node in self._seen]
        self.values = {node: kept for node, value, version, kept in seen if version_of(value) == version}
        if not self.visible.inside:
            self.overwritten = {node: kept for node, value, version, kept in seen if version_of(value) != version}
        self.several = {
            node: [kept for value, version, kept in results if version_of(value) == version]
            for node, results in self._several.items()
        }
        self.uninitialized: dict[Node, object] = {}
        """Masks of the elements of outputs that depend on uninitialized memory."""
        self.uninitialized_before_writes: dict[Node, object] = {}
        """Such masks of operations' results, before later operations write to them."""
        dtypes = {node.name: value.dtype for node, value in {**self.values, **self.overwritten}.items()}
        self.random_after: Any = self._random
        """The states of torch's generators after the run."""
        self.runs = ExactRuns(self.visible, dtypes, self._taken)
        """The runs of the graph in float64."""
        self._seen.clear()
        self._several.clear()

    def _raised(self) -> EagerRaises | None:
        """Return the error to raise if an operation itself has raised."""
        if self.failed is None or not self._problem:
            return None
        return EagerRaises(self.failed[1], self.failed[0], self.graph, self._problem)

    @property
    def operator_faults(self) -> Mapping[Any, OperatorFault]:
        """How custom operators break their declarations, by node."""
        return {self.visible.original(node): fault for node, fault in self._calls.faults.items()}

    def _note(self, node: Node, results: Mapping[Node, object]) -> None:
        if node.prev.op == "root":
            self._seen.clear()
            self._several.clear()
            self._taken.clear()
            self.failed = None
        value = results[node]
        if isinstance(value, Failed) and self.failed is None:
            self.failed = self.visible.original(node) or node, value.reason
            self._problem = value.problem
        before, self._random = self._random, random_state()
        is_drawn = before is not None and node.prev.op != "root" and not before.equal(self._random)
        if is_drawn or is_custom_operator(node.target):
            self._taken[node.name] = TakenResult.of(node, results, is_random=is_drawn)
        original = self.visible.original(node)
        if original is None or (in_transform() and not is_visible(value)):
            return
        node = original
        if node.op not in ("call_function", "call_method", "call_module"):
            return
        if isinstance(value, list | tuple) and any(has_own_memory(each) for each in value):
            with data_reading():
                self._several[node] = [
                    (each, version_of(each), each.detach().clone()) for each in value if has_own_memory(each)
                ]
        value = results[node_with_result(node)] if value is None and not self.visible.inside else value
        if has_own_memory(value):
            with data_reading(transforms=True):
                self._seen[node] = (value, version_after(node, value), value.detach().clone())

    def referee(self, node: Node) -> Referee:
        """Return the referee for the results of ``node``."""
        return self.runs.referee(getattr(node, "name", ""))

    def compare(self, node: Node, value: object) -> Difference:
        """Compare ``value``, an operation's result before later operations write to it, with the eager result."""
        mask = self.uninitialized_before_writes.get(node)
        if node in self.overwritten:
            return _difference(self.overwritten[node], value, self.runs.referee(overwritten_key(node.name)), mask)
        return _difference(self.values[node], value, self.referee(node), mask)

    def difference(self, node: Node, reference: object, other: object) -> Difference:
        """Compare two outputs, without the elements that depend on uninitialized memory."""
        return _difference(reference, other, self.referee(node), self.uninitialized.get(node))

    @property
    def operations(self) -> list[Node]:
        """The operations whose results are compared, in the order of the graph."""
        return [node for node in self.graph.nodes if node in self.values or node in self.overwritten]


def _difference(reference: object, other: object, referee: Referee, mask: object) -> Difference:
    """Compare two results without the elements in ``mask``; None compares all."""
    if mask is None:
        return difference(reference, other, referee)
    return difference(without(reference, mask), without(other, mask), InitializedOnly(referee, mask))


def values_by(
    backend: Callable[..., object],
    graph: ReplayedGraph,
    reference: Reference,
    nodes: Sequence[Node],
    random: Iterable[Callable[[], None]],
    *,
    records_gradients: bool,
) -> list[object]:
    """Compile the graph by ``backend`` so that it returns the results of ``nodes``, and run it on the call's inputs.

    Raises:
        Exception: whatever the backend raises.
    """
    torch = sys.modules["torch"]
    # Dynamo traces transforms with gradients enabled, but adds no node to the graph that enables them.
    with (
        compiling_in_isolation(),
        torch.set_grad_enabled(records_gradients or bool(reference.visible.inside)),
    ):
        given = graph.fresh_inputs(require_gradients=records_gradients)
        compiled = compile_by(backend, reference.visible.prefix(nodes, reference.overwritten), given)
        for restore in random:
            restore()
        returned = compiled(*graph.fresh_inputs(require_gradients=records_gradients))
        # Copy results that are the graph's own tensors: the next run overwrites these.
        owned = {storage_of(own) for _, own, _ in graph.own_attributes()}
        with data_reading():
            return [
                each.detach().clone() if has_own_memory(each) and storage_of(each) in owned else each
                for each in returned
            ]


@dataclass(frozen=True)
class Fault:
    """The first difference in a compiled call, and the wrong stage."""

    node: Any
    """The operation. None if the difference is in no operation, or is gone once the graph is compiled again."""
    difference: Difference
    stage: str | None
    """The wrong stage; None for the backend itself."""
    value: object
    """The compiled result of ``node``."""
    line: tuple[str, int] | None = None
    """The file and line to show, if that is not the line of ``node``: a caller's line, or one that stores a value."""
    operator: str | None = None
    """What a custom operator does wrong, if it is the cause."""
    stored: StoredDifference | None = None
    """The wrong value that Dynamo's code stores, if no value in the graph differs."""
    visit: int = 1
    """The number of the visit in which ``line`` stores the value: a loop repeats lines."""
    written: str | None = None
    """The name of the input whose contents differ after the compiled graph, if that is the difference."""
    part: str | None = None
    """The decomposition, pass or lowering without which nothing differs, if known."""
    observed: str | None = None
    """What differs, if it is not the value of a tensor: strides, for example."""
    judged: tuple[JudgedStage, ...] = ()
    """The stages that were tried, and whether each is right."""
    within: Node | None = None
    """The higher-order operator whose body contains ``node``."""


class Comparison:
    """The comparison of one call's compiled graph with Dynamo's graph."""

    def __init__(
        self,
        graph: ReplayedGraph,
        outputs: Sequence[object],
        backend: Callable[..., object],
        random: Iterable[Callable[[], None]],
        *,
        may_fail: bool,
    ) -> None:
        """Run ``graph``, and compare its outputs with ``outputs`` of the compiled graph.

        ``random`` restores the call's random states; ``may_fail`` is as for ``Reference``.

        Raises:
            NoRealValue: some operation cannot be run again, or raises without ``may_fail``.
        """
        self.reference = Reference(graph, may_fail=may_fail)
        # Released memory has no contents; ``storage_sizes`` compares its size.
        expected = self.reference.outputs if len(self.reference.outputs) == len(outputs) else outputs
        outputs = [
            right if has_own_memory(each) and not has_all_memory(each) else each
            for right, each in zip(expected, outputs, strict=True)
        ]
        self.outputs = outputs
        self.graph = graph
        self.backend = backend
        self._random = tuple(random)
        self._values: list[object] = []
        self._inputs: WrittenInputs | None = None
        self._after: Sequence[object] = ()
        """The inputs after the compiled call, if these are compared."""
        self._records_gradients = False
        """Whether to compile the graph for a backward pass, too: the difference appears only then."""
        self.by_line: dict[tuple[str, int], Difference] = {}
        """How Dynamo's graph differs from ordinary Python, by file and line, if compared."""
        self.is_python_run = False
        """Whether the function has run as ordinary Python."""
        self.by_node: dict[Node, Difference] = {}
        """How each operation's compiled result differs from its eager result, once compared."""
        self.not_compared: list[str] = []
        self.runs = ["Dynamo's graph, operation by operation"]
        """The runs that prove the verdict."""
        self.uninitialized = None if self.reference.failed else of_uninitialized_memory(graph)
        if self.uninitialized is not None:
            outputs = self._leave_out_uninitialized(outputs, self.uninitialized)
        self.of_outputs = [
            self._difference(node, reference, other)
            for node, reference, other in zip(graph.output_nodes, self.reference.outputs, outputs, strict=False)
        ]
        self.zeros = sum(map(zeros_of_other_sign, self.reference.outputs, outputs))
        """How many elements of the outputs are 0.0 in one graph and -0.0 in the other."""

    def _leave_out_uninitialized(self, outputs: Sequence[object], of: Uninitialized) -> list[object]:
        if of.is_returned:
            self.not_compared.append("elements of memory that no operation has set (torch.empty)")
        reference = self.reference
        for node in [each for each in reference.several if each.name in of.nodes]:
            del reference.several[node]
        for known in (reference.values, reference.overwritten):
            for node in [each for each in known if each.name in of.nodes]:
                mask: Any = of.nodes[node.name][0]
                reference.uninitialized_before_writes[node] = mask
                with data_reading():
                    is_compared = mask.shape == known[node].shape and not mask.all()  # transforms show other shapes
                if not is_compared:
                    del known[node]
        if len(reference.outputs) == len(of.outputs):
            reference.outputs = list(map(without, reference.outputs, of.outputs))
            reference.uninitialized = dict(zip(self.graph.output_nodes, of.outputs, strict=False))
        return list(map(without, outputs, of.outputs))

    def is_stored_right(self, expected: object, stored: Any) -> bool:
        """Return whether ``stored`` matches ``expected``, or equals what the graph left or returned and is right there.

        Both are tensors, or numbers that are not equal: only numbers that the graph has computed may be rounded.
        """
        torch = sys.modules["torch"]
        if not has_own_memory(stored):
            return any(
                number_of(node) is not None
                and other.item() == stored
                and self._difference(node, reference, torch.tensor(expected, dtype=torch.float64)).is_same
                for node, other, reference in self._outputs
                if has_own_memory(other) and has_own_memory(reference)
            )
        if difference(expected, stored).is_same:
            return True
        with data_reading():
            if self._inputs is not None and self._inputs.is_right(expected, stored, self._after):
                return True
            return any(
                has_own_memory(other)
                and (stored.shape, stored.dtype) == (other.shape, other.dtype)
                and torch.equal(stored, other)
                and self._difference(node, reference, expected).is_same
                for node, other, reference in self._outputs
            )

    @property
    def _outputs(self) -> Iterable[tuple[Any, Any, Any]]:
        """The node, the compiled value and the eager value of each output; none if the call has raised."""
        return zip(self.graph.output_nodes, self.outputs, self.reference.outputs, strict=False)

    def _difference(self, node: Node, reference: object, other: object) -> Difference:
        found = self.reference.difference(node, reference, other)
        if not found.decided or not found.is_same:
            return found
        of = node.args[0] if node.target is operator.getitem else node
        integers = "integer" if found.decided == 1 else "integers"
        return replace(found, rounding=f"rounding decides {found.decided} {integers} of {operation_name(of)}")

    @property
    def differs(self) -> bool:
        """Whether an output differs."""
        return not all(each.is_same for each in self.of_outputs)

    def of_nodes(self, backend: Callable[..., object], nodes: Sequence[Node]) -> list[tuple[Difference, object]]:
        """Compile the graph by ``backend`` with ``nodes`` as outputs; return each node's difference and value.

        Raises:
            Exception: whatever the backend raises.
        """
        if not nodes:
            return []
        recorded = self._records_gradients
        values = values_by(backend, self.graph, self.reference, nodes, self._random, records_gradients=recorded)
        return [(self.reference.compare(node, value), value) for node, value in zip(nodes, values, strict=True)]

    @property
    def worst(self) -> Difference:
        """The difference of the output that differs most."""
        none = Difference(0.0, 0.0, True)
        return max(self.of_outputs, key=lambda each: (not each.is_same, each.largest), default=none)

    def compare_nodes(self) -> None:
        """Compile the graph again with each operation's result as an output, and fill ``by_node``.

        Raises:
            Exception: whatever the backend raises.
        """
        nodes = self.reference.operations
        found = self.of_nodes(self.backend, nodes)
        self.runs.append("the backend, with the result of each operation returned")
        self._values = [value for _, value in found]
        self.by_node = {node: each for node, (each, _) in zip(nodes, found, strict=True)}

    def fault_of_dynamo(self, is_passed_over: Callable[[str], bool]) -> Fault | None:
        """Return the fault in the first line whose results in Dynamo's graph differ from ordinary Python.

        None if the difference reaches no output.
        """
        if all(each.is_same for each in self.by_line.values()):
            return None
        lines = {
            node: [(place.path, place.line) for place, _ in places_of(node) if not is_passed_over(place.path)]
            for node in self.reference.values
        }
        differing = {line for line, each in self.by_line.items() if not each.is_same}
        returned = [node for node in self.graph.output_nodes if node in lines]
        if not any(differing.intersection(lines[node]) for node in returned):
            return None
        for its_lines in lines.values():
            line = next((each for each in its_lines if each in differing), None)
            if line is not None:
                last = [other for other, others in lines.items() if line in others][-1]
                value = self.reference.values[last]
                if (reported := self._differing_repeat(last)) is not None:
                    return Fault(last, self.by_line[line], OPERATOR, value, operator=reported)
                return Fault(last, self.by_line[line], DYNAMO, value, None if line == its_lines[0] else line)
        return None

    def fault_of_operator(self) -> Fault | None:
        """Return the fault of the first custom operator that breaks its declaration, if any."""
        for node, found in self.reference.operator_faults.items():
            return Fault(node, self.worst, found.stage, self.reference.values.get(node), operator=found.text)
        return None

    def fault(self) -> Fault:
        """Find the first operation whose result differs, and the wrong stage.

        Raises:
            Exception: whatever the backend raises.
        """
        if not self.by_node:
            self.compare_nodes()
        known = zip(self.by_node.items(), self._values, strict=True)
        found = next(((node, how, value) for (node, how), value in known if not how.is_same), None)
        found = found or self._first_of_prefixes(list(self.by_node)) or self._first_with_gradients()
        if found is None:
            return self._in_output() or Fault(None, self.worst, None, None)
        node, how, value = found
        if (reported := self._differing_repeat(node)) is not None:
            return Fault(node, how, OPERATOR, value, operator=reported)
        found_in = ladder(self.backend, lambda backend: self._is_right(backend, node))
        self.runs += found_in.runs
        part = part_at_fault(self.backend, found_in.stage, lambda backend: self._is_right(backend, node))
        found_fault = Fault(node, how, found_in.stage, value, part=part, judged=found_in.judged)
        return self._inside(found_fault) or found_fault

    def _in_output(self) -> Fault | None:
        """Return the fault in a jagged output, which is compared only as an output."""
        known = zip(self.graph.output_nodes, self.of_outputs, self.reference.outputs, self.outputs, strict=False)
        for at, (node, how, expected, value) in enumerate(known):
            if how.is_same or has_own_memory(value):
                continue
            self.reference.values[node] = expected
            found_in = ladder(self.backend, functools.partial(self._is_right, node=node))
            self.runs += found_in.runs
            text = f"Result {at} differs: {how.text}."
            return Fault(node, how, found_in.stage, value, observed=text, judged=found_in.judged)
        return None

    def _inside(self, fault: Fault) -> Fault | None:
        """Return the fault in the body of a wrong higher-order operator, or None."""
        if not self.reference.uninitialized_before_writes.keys().isdisjoint(fault.node.all_input_nodes):
            return None  # the body is compared with all elements of its inputs
        body = ComparedBody(self.graph, fault.node, self._random, self.reference.runs)
        try:
            found = body.differences(self.backend)
        except Exception as problem:  # noqa: BLE001  (whatever the backend raises: the line of the operator remains)
            operations = f"operations in the body of {operation_name(body.operator)}"
            self.not_compared.append(f"{operations}: {first_line_of(problem)}")
            return None
        self.runs += [ALONE] if body.is_alone and found else []
        self.by_node.update((node, how) for node, (how, _) in found.items())
        for node, (how, value) in found.items():
            if not how.is_same:
                return replace(fault, node=node, difference=how, value=value, within=body.operator)
        return None

    def fault_in_memory(self, after: Sequence[object]) -> Fault | None:
        """Return the fault in the first input that the compiled call leaves with wrong contents, if any.

        ``after`` has the inputs after the compiled call.

        Raises:
            Exception: whatever an operation of the graph raises.
        """
        inputs = self._inputs = WrittenInputs(self.graph, self._random, self.reference.runs)
        self._after = after
        self.runs.append("Dynamo's graph on copies of the inputs")
        found = inputs.first_difference(after)
        if found is None:
            return None
        found_in = ladder(self.backend, lambda backend: inputs.first_difference(inputs.left_by(backend)) is None)
        self.runs += found_in.runs
        name = self.graph.names.get(found.placeholder) or str(found.placeholder.name)
        writer = inputs.first_wrong_writer(found, self.backend, self.reference.visible.prefix)
        node = self._first_before(writer) or writer
        return Fault(node, found.difference, found_in.stage, found.value, written=name, judged=found_in.judged)

    def _first_before(self, writer: Node | None) -> Node | None:
        """Return the first operation that ``writer`` depends on and whose result differs, or None."""
        if writer is None:
            return None
        if not self.by_node:
            self.compare_nodes()
        needed: set[object] = set()
        for node in reversed(self.graph.nodes):
            if node is writer or node in needed:
                needed.update(node.all_input_nodes)
        return next((node for node, how in self.by_node.items() if node in needed and not how.is_same), None)

    def fault_in_random_state(self, after: object) -> Fault | None:
        """Return the fault if the compiled call leaves torch's random generators in another state than eager.

        ``after`` has their states after the compiled call; None if unknown.

        Raises:
            Exception: whatever an operation of the graph raises.
        """
        expected = self.reference.random_after
        if after is None or expected is None or expected.equal(after):
            return None
        if draws_its_own_numbers(self.backend):
            self.not_compared.append("states of random generators: Inductor draws other numbers")
            return None
        found_in = ladder(
            self.backend, lambda backend: expected.equal(random_state_after(backend, self.graph, self._random))
        )
        self.runs += found_in.runs
        none = Difference(0.0, 0.0, False)
        return Fault(None, none, found_in.stage, None, observed=_RANDOM_STATE, judged=found_in.judged)

    def _differing_repeat(self, node: Node) -> str | None:
        """Return a text if ``node`` is a custom operator that gives different results for equal operands, else None."""
        torch = sys.modules["torch"]
        known = {**self.graph.inputs, **self.reference.values}
        if not is_custom_operator(node.target) or any(each not in known for each in (node, *node.all_input_nodes)):
            return None
        args, kwargs = torch.fx.node.map_arg((node.args, dict(node.kwargs)), known.__getitem__)
        try:
            reported = differing_repeat(node.target, args, kwargs, self.reference.values[node])
        except Exception:  # noqa: BLE001  (an operator that cannot be called again proves nothing)
            return None
        return None if reported is None else f"It gives another result for equal operands {reported}."

    def _first(self, nodes: Sequence[Node]) -> tuple[Node, Difference, object] | None:
        found = zip(nodes, self.of_nodes(self.backend, nodes), strict=True)
        return next(((node, how, value) for node, (how, value) in found if not how.is_same), None)

    def _first_of_prefixes(self, nodes: Sequence[Node]) -> tuple[Node, Difference, object] | None:
        """Find the first wrong node by bisection over graphs with one output: more outputs would change the fusion."""
        low, high, found = 0, len(nodes) - 1, None
        while low <= high:
            middle = (low + high) // 2 if found is not None else high
            first = self._first([nodes[middle]])
            if first is not None:
                found, high = first, middle - 1
            elif found is None:
                return None
            else:
                low = middle + 1
        return found

    def _first_with_gradients(self) -> tuple[Node, Difference, object] | None:
        """Find the first wrong node in graphs with a backward pass, which backends compile differently."""
        if not any(getattr(each, "requires_grad", False) for each in self.outputs):
            return None
        self._records_gradients = True
        self.runs.append("the backend, with gradients recorded")
        try:
            found = self._first(list(self.by_node)) or self._first_of_prefixes(list(self.by_node))
        except RuntimeError:  # autograd refuses to record a graph that writes to its inputs
            found = None
        self._records_gradients = found is not None
        return found

    def _is_right(self, backend: Callable[..., object], node: Node) -> bool:
        ((how, _),) = self.of_nodes(backend, [node])
        return how.is_same
