"""Runs the bodies of higher-order operators node by node, while a graph runs that calls the operators.

Such operators are ``checkpoint``, ``cond``, ``while_loop`` and ``autograd.Function``. A body is a module of the graph;
the operator decides how often its body runs. Runs on the calling thread; nothing outlives the run.
"""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from dynamo_dap.debuggee.torch_api.objects import GraphModule, Node
from dynamo_dap.debuggee.torch_api.swaps import Swap

Observer = Callable[[Node, Mapping[Node, object]], None]
"""Called with each node that has run, and the results so far by node."""
RunBody = Callable[[Any, tuple[object, ...]], object]
"""Called with a body and its operands; returns the body's outputs."""


@contextlib.contextmanager
def with_bodies_run_by(module: GraphModule, run: RunBody) -> Iterator[None]:
    """Let ``run`` execute the bodies of ``module`` inside this context. ``module`` must not be the program's graph."""
    names = {node.target for node in module.graph.nodes if node.op == "get_attr" and "." not in node.target}
    bodies = {name: body for name in names if hasattr(body := getattr(module, name, None), "graph")}
    with Swap() as swap:
        for name, body in bodies.items():
            swap.set(module, name, calling(body, functools.partial(run, body)))
        yield


def calling(body: Any, run: Callable[[tuple[object, ...]], object]) -> object:
    """Return a graph that replaces ``body``; its only operation calls ``run``.

    A function would not do: some operators interpret the graph of their body instead of calling it.
    """
    torch = sys.modules["torch"]

    def run_body(*operands: object) -> object:
        return run(operands)

    graph = torch.fx.Graph()
    operands = [graph.placeholder(node.name) for node in body.graph.nodes if node.op == "placeholder"]
    graph.output(graph.call_function(run_body, tuple(operands)))
    calling = torch.fx.GraphModule(torch.nn.Module(), graph)
    calling.meta.update(body.meta)
    return calling


def run_observed(body: GraphModule, operands: tuple[object, ...], observer: Observer) -> object:
    """Run a body, and report each node to ``observer``."""
    return _interpreter()(body, observer).run(*operands)


@functools.cache
def _interpreter() -> Any:
    base: Any = sys.modules["torch"].fx.Interpreter

    class Observing(base):  # type: ignore[misc]  # the base is known at run time
        def __init__(self, body: object, observer: Observer) -> None:
            super().__init__(body, garbage_collect_values=False)
            self._observer = observer

        def run_node(self, node: Node) -> object:
            self.env[node] = result = super().run_node(node)
            self._observer(node, self.env)
            return result

    return Observing
