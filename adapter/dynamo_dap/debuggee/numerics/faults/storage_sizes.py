"""Compares the sizes of memory after a compiled call with those after Dynamo's graph.

A program may release the memory of a tensor and allocate it again, as FSDP does: ``x.untyped_storage().resize_(0)``.
Only sizes are compared here, no contents. Runs on the program's thread that makes the call.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from dynamo_dap.debuggee.numerics.faults.comparisons import Comparison, Fault
from dynamo_dap.debuggee.numerics.faults.stage_search import ladder
from dynamo_dap.debuggee.numerics.graphs.differences import Difference
from dynamo_dap.debuggee.numerics.graphs.memory_runs import compiled_by
from dynamo_dap.debuggee.replay.replayed_graph import ReplayedGraph
from dynamo_dap.debuggee.torch_api.graphs.graph import target_name
from dynamo_dap.debuggee.torch_api.graphs.graph_runs import has_own_memory
from dynamo_dap.debuggee.torch_api.graphs.tensor_facts import has_all_memory
from dynamo_dap.debuggee.torch_api.objects import GraphModule, Node
from dynamo_dap.debuggee.torch_api.traced.fake_evaluation import storage_of
from dynamo_dap.debuggee.torch_api.traced.replays import compiling_in_isolation
from dynamo_dap.protocol.texts import counted

SIZES = "sizes of memory"
"""The name of these properties in ``ComparisonBody.not_compared``."""


@dataclass(frozen=True)
class _Sizes:
    """The sizes after a run, in bytes; None for a size that is not compared."""

    inputs: Sequence[int | None]
    outputs: Sequence[int | None]


@dataclass(frozen=True)
class _WrongSize:
    name: str
    node: Node | None
    """The operation that changes the size in Dynamo's graph, or that makes the result."""
    found: int
    expected: int | None
    """None if it must be enough for all elements."""

    @property
    def text(self) -> str:
        """The difference, for the user."""
        expected = "enough for its elements" if self.expected is None else counted(self.expected, "byte")
        return f"The memory of {self.name} has {counted(self.found, 'byte')} after the call, and in eager {expected}."


def fault_in_sizes(
    comparison: Comparison, given: Sequence[object], outputs: Sequence[object], random: Iterable[Callable[[], None]]
) -> Fault | None:
    """Return the fault if an input in ``given`` or an output of a compiled call has memory of another size than eager.

    Raises:
        Exception: whatever an operation of the graph raises.
    """
    sizes = _SizesInEager(comparison.graph, random)
    found = sizes.first_wrong(given, outputs)
    if found is None:
        return None

    def is_right(earlier: Callable[..., object]) -> bool:
        return sizes.first_wrong(*sizes.run(earlier)) is None

    found_in = ladder(comparison.backend, is_right)
    comparison.runs += found_in.runs
    none = Difference(0.0, 0.0, False)
    return Fault(found.node, none, found_in.stage, None, observed=found.text, judged=found_in.judged)


class _SizesInEager:
    """The sizes after a run of Dynamo's graph."""

    def __init__(self, graph: ReplayedGraph, random: Iterable[Callable[[], None]]) -> None:
        self._graph = graph
        self._random = tuple(random)
        self._placeholders = [node for node in graph.nodes if node.op == "placeholder"]
        self._before = [_size_before(graph, node) for node in self._placeholders]
        self._resized: dict[object, Node] = {}
        """The last operation that changed the size of each memory in the run."""
        self._nodes: list[Node | None] = [None] * len(self._before)
        """By input: the operation that changed its size last."""
        self._of_outputs: list[Node | None] = [
            node if hasattr(node, "op") and node.op not in ("placeholder", "get_attr") else None
            for node in graph.output_nodes
        ]
        if graph.with_resizes is None:
            # No operation changes a size.
            self._expected = _Sizes(self._before, [None] * len(self._of_outputs))
            return
        if any(target_name(node).endswith("set_") for node in graph.nodes):
            raise ValueError("the graph also replaces the memory of a tensor")
        given, outputs = self.run(None)
        keys = [storage_of(each) for each in given]
        self._nodes = [self._resized.get(key) for key in keys]
        changed = [has_own_memory(each) and storage_of(each) in self._resized for each in outputs]
        self._expected = _Sizes(
            [_size(each) for each in given],
            [_size(each) if is_changed else None for each, is_changed in zip(outputs, changed, strict=True)],
        )
        self._of_outputs = [
            self._resized.get(storage_of(each), node) for each, node in zip(outputs, self._of_outputs, strict=True)
        ]

    def run(self, backend: Callable[..., object] | None) -> tuple[list[object], list[object]]:
        """Run the graph, compiled by ``backend`` if given, on copies of the inputs; return these and the outputs.

        Raises:
            Exception: whatever the backend or an operation raises.
        """
        torch = sys.modules["torch"]
        module: GraphModule = self._graph.with_resizes or self._graph.module
        with compiling_in_isolation(), torch.no_grad():
            compiled = self._interpreted if backend is None else compiled_by(backend, module, self._given())
            given = self._given()
            for restore in self._random:
                restore()
            outputs: object = compiled(*given)
            return given, list(outputs) if isinstance(outputs, list | tuple) else [outputs]

    def _given(self) -> list[Any]:
        """Return copies of the inputs, with memory of the sizes before the call."""
        given: list[Any] = self._graph.fresh_inputs(copies_all=True)
        for each, size in zip(given, self._before, strict=True):
            if size is not None and each.untyped_storage().nbytes() != size:
                each.untyped_storage().resize_(size)
        return given

    def _interpreted(self, *given: object) -> object:
        torch: Any = sys.modules["torch"]
        originals, resized = self._graph.resizes, self._resized

        class Watching(torch.fx.Interpreter):  # type: ignore[misc]  # the base is known at run time
            def run_node(self, node: Node) -> object:
                if node in originals:
                    resized[storage_of(self.env[node.args[0]])] = originals[node]
                return super().run_node(node)

        return Watching(self._graph.with_resizes).run(*given)

    def first_wrong(self, given: Sequence[object], outputs: Sequence[object]) -> _WrongSize | None:
        """Return the first input or output with memory of another size than after Dynamo's graph."""
        names = [self._graph.names.get(node) or str(node.name) for node in self._placeholders]
        for name, node, each, expected in zip(names, self._nodes, given, self._expected.inputs, strict=True):
            size = _size(each)
            if size is not None and expected is not None and size != expected:
                return _WrongSize(name, node, size, expected)
        of_inputs = set(map(storage_of, given))
        for at, (node, each) in enumerate(zip(self._of_outputs, outputs, strict=True)):
            size, wanted = _size(each), self._expected.outputs[at]
            if size is None or not has_own_memory(each) or storage_of(each) in of_inputs:
                continue
            if size != wanted if wanted is not None else not has_all_memory(each):
                return _WrongSize(f"result {at}", node, size, wanted)
        return None


def _size_before(graph: ReplayedGraph, placeholder: Node) -> int | None:
    """Return the size of an input's memory before the call; None if it has none of its own."""
    value = graph.call_inputs.get(placeholder)
    if not has_own_memory(value):
        return None
    kept: Any = graph.call.memory.get(storage_of(value), value.untyped_storage())
    return int(kept.nbytes())


def _size(value: object) -> int | None:
    return int(value.untyped_storage().nbytes()) if has_own_memory(value) else None
