"""Calls of functions whose graphs a wrong compiler has compiled, to be compared in the test's own process.

Dynamo traces each function. Backends that replace operations of its graph, by name, stand for wrong compilers.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch._dynamo

from dynamo_dap.debuggee.numerics.faults.comparisons import Comparison
from dynamo_dap.debuggee.numerics.graphs.memory_runs import compiled_by
from dynamo_dap.debuggee.replay.replayed_graph import ReplayedGraph
from dynamo_dap.debuggee.torch_api.isolation import random_state, random_states
from dynamo_dap.debuggee.torch_api.traced.replays import CachedCall

Backend = Callable[[Any, Sequence[Any]], Callable[..., Any]]
Change = Callable[..., Any]


def wrong(
    changes: dict[str, Change], when: Callable[[Any, Sequence[Any]], bool] = lambda module, given: True
) -> Backend:
    """Return a backend that calls other functions for the nodes in ``changes``, in graphs that ``when`` accepts."""

    def compile_wrongly(module: Any, given: Sequence[Any]) -> Callable[..., Any]:
        bodies = [each for each in module.modules() if hasattr(each, "graph")] if when(module, given) else []
        for each in bodies:
            for node in each.graph.nodes:
                if node.name in changes:
                    node.op, node.target = "call_function", changes[node.name]
            each.recompile()
        return module.forward

    return compile_wrongly


def traced(function: Callable[..., Any], given: Sequence[Any], backend: Backend) -> ReplayedGraph:
    """Return Dynamo's graph of a function."""
    graphs: list[ReplayedGraph] = []

    def take(module: Any, _: object) -> Callable[..., Any]:
        graphs.append(replayed(module, function.__code__, backend))
        return module.forward

    torch._dynamo.reset()
    with contextlib.suppress(RuntimeError):  # the call may fail, since its custom operator may be wrong
        torch.compile(function, backend=take, fullgraph=True)(*copies(given))
    return graphs[0]


def replayed(module: Any, code: Any, backend: Backend) -> ReplayedGraph:
    """Return a graph, as a replay of a call of ``code`` returns it."""
    return ReplayedGraph(module, {}, CachedCall(code, sys._getframe(), {}, (), "0/0", backend, None))


def copies(given: Sequence[Any]) -> list[Any]:
    """Return copies of the tensors among inputs."""
    return [
        each.detach().clone().requires_grad_(each.requires_grad) if isinstance(each, torch.Tensor) else each
        for each in given
    ]


class Call:
    """A call of a compiled function, or of a compiled graph."""

    def __init__(
        self,
        function: Any,
        *given: Any,
        backend: Backend | None = None,
        traced_with: Sequence[Any] | None = None,
        outputs: Sequence[Any] | None = None,
        **changes: Change,
    ) -> None:
        """Compile the graph by ``backend``, or by one that makes ``changes``, and call it with ``given``.

        ``outputs`` are the outputs of the compiled graph, instead of a call of it.
        """
        self._backend = wrong(changes) if backend is None else backend
        if isinstance(function, torch.fx.GraphModule):
            self.graph = replayed(function, Call.__init__.__code__, self._backend)
        else:
            self.graph = traced(function, given if traced_with is None else traced_with, self._backend)
        self.graph.take_attributes()
        self.graph.take_inputs(given)
        self._random = tuple(random_states())
        self.after = copies(given)
        """The inputs after the call."""
        if outputs is None:
            compiled: Any = compiled_by(self._backend, self.graph.module, copies(given))
            outputs = list(compiled(*self.after))
        self._outputs = outputs
        self.random_after = random_state()

    def compared(self, *, may_fail: bool = False) -> Comparison:
        """Compare the call with a run of Dynamo's graph."""
        for restore in self._random:
            restore()
        return Comparison(self.graph, self._outputs, self._backend, self._random, may_fail=may_fail)


def compared(function: Any, *given: Any, **options: Any) -> Comparison:
    """Compare a call; the arguments are those of ``Call``."""
    return Call(function, *given, **options).compared()
