"""Compares properties of a call's results other than their values.

These are strides, memory shared with inputs and other results, and ``requires_grad``. Runs on the program's thread that
makes the call.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from dynamo_dap.debuggee.numerics.faults.comparisons import Fault
from dynamo_dap.debuggee.numerics.faults.stage_search import ladder
from dynamo_dap.debuggee.numerics.gradients.gradient_run import GradientRun
from dynamo_dap.debuggee.numerics.gradients.kept_backward import DifferentiatedGraph, KeptBackward, outputs_by
from dynamo_dap.debuggee.numerics.graphs.differences import Difference
from dynamo_dap.debuggee.torch_api.graphs.graph_runs import has_own_memory
from dynamo_dap.debuggee.torch_api.objects import Node
from dynamo_dap.debuggee.torch_api.traced.fake_evaluation import storage_of

FACTS = "strides, shared memory and requires_grad of the results"
"""The name of these properties in ``ComparisonBody.not_compared``."""


@dataclass(frozen=True)
class OutputFacts:
    """The compared properties of one result."""

    strides: tuple[int, ...]
    """The strides of dimensions with more than one element; other strides have no effect."""
    inputs: frozenset[int]
    """The positions of the inputs whose memory the result shares."""
    outputs: frozenset[int]
    """The positions of the earlier results whose memory the result shares."""
    requires_grad: bool


def facts_of(outputs: Sequence[object], inputs: Mapping[int, object]) -> list[OutputFacts | None]:
    """Return the properties of each output, None if it is not a plain tensor.

    ``inputs`` has the memory of the inputs, by position.
    """
    memory = [storage_of(each) if has_own_memory(each) and each.numel() else None for each in outputs]
    found: list[OutputFacts | None] = []
    for at, (each, own) in enumerate(zip(outputs, memory, strict=True)):
        if not has_own_memory(each):
            found.append(None)
            continue
        sizes = zip(each.shape, each.stride(), strict=True)
        strides = () if own is None else tuple(stride for size, stride in sizes if size > 1)
        shared = frozenset(position for position, other in inputs.items() if own is not None and other == own)
        before = frozenset(other for other in range(at) if own is not None and memory[other] == own)
        found.append(OutputFacts(strides, shared, before, bool(each.requires_grad)))
    return found


class ObservedOutputs:
    """The right properties of a call's results, from a run of Dynamo's graph under autograd."""

    def __init__(self, kept: KeptBackward, *, with_gradients: bool) -> None:
        """Run the graph of ``kept``. ``with_gradients`` says whether to compare ``requires_grad``.

        Raises:
            NoRealValue: the graph cannot run under autograd; the text says why.
        """
        self._kept = kept
        self._with_gradients = with_gradients
        placeholders = list(kept.inputs)
        given: dict[int, object] = {}

        def note(node: Node, results: Mapping[Node, object]) -> None:
            if node.op == "placeholder" and has_own_memory(results[node]):
                # Keep the copy alive, or a result could get its memory.
                given[placeholders.index(node)] = results[node]

        count = len(kept.graph.output_nodes)
        graph = DifferentiatedGraph.of(kept.graph, kept.written)
        run = GradientRun(graph, kept.inputs, kept.states, [None] * count, [frozenset()] * count, note)
        found = facts_of(run.outputs, {at: storage_of(each) for at, each in given.items()})
        self._expected = [
            None if each is None else OutputFacts(each.strides, each.inputs, each.outputs, needs)
            for each, needs in zip(found, run.needs_gradient, strict=True)
        ]

    def fault(self, outputs: Sequence[object], inputs: Sequence[object], backend: object) -> Fault | None:
        """Return the fault in the first result of the compiled call whose properties differ, if any."""
        found = self._first(outputs, inputs)
        if found is None:
            return None
        at, text = found

        def is_right(earlier: Callable[..., object]) -> bool:
            leaves, again = outputs_by(earlier, self._kept)
            return self._first(again, leaves) is None

        found_in = ladder(backend, is_right)
        node: object = self._kept.graph.output_nodes[at]
        none = Difference(0.0, 0.0, False)
        its_node = node if hasattr(node, "meta") else None
        return Fault(its_node, none, found_in.stage, None, observed=text, judged=found_in.judged)

    def _first(self, outputs: Sequence[object], inputs: Sequence[object]) -> tuple[int, str] | None:
        memory = {at: storage_of(each) for at, each in enumerate(inputs) if has_own_memory(each)}
        for at, (expected, found) in enumerate(zip(self._expected, facts_of(outputs, memory), strict=True)):
            if expected is not None and found is not None:
                text = self._text(expected, found)
                if text:
                    return at, f"Result {at} {text}."
        return None

    def _text(self, expected: OutputFacts, found: OutputFacts) -> str:
        if expected.strides != found.strides:
            return f"has strides {found.strides}, not {expected.strides}"
        if expected.inputs != found.inputs:
            return _sharing(expected.inputs, found.inputs, [f"input {name}" for name in self._kept.names])
        if expected.outputs != found.outputs:
            return _sharing(expected.outputs, found.outputs, [f"result {at}" for at in range(len(self._expected))])
        if self._with_gradients and expected.requires_grad != found.requires_grad:
            return "requires no gradient" if expected.requires_grad else "requires a gradient, but not in eager"
        return ""


def _sharing(expected: frozenset[int], found: frozenset[int], names: Sequence[str]) -> str:
    for each in sorted(expected - found):
        return f"does not share its memory with {names[each]}, as it does in eager"
    return f"shares its memory with {names[min(found - expected)]}, unlike in eager"


def records_gradients() -> bool:
    """Return whether the program records gradients now."""
    torch = sys.modules["torch"]
    return bool(torch.is_grad_enabled() and not torch.is_inference_mode_enabled())
