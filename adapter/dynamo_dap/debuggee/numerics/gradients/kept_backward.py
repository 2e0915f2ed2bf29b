"""Keeps calls for the comparison of their gradients, and differentiates their graphs as a backend compiles them.

Runs on the program's thread that makes the call, and on the one that runs the backward pass.
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from typing import Any

from dynamo_dap.debuggee.numerics.gradients.gradient_run import Gradients, KeptInput
from dynamo_dap.debuggee.numerics.graphs.changed_graphs import Use, expanded, with_zeros
from dynamo_dap.debuggee.recording.function_names import name_of_call
from dynamo_dap.debuggee.replay.graph_calls import GraphCall
from dynamo_dap.debuggee.replay.replayed_graph import ReplayedGraph
from dynamo_dap.debuggee.torch_api.graphs.graph import copy_to_compile
from dynamo_dap.debuggee.torch_api.graphs.graph_runs import NoRealValue, has_own_memory, with_earlier_memory
from dynamo_dap.debuggee.torch_api.objects import Node
from dynamo_dap.debuggee.torch_api.traced.fake_evaluation import storage_of
from dynamo_dap.debuggee.torch_api.traced.replays import CachedCall, compile_by, compiling_in_isolation

_NO_FRAME: Any = None
"""The frame of an ended call: the call is not traced again."""

Facts = tuple[object, object, object]
"""The shape, dtype and device of a tensor."""


@dataclass(frozen=True)
class DifferentiatedGraph:
    """A replayed graph as a ``gradients.DifferentiableGraph``."""

    graph: ReplayedGraph
    nodes: Sequence[Node]
    outputs: Sequence[object]
    written: frozenset[object]

    @classmethod
    def of(cls, graph: ReplayedGraph, written: frozenset[str]) -> DifferentiatedGraph:
        """Wrap ``graph``; ``written`` has the names of the placeholders that nodes write to."""
        placeholders = frozenset(node for node in graph.nodes if node.op == "placeholder" and node.name in written)
        return cls(graph, [node for node in graph.nodes if node.op != "output"], graph.output_nodes, placeholders)

    def attribute(self, target: str) -> object:
        """Return a parameter, buffer, constant or submodule of the graph."""
        return self.graph.attribute(target)


class KeptBackward:
    """A call whose backward pass will be compared."""

    def __init__(
        self,
        graph: ReplayedGraph,
        given: Sequence[Any],
        states: Sequence[Callable[[], None]],
        backend: Callable[..., object],
        memory: Mapping[object, object],
    ) -> None:
        """Keep the inputs ``given`` of ``graph``. The call has written to ``memory``, which has the earlier contents.

        Raises:
            NoRealValue: the call's gradients cannot be compared; the text says why.
        """
        self.graph = graph
        self.states = tuple(states)
        self.backend = backend
        placeholders = [node for node in graph.nodes if node.op == "placeholder"]
        changed = {*graph.written, *memory}
        of_memory: dict[object, int] = {}
        for each in given:
            if has_own_memory(each):
                of_memory[storage_of(each)] = of_memory.get(storage_of(each), 0) + 1
        self.written = frozenset(
            node.name
            for node, value in zip(placeholders, given, strict=True)
            if has_own_memory(value) and storage_of(value) in changed
        )
        inputs: dict[Node, KeptInput] = {}
        for node, value in zip(placeholders, given, strict=True):
            name = graph.names.get(node) or node.name
            is_written = node.name in self.written
            if is_written and of_memory[storage_of(value)] > 1:
                raise NoRealValue(f"the call may write to {name}, which shares its memory")
            # Refuse only real writes: operands of custom operators count as written, too, as declarations may be wrong.
            if is_written and value.requires_grad and storage_of(value) in memory:
                raise NoRealValue(f"the call writes to {name}, which needs a gradient")
            kept = KeptInput.of(name, with_earlier_memory(value, memory), is_written=is_written)
            inputs[node] = replace(kept, requires_grad=bool(getattr(value, "requires_grad", False)))
        self.inputs = inputs
        self.names = [graph.names.get(node) or node.name for node in placeholders]
        self.function, self.compile_id, self.token, self.number, self.passes = "", "", "", 0, 0
        self.included: Sequence[frozenset[int]] = ()
        """The call's ``ReturnedGradients.included``."""
        self.shares: Sequence[int | None] = ()

    @classmethod
    def of(
        cls, call: GraphCall, cached_call: CachedCall, graph: ReplayedGraph, states: Sequence[Callable[[], None]]
    ) -> KeptBackward:
        """Keep a call that has just returned, without its frame and its arguments.

        Raises:
            NoRealValue: the call's gradients cannot be compared; the text says why.
        """
        kept = cls(graph, call.inputs, states, cached_call.backend, call.kept.memory)
        kept.graph = graph.with_inputs(graph.module, {node: each.value for node, each in kept.inputs.items()})
        kept.graph.call = replace(cached_call, frame=_NO_FRAME, arguments={}, closure=(), memory={}, marks=())
        kept.function = name_of_call(cached_call)
        kept.token = call.token
        kept.compile_id, kept.number = cached_call.compile_id, call.graph.calls
        return kept

    def expanded(self, node: Node) -> tuple[KeptBackward, frozenset[Node]] | None:
        """Return the call with the operator ``node`` replaced by its body, and the operations of the body.

        Return None if the operator does more than run one body.
        """
        found = expanded(self.graph.module, node)
        if found is None:
            return None
        other = copy.copy(self)
        other.inputs = {found.copies[node]: each for node, each in self.inputs.items()}
        other.graph = self.graph.with_inputs(found.module, {node: each.value for node, each in other.inputs.items()})
        return other, found.inside

    def with_zeros(
        self, uses: Sequence[Use], facts: Mapping[object, Facts], in_place: AbstractSet[Use]
    ) -> KeptBackward:
        """Return the call with one more input of its graph for each use: a zero that is added to the operand.

        The zero's gradient is the part of the operand's gradient that comes from the use. If later operations write to
        the operand, it is the gradient of the contents that the user reads. ``facts`` has each operand's shape, dtype
        and device; ``in_place`` are the uses of memory that is overwritten.
        """
        torch = sys.modules["torch"]
        module, copies, zeros = with_zeros(self.graph, uses, in_place)
        other = copy.copy(self)
        other.inputs = {copies[node]: each for node, each in self.inputs.items()}
        for (node, _), placeholder in zip(uses, zeros, strict=True):
            shape, dtype, device = facts[node]
            zero = torch.zeros(shape, dtype=dtype, device=device)
            other.inputs[placeholder] = KeptInput(placeholder.name, zero, requires_grad=True)
        other.graph = self.graph.with_inputs(module, {node: each.value for node, each in other.inputs.items()})
        return other

    def values(self) -> list[object]:
        """Return the inputs as they were in the call.

        Raises:
            NoRealValue: the program has changed an input since.
        """
        return [each.now() for each in self.inputs.values()]


