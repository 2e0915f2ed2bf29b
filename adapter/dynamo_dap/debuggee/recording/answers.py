"""Makes the bodies of requests about compiles from the record. Runs on the agent's reader thread."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from dynamo_dap.debuggee.agent.engine import NoSuchCompile
from dynamo_dap.debuggee.bytecode.exact_types import is_exactly
from dynamo_dap.debuggee.values.model import VirtualSource
from dynamo_dap.explore.model import Document, Explored, Part
from dynamo_dap.protocol.wire.types import Source
from dynamo_dap.records.events import Record
from dynamo_dap.records.model import TRACING, Compile, CompiledFunction, Graph, Guard, Node, Place, StackLine
from dynamo_dap.records.texts import readable_graph

NOT_SHOWN: dict[type, tuple[str, ...]] = {
    CompiledFunction: (),
    Compile: ("guards", "values", "traced", "generated", "began"),
    Graph: ("nodes",),
}
"""Fields that the body of ``dynamoCompiles`` omits: nodes and guards have their own requests."""
ALWAYS_SHOWN: dict[type, tuple[str, ...]] = {
    CompiledFunction: ("compiles",),
    Compile: ("state", "attempts", "graphs", "breaks"),
}
"""Fields that the body has even with their default values."""


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
    """How many there are; ``guards`` contains them up to a bound."""
    is_final: bool
    """False while Dynamo is still tracing."""
    guards: list[Guard]


class StageBody(msgspec.Struct, rename="camel", omit_defaults=True):
    """One stage of a compile, with the source of its text."""

    id: str
    title: str
    operations: int
    """The number of parts that compute something."""
    source: Source | None
    before: Source | None = None
    """The text before this stage's passes; missing if no passes ran."""
    lost: list[str] = []
    """Operations whose user line is unknown."""
    parts: list[Part] = []
    places: list[StackLine] = []


class ExploredBody(msgspec.Struct, rename="camel"):
    """A compile and its stages, in order."""

    id: str
    name: str
    place: Place
    stages: list[StageBody]


class StagesBody(msgspec.Struct):
    """Body of ``STAGES``."""

    compiles: list[ExploredBody]


SourceOf = Callable[[VirtualSource], Source | None]


def stages_body(explored: Sequence[Explored], compile_id: str | None, source_of: SourceOf) -> StagesBody:
    """Return the body of ``dynamoStages``.

    Raises:
        NoSuchCompile: the compile was not explored; the text says which were.
    """
    found = [one for one in explored if compile_id in (None, one.id)]
    if compile_id is not None and not found:
        known = ", ".join(one.id for one in explored) or "none"
        raise NoSuchCompile(f"compile {compile_id} was not explored; these were: {known}")
    has_parts = compile_id is not None
    bodies = [[_stage(one, document, source_of, has_parts=has_parts) for document in one.documents] for one in found]
    return StagesBody(
        [ExploredBody(one.id, one.name, one.place, stages) for one, stages in zip(found, bodies, strict=True)]
    )


def _stage(compiled: Explored, document: Document, source_of: SourceOf, *, has_parts: bool) -> StageBody:
    before = document.before
    return StageBody(
        id=document.id,
        title=document.title,
        operations=document.operations,
        source=_source(compiled, document, document.text, "", source_of),
        before=None if before is None else _source(compiled, document, before, ", before", source_of),
        lost=document.lost if has_parts else [],
        parts=document.parts if has_parts else [],
        places=document.places if has_parts else [],
    )


def _source(compiled: Explored, document: Document, text: str, which: str, source_of: SourceOf) -> Source | None:
    suffix, mime_type = _SHOWN_AS.get(document.language, (".txt", "text/plain"))
    name = f"{document.id} of {compiled.name} [{compiled.id}]{which}{suffix}"
    return source_of(
        VirtualSource(name, lambda: text, mime_type, key=("stage", compiled.id, document.id, which, hash(text)))
    )


_SHOWN_AS = {"python": (".py", "text/x-python"), "cpp": (".cpp", "text/x-cpp")}


def compiles_body(record: Record) -> dict[str, object]:
    """Return the body of ``dynamoCompiles``."""
    return record.read(lambda record: {"functions": _shown(record.functions)})


def _shown(value: Any) -> object:
    if isinstance(value, list):
        return [_shown(one) for one in value]
    if not is_exactly(value, NOT_SHOWN):
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
        NoSuchCompile: the compile or the graph is unknown; the text says which exist.
    """
    compiled, graph = record.read(lambda record: _graph(record, compile_id, index))
    return graph_answer(graph, compiled, compile_id, is_final=True)


def code_of_graph(record: Record, compile_id: str, function: str) -> str | None:
    """Return the readable code of a compile's graph: empty if it has no graph, None while the graph is unknown.

    Torch repeats ids after ``torch.compiler.reset()``: this is the last compile of ``function`` with the id.
    """

    def read(record: Record) -> str | None:
        named = [one for _, one in record.compiles() if one.name == function]
        compiled = next((one for one in reversed(named) if one.id.partition("#")[0] == compile_id), None)
        if compiled is None or compiled.is_shortened or (compiled.state == TRACING and not compiled.graphs):
            return None
        return readable_graph(compiled.graphs[-1], compiled.name) if compiled.graphs else ""

    return record.read(read)


def graph_answer(
    graph: Graph, compiled: Compile, compile_id: str, *, is_final: bool
) -> tuple[GraphBody, VirtualSource]:
    """Return the body of ``dynamoGraph`` and the readable code; a graph in progress belongs only to this pause."""
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
        raise NoSuchCompile(f"unknown graph {index}: compile {compile_id} has {has}")
    return _whole(compiled), compiled.graphs[index]


def _whole(compiled: Compile) -> Compile:
    if compiled.is_shortened:
        raise NoSuchCompile(
            f"nodes and guards of compile {compiled.id} were dropped after too many later compiles; "
            "the record file still has them, if one was written"
        )
    return compiled


def guards_body(record: Record, compile_id: str) -> GuardsBody:
    """Return the body of ``dynamoGuards``.

    Raises:
        NoSuchCompile: the compile is unknown, or its guards were dropped.
    """

    def read(record: Record) -> GuardsBody:
        compiled = _whole(_found(record, compile_id))
        return guards_answer(compiled.guard_count, compiled.guards, is_final=compiled.state != TRACING)

    return record.read(read)


def guards_answer(count: int, guards: Sequence[Guard], *, is_final: bool = False) -> GuardsBody:
    """Return the body of ``dynamoGuards``."""
    return GuardsBody(count, is_final, list(guards))


def _found(record: Record, compile_id: str) -> Compile:
    compiled = record.find(compile_id)
    if compiled is None:
        known = ", ".join(one.id for _, one in record.compiles()) or "none"
        raise NoSuchCompile(f"unknown compile {compile_id}; known: {known}")
    return compiled
