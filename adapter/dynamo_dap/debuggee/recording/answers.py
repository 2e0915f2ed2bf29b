"""The bodies of the requests about compiles, from what was recorded. Agent's reader thread."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from dynamo_dap.debuggee.agent.engine import NoSuchCompile
from dynamo_dap.debuggee.values.model import VirtualSource
from dynamo_dap.protocol.types import Source
from dynamo_dap.record.events import Record
from dynamo_dap.record.model import TRACING, Compile, CompiledFunction, Graph, Guard, Node
from dynamo_dap.record.texts import readable_graph

NOT_SHOWN: dict[type, tuple[str, ...]] = {
    CompiledFunction: (),
    Compile: ("guards", "values", "traced", "generated", "began"),
    Graph: ("nodes",),
}
"""What the body of ``dynamoCompiles`` leaves out of these: nodes and guards have requests of their own."""
ALWAYS_SHOWN: dict[type, tuple[str, ...]] = {
    CompiledFunction: ("compiles",),
    Compile: ("state", "attempts", "graphs", "breaks"),
}
"""What is there even where it is as it is by default."""


class GraphBody(msgspec.Struct, rename="camel", omit_defaults=True):
    """Body of ``GRAPH``."""

    name: str
    node_count: int
    is_final: bool
    """False while Dynamo is still tracing: more may follow."""
    nodes: list[Node]
    source: Source | None = None
    """The readable code of the graph, for the DAP request ``source``."""


class GuardsBody(msgspec.Struct, rename="camel"):
    """Body of ``GUARDS``."""

    count: int
    """How many there are; ``guards`` is cut off at a bound."""
    is_final: bool
    """False while Dynamo is still tracing."""
    guards: list[Guard]


def compiles_body(record: Record) -> dict[str, object]:
    """Return the body of ``dynamoCompiles``."""
    return record.read(lambda record: {"functions": _shown(record.functions)})


def _shown(value: Any) -> Any:
    if isinstance(value, list):
        return [_shown(one) for one in value]
    if type(value) not in NOT_SHOWN:
        return msgspec.to_builtins(value)
    hidden, always = NOT_SHOWN[type(value)], ALWAYS_SHOWN.get(type(value), ())
    return {
        name: _shown(getattr(value, field))
        for field, name in zip(value.__struct_fields__, value.__struct_encode_fields__, strict=True)
        if field not in hidden and (field in always or not _is_default(value, field))
    }


def _is_default(struct: msgspec.Struct, field: str) -> bool:
    index = struct.__struct_fields__.index(field) - len(struct.__struct_fields__)
    defaults = struct.__struct_defaults__
    value = getattr(struct, field)
    return value in (None, [], {}) or (-index <= len(defaults) and value == defaults[index])


def graph_body(record: Record, compile_id: str, index: int) -> tuple[GraphBody, VirtualSource]:
    """Return the body of ``dynamoGraph`` and the readable code.

    Raises:
        NoSuchCompile: there is none; the text says what there is.
    """
    compiled, graph = record.read(lambda record: _graph(record, compile_id, index))
    return graph_answer(graph, compiled, compile_id, is_final=True)


def graph_answer(
    graph: Graph, compiled: Compile, compile_id: str, *, is_final: bool
) -> tuple[GraphBody, VirtualSource]:
    """Return the body of ``dynamoGraph`` and the readable code; that of a graph being traced is of this pause only."""
    source = VirtualSource(
        name=f"{graph.name} of {compiled.name} [{compile_id}].py",
        text=lambda: readable_graph(graph, compiled.name),
        key=("recorded graph", compile_id, graph.index, id(graph)) if is_final else None,
    )
    return GraphBody(graph.name, graph.node_count, is_final, list(graph.nodes)), source


def _graph(record: Record, compile_id: str, index: int) -> tuple[Compile, Graph]:
    compiled = _found(record, compile_id)
    if not 0 <= index < len(compiled.graphs):
        count = len(compiled.graphs)
        has = "no graph yet" if compiled.state == TRACING else "no graph" if count == 0 else f"{count} graph(s)"
        raise NoSuchCompile(f"compile {compile_id} has {has}; there is no graph {index}")
    return compiled, compiled.graphs[index]


def guards_body(record: Record, compile_id: str) -> GuardsBody:
    """Return the body of ``dynamoGuards``.

    Raises:
        NoSuchCompile: there is no such compile.
    """

    def read(record: Record) -> GuardsBody:
        compiled = _found(record, compile_id)
        return guards_answer(compiled.guard_count, compiled.guards, is_final=compiled.state != TRACING)

    return record.read(read)


def guards_answer(count: int, guards: Sequence[Guard], *, is_final: bool = False) -> GuardsBody:
    """Return the body of ``dynamoGuards``."""
    return GuardsBody(count, is_final, list(guards))


def _found(record: Record, compile_id: str) -> Compile:
    compiled = record.find(compile_id)
    if compiled is None:
        known = ", ".join(one.id for _, one in record.compiles()) or "none"
        raise NoSuchCompile(f"there is no compile {compile_id}; there are: {known}")
    return compiled
