"""Finds the operation at fault in the body of a higher-order operator whose result differs.

The body (``checkpoint``, ``autograd.Function.forward``) is changed to return the result of each of its operations as
well, in Dynamo's graph and in the compiled one. These results are compared. Runs on the calling thread.
"""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from dynamo_dap.debuggee.numerics.bodies import run_observed, with_bodies_run_by
from dynamo_dap.debuggee.numerics.differences import Difference, difference
from dynamo_dap.debuggee.replay.replays import ReplayedGraph
from dynamo_dap.debuggee.torch_api.graph import example_of, is_higher_order
from dynamo_dap.debuggee.torch_api.graph_runs import has_own_memory
from dynamo_dap.debuggee.torch_api.isolation import data_reading
from dynamo_dap.debuggee.torch_api.retracing import compile_by, compiling_apart_from_the_program
from dynamo_dap.debuggee.torch_api.tensor_facts import version_of

_PASSES_ON = ("tag_activation_checkpoint", "wrap", "autograd_function_apply", "invoke_subgraph")
"""Operators that return the results of their only body."""


class ComparedBody:
    """The body of one operator of a graph, in Dynamo's graph and in a compiled one."""

    def __init__(self, graph: ReplayedGraph, node: Any, random: Iterable[Callable[[], None]]) -> None:
        """Compare the operator of ``node``; ``node`` is the operator, or an item of its result."""
        self.operator = node.args[0] if node.target is operator.getitem else node
        self._graph = graph
        self._random = tuple(random)
        self._name = self._name_of_body()

    def _name_of_body(self) -> str | None:
        torch: Any = sys.modules["torch"]
        if not hasattr(self.operator, "all_input_nodes") or not is_higher_order(self.operator):
            return None
        if str(getattr(self.operator.target, "__name__", "")) not in _PASSES_ON:
            return None
        names = [each.target for each in self.operator.all_input_nodes if each.op == "get_attr"]
        bodies = [name for name in names if isinstance(getattr(self._graph.module, name, None), torch.fx.GraphModule)]
        return bodies[0] if len(bodies) == 1 else None

    def differences(self, backend: Any) -> dict[Any, tuple[Difference, Any]]:
        """Return for each operation of the body how its compiled result differs, and that result.

        Raises:
            Exception: whatever the backend raises.
        """
        if self._name is None:
            return {}
        expected = self._expected(getattr(self._graph.module, self._name))
        values = self._values_by(backend, list(expected)) if expected else []
        return {
            node: (difference(kept, value), value) for (node, kept), value in zip(expected.items(), values, strict=True)
        }

    def _expected(self, body: Any) -> dict[Any, Any]:
        """Return the result of each operation, unless a later one writes to it."""
        seen: dict[Any, tuple[Any, int, Any]] = {}

        def note(node: Any, results: Mapping[Any, Any]) -> None:
            value = results[node]
            if node.op.startswith("call_") and has_own_memory(value) and hasattr(example_of(node), "dtype"):
                with data_reading():
                    seen[node] = value, version_of(value), value.detach().clone()

        def run(each: Any, operands: tuple[Any, ...]) -> Any:
            return run_observed(each, operands, note) if each is body else each(*operands)

        with with_bodies_run_by(self._graph.module, run):
            for put_back in self._random:
                put_back()
            self._graph.run()
        return {node: kept for node, (value, version, kept) in seen.items() if version_of(value) == version}

    def _values_by(self, backend: Any, wanted: list[Any]) -> list[Any]:
        torch: Any = sys.modules["torch"]
        shorter = torch.fx.Graph()
        copies: dict[Any, Any] = {}
        nodes = self._graph.nodes
        last = nodes.index(self.operator)
        for position, node in enumerate(nodes):
            if node.op == "placeholder" or position <= last:
                copies[node] = shorter.node_copy(node, copies.__getitem__)
                copies[node].meta = {}
        module = torch.fx.GraphModule(self._graph.module, shorter)
        body, count = _longer(getattr(self._graph.module, self._name or ""), wanted)
        setattr(module, self._name or "", body)
        positions = range(count, count + len(wanted))
        of_operator = copies[self.operator]
        shorter.output(tuple(shorter.call_function(operator.getitem, (of_operator, at)) for at in positions))
        module.recompile()
        with compiling_apart_from_the_program():
            compiled = compile_by(backend, module, self._graph.fresh_inputs())
            for put_back in self._random:
                put_back()
            return list(compiled(*self._graph.fresh_inputs()))


def _longer(body: Any, wanted: list[Any]) -> tuple[Any, int]:
    """Return a body that also returns the results of ``wanted``, and the number of its own results before these."""
    torch: Any = sys.modules["torch"]
    copies: dict[Any, Any] = {}
    graph = torch.fx.Graph()
    results = graph.graph_copy(body.graph, copies)
    results = results if isinstance(results, tuple) else tuple(results) if isinstance(results, list) else (results,)
    graph.output((*results, *(copies[node] for node in wanted)))
    longer = torch.fx.GraphModule(body, graph)
    longer.meta.update(body.meta)
    return longer, len(results)
