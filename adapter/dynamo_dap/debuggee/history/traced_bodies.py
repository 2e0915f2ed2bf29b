"""Keeps the trace of a higher-order operator's body as it was before torch made an operand of it.

At the end of the body of ``torch.cond``, checkpointing, ``map`` and others, torch rebuilds the body's graph (inputs are
ordered, replaced and added) and binds the body's results to the operator's. For steps back into the body, this module
keeps the graph and the values that the body had after its last instruction. Runs on the tracing thread; lives as long
as the trace's log (``state_log``).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from dynamo_dap.debuggee.torch_api.objects import Graph, Node, Tracer
from dynamo_dap.debuggee.torch_api.swaps import refill
from dynamo_dap.debuggee.torch_api.traced.trace_state import reachable_from
from dynamo_dap.debuggee.torch_api.traced.variable_trackers import is_tracker, node_of


def values_in(graph: Graph, roots: Iterable[object]) -> list[object]:
    """Return the trackers of graph values that are reachable from ``roots``."""
    found = (each for each in reachable_from(list(roots)) if is_tracker(each))
    return [each for each in found if getattr(node_of(each), "graph", None) is graph]


class _PastNode(NamedTuple):
    node: Node
    fields: dict[str, object]
    users: dict[object, None]
    """The former entries of ``users``."""
    operands: dict[object, None]
    """The former entries of ``_input_nodes``."""


_FIELDS = ("name", "_args", "_kwargs", "_input_nodes", "users", "meta", "_erased")


class BodyGraph:
    """A body's nodes, their order and operands, and its captured values."""

    def __init__(self, tracer: Tracer, also: Iterable[Node] = ()) -> None:
        """Copy the graph of ``tracer`` (torch's ``SubgraphTracer``), and the state of the removed nodes ``also``."""
        self._tracer = tracer
        self._order = list(tracer.graph.nodes)
        self._nodes = [_note(each) for each in {**dict.fromkeys(self._order), **dict.fromkeys(also)}]
        self._captured = {name: dict(getattr(tracer, name)) for name in _CAPTURED if hasattr(tracer, name)}

    def swapped(self) -> BodyGraph:
        """Restore this state, and return the graph's present one."""
        now = BodyGraph(self._tracer, (each.node for each in self._nodes))
        graph = self._tracer.graph
        # A node's own ``__setattr__`` would notify listeners for changes of the graph.
        for then in self._nodes:
            for name, value in then.fields.items():
                object.__setattr__(then.node, name, value)
            refill(then.fields["users"], then.users)
            refill(then.fields["_input_nodes"], then.operands)
        before = graph._root
        for each in self._order:
            before._next, each._prev = each, before
            before = each
        before._next, graph._root._prev = graph._root, before
        graph._len = len(self._order)
        for name, captured in self._captured.items():
            refill(getattr(self._tracer, name), captured)
        return now


_CAPTURED = ("lifted_freevars", "input_name_to_proxy")


def _note(node: Node) -> _PastNode:
    fields = {name: getattr(node, name) for name in _FIELDS}
    return _PastNode(node, fields, dict(fields["users"]), dict(fields["_input_nodes"]))
