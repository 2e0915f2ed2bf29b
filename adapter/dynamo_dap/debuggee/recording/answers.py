"""The bodies of the requests about compiles, from what was recorded. Agent's reader thread."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from dynamo_dap.debuggee.agent.handlers.compiles import NoSuchCompile
from dynamo_dap.debuggee.values.model import VirtualSource
from dynamo_dap.record.model import TRACING, Compile, CompiledFunction, Graph, Guard
from dynamo_dap.record.readable_graph import readable_graph
from dynamo_dap.record.session import Session

_NOT_SHOWN = ("guards", "values", "traced", "generated", "began")


def compiles_body(session: Session) -> dict[str, object]:
    """Return the body of ``dynamoCompiles``: everything but nodes and guards, which have requests of their own."""
    return session.read(lambda session: {"functions": [_function(one) for one in session.functions]})


def _function(function: CompiledFunction) -> dict[str, Any]:
    shown = [_compile(one) for one in function.compiles]
    return {**_fields(function, "compiles"), "compiles": shown}


def _compile(compiled: Compile) -> dict[str, Any]:
    graphs = [_fields(graph, "nodes") for graph in compiled.graphs]
    # These are always there, empty or not.
    always = {"state": compiled.state, "graphs": graphs, "breaks": msgspec.to_builtins(compiled.breaks)}
    attempts = msgspec.to_builtins(compiled.attempts)
    fields = _fields(compiled, *_NOT_SHOWN)
    return {**fields, **always, "attempts": attempts}


def _fields(struct: msgspec.Struct, *leaving_out: str) -> dict[str, Any]:
    return {
        name: msgspec.to_builtins(getattr(struct, field))
        for field, name in zip(struct.__struct_fields__, struct.__struct_encode_fields__, strict=True)
        if field not in leaving_out and not _is_default(struct, field)
    }


def _is_default(struct: msgspec.Struct, field: str) -> bool:
    index = struct.__struct_fields__.index(field) - len(struct.__struct_fields__)
    defaults = struct.__struct_defaults__
    value = getattr(struct, field)
    return value in (None, [], {}) or (-index <= len(defaults) and value == defaults[index])


def graph_body(session: Session, compile_id: str, index: int) -> tuple[dict[str, object], VirtualSource]:
    """Return the body of ``dynamoGraph`` and the readable code.

    Raises:
        NoSuchCompile: there is none; the text says what there is.
    """
    compiled, graph = session.read(lambda session: _graph(session, compile_id, index))
    return graph_answer(graph, compiled, compile_id, is_final=True)


def graph_answer(
    graph: Graph, compiled: Compile, compile_id: str, *, is_final: bool
) -> tuple[dict[str, object], VirtualSource]:
    """Return the body of ``dynamoGraph`` and the readable code; that of a graph being traced is of this pause only."""
    source = VirtualSource(
        name=f"{graph.name} of {compiled.name} [{compile_id}].py",
        text=lambda: readable_graph(graph, compiled.name),
        key=("recorded graph", compile_id, graph.index, id(graph)) if is_final else None,
    )
    nodes = [msgspec.to_builtins(node) for node in graph.nodes]
    return {"name": graph.name, "nodeCount": graph.node_count, "isFinal": is_final, "nodes": nodes}, source


def _graph(session: Session, compile_id: str, index: int) -> tuple[Compile, Graph]:
    compiled = _found(session, compile_id)
    if not 0 <= index < len(compiled.graphs):
        count = len(compiled.graphs)
        has = "no graph yet" if compiled.state == TRACING else "no graph" if count == 0 else f"{count} graph(s)"
        raise NoSuchCompile(f"compile {compile_id} has {has}; there is no graph {index}")
    return compiled, compiled.graphs[index]


def guards_body(session: Session, compile_id: str) -> dict[str, object]:
    """Return the body of ``dynamoGuards``.

    Raises:
        NoSuchCompile: there is no such compile.
    """

    def read(session: Session) -> dict[str, object]:
        compiled = _found(session, compile_id)
        return guards_answer(compiled.guard_count, compiled.guards, is_final=compiled.state != TRACING)

    return session.read(read)


def guards_answer(count: int, guards: Sequence[Guard], *, is_final: bool = False) -> dict[str, object]:
    """Return the body of ``dynamoGuards``."""
    return {"guards": msgspec.to_builtins(guards), "count": count, "isFinal": is_final}


def _found(session: Session, compile_id: str) -> Compile:
    compiled = session.find(compile_id)
    if compiled is None:
        known = ", ".join(one.id for _, one in session.compiles()) or "none"
        raise NoSuchCompile(f"there is no compile {compile_id}; there are: {known}")
    return compiled
