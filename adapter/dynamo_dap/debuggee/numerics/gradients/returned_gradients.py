"""Observes the gradients that a compiled call passes to its inputs in the program's own backward pass.

Hooks on the program's autograd graph note the gradients that arrive at the call's outputs, and those that the call
passes to its inputs. The hooks change nothing, live as long as that graph, and keep none of its nodes alive. The thread
that makes the call installs them; they run on the threads of autograd.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from dynamo_dap.debuggee.numerics.gradients.gradient_run import (
    GRADIENTS,
    Gradients,
    OutputGradients,
    at_end_of_pass,
    current_pass,
    guarded_in_backward,
)
from dynamo_dap.debuggee.torch_api.graphs.tensor_facts import gradient_node_of
from dynamo_dap.debuggee.torch_api.isolation import data_reading
from dynamo_dap.debuggee.torch_api.objects import GradientNode
from dynamo_dap.debuggee.torch_api.skipping import never_compile

_EDGE = "torch.autograd.graph:get_gradient_edge"
_MAXIMUM_NODES = 100_000

Edge = tuple[GradientNode, int]
"""A node of autograd's graph, and the number of one of its gradients."""


@dataclass(eq=False)
class BackwardPass:
    """The gradients of one backward pass through a call."""

    arrived: Gradients
    """The gradient of each output of the call's graph."""
    returned: list[object] = field(default_factory=list)
    """For each input, the gradient that the call passes to it, or None."""


class ReturnedGradients:
    """Reports each backward pass through a call once the pass is over."""

    def __init__(
        self, outputs: Sequence[object], inputs: Sequence[object], report: Callable[[BackwardPass], None]
    ) -> None:
        """Install the hooks in the autograd graph of a call's ``outputs``. ``report`` must not raise."""
        for method in (ReturnedGradients._on_arrived, ReturnedGradients._on_returned, ReturnedGradients._finish):
            never_compile(method)
        self._report = report
        edges = [_edge_of(each) for each in inputs]
        self.shares = [None if edge is None else edges.index(edge) for edge in edges]
        """For each input with a gradient, the position of the first input that is the same tensor."""
        self.passed_on = [_edge_of(each) in edges and _edge_of(each) is not None for each in outputs]
        """For each output, whether it is a returned input: the gradient of such an output bypasses the call's graph."""
        self._edges = {edge: at for at, edge in reversed(list(enumerate(edges))) if edge is not None}
        self._passes: dict[int, BackwardPass] = {}
        own = [None if is_input else each for each, is_input in zip(outputs, self.passed_on, strict=True)]
        self._arriving = OutputGradients(own, inputs, self._on_arrived)
        self.included = self._arriving.included
        self._count = len(edges)
        on_returned = guarded_in_backward(self._on_returned)
        self._handles = [
            node.register_hook(functools.partial(on_returned, positions)) for node, positions in self._last_nodes(own)
        ]
        self._edges = {}  # edges keep nodes alive

    @property
    def are_expected(self) -> bool:
        """Whether some backward pass can reach the call."""
        return self._arriving.are_expected

    def take_unfinished(self) -> Gradients | None:
        """Return the output gradients of a backward pass that has entered the call and not left it: the call raised.

        None if there is no such pass.
        """
        for task, each in list(self._passes.items()):
            is_inside = any(one is not None for one in each.arrived) and all(one is None for one in each.returned)
            if is_inside and self._passes.pop(task, None) is not None:
                return each.arrived
        return None

    def _last_nodes(self, outputs: Sequence[object]) -> list[tuple[GradientNode, list[tuple[int, int]]]]:
        """Return the nodes of the call that pass gradients to its inputs.

        Each has pairs of the number of one of its gradients, and the position of the input that gets the gradient.
        """
        found: list[tuple[GradientNode, list[tuple[int, int]]]] = []
        ends = {node for node, _ in self._edges}
        seen = {node for each in outputs if (node := gradient_node_of(each)) is not None}
        left = list(seen)
        while left and len(seen) < _MAXIMUM_NODES:
            node = left.pop()
            positions = []
            for at, edge in enumerate(node.next_functions):
                if tuple(edge) in self._edges:
                    positions.append((at, self._edges[tuple(edge)]))
                elif edge[0] is not None and edge[0] not in seen and edge[0] not in ends:
                    seen.add(edge[0])
                    left.append(edge[0])
            if positions:
                found.append((node, positions))
        return found

    def _on_arrived(self, gradients: Gradients) -> None:
        self._of_this_pass().arrived = [None if each is None else each.detach() for each in gradients]

    def _on_returned(self, positions: Sequence[tuple[int, int]], given: Any, _: object) -> None:
        here = self._of_this_pass()
        with data_reading():
            for at, position in positions:
                gradient = given[at] if isinstance(given, tuple) else given
                if gradient is not None:
                    before = here.returned[position]
                    gradient = gradient.detach()
                    here.returned[position] = gradient.clone() if before is None else before + gradient

    def _of_this_pass(self) -> BackwardPass:
        task = current_pass()
        if task not in self._passes:
            self._passes[task] = BackwardPass([], [None] * self._count)
            at_end_of_pass(functools.partial(guarded_in_backward(self._finish), task))
        return self._passes[task]

    def _finish(self, task: int) -> None:
        """Report a pass that has ended, if a gradient has arrived at the call in it."""
        ended = self._passes.pop(task, None)
        if ended is not None and any(each is not None for each in ended.arrived):
            self._report(ended)


def _edge_of(value: object) -> Edge | None:
    torch = sys.modules["torch"]
    if not isinstance(value, torch.Tensor) or not value.requires_grad:
        return None
    edge = GRADIENTS.resolve(_EDGE)(value)
    return edge.node, edge.output_nr