def outputs_by(backend: Callable[..., object], kept: KeptBackward) -> tuple[list[object], list[object]]:
    """Compile the graph by ``backend``, and run it under autograd; return its inputs and outputs.

    Raises:
        Exception: whatever the backend raises.
    """
    torch = sys.modules["torch"]
    with compiling_in_isolation(), torch.enable_grad():
        for restore in kept.states:
            restore()
        torch.set_grad_enabled(True)
        compiled = compile_by(backend, copy_to_compile(kept.graph.module), _leaves(kept))
        leaves = _leaves(kept)
        for restore in kept.states:
            restore()
        with torch.enable_grad():
            return leaves, list(compiled(*leaves))


def gradients_by(backend: Callable[..., object], kept: KeptBackward, arrived: Gradients) -> list[object]:
    """Compile the graph by ``backend``, and return its inputs' gradients; ``arrived`` has the outputs' gradients.

    Raises:
        Exception: whatever the backend raises.
    """
    torch = sys.modules["torch"]
    leaves, outputs = outputs_by(backend, kept)
    pairs = [
        (output, gradient)
        for output, gradient in zip(outputs, arrived, strict=True)
        if gradient is not None and getattr(output, "requires_grad", False)
    ]
    known = [at for at, each in enumerate(leaves) if getattr(each, "requires_grad", False)]
    found: list[object] = [None] * len(leaves)
    if pairs and known:
        roots, gradients = zip(*pairs, strict=True)
        with compiling_in_isolation():
            given = torch.autograd.grad(roots, [leaves[at] for at in known], gradients, allow_unused=True)
        for at, gradient in zip(known, given, strict=True):
            found[at] = gradient
    return found


def _leaves(kept: KeptBackward) -> list[object]:
    torch = sys.modules["torch"]
    given: list[object] = []
    for node, each in kept.inputs.items():
        value = each.now()
        if isinstance(value, torch.Tensor):
            value = value.clone() if node.name in kept.written else value.detach()
            value.requires_grad_(each.requires_grad)
        given.append(value)
    return given
