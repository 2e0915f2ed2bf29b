"""Defines the facts about compiles in a ``Recording``, as plain values that do not change.

Their names are part of the public interface: see docs/breaks-and-recompiles.md, "In a program". The module reads source
files, and has no other side effects.
"""

from __future__ import annotations

import linecache
from collections.abc import Iterator
from dataclasses import dataclass, field

from dynamo_dap.checking.findings import SKIPPED, Finding, findings_in
from dynamo_dap.records import model
from dynamo_dap.records.advice.items import Kind
from dynamo_dap.records.advice.raced_compiles import accepts_now, failure_text
from dynamo_dap.records.events import Record
from dynamo_dap.records.texts import readable_graph, recorded_line, source_line


@dataclass(frozen=True)
class AtLine:
    """Base of everything at a user's line."""

    path: str | None
    """The file, or Jupyter's name of a cell. It and ``line`` are None if the place is unknown."""
    line: int | None
    source: str
    """The line's text; empty if it is unreadable or has changed."""


@dataclass(frozen=True)
class Graph:
    """A graph that Dynamo passed to the backend."""

    function: str
    compile_id: str
    operations: int
    """The number of its operations: the ops that ``torch._dynamo.explain`` counts."""
    nodes: int
    _graph: model.Graph = field(repr=False, compare=False)

    @property
    def code(self) -> str:
        """The graph as Python, each operation below its user's line."""
        return readable_graph(self._graph, self.function)


@dataclass(frozen=True)
class Compile(AtLine):
    """One compile of a function or resume function, at its first line."""

    id: str
    """Torch's id, ``0/1``; ``0/1#2`` if it is used again after ``torch.compiler.reset()``."""
    function: str
    """The user's function: ``Model.forward``."""
    name: str
    """The user's function, or its compiled resume function: ``Model.forward (resumed at line 8)``."""
    backend: str | None
    state: str
    """``compiled``, ``skipped``, ``failed``, or ``tracing`` until it ends."""
    problem: str | None
    """Why it was skipped or failed."""
    graphs: tuple[Graph, ...]
    seconds: float | None
    """None until it ends."""


@dataclass(frozen=True)
class Break(AtLine):
    """A graph break: a line that Dynamo could not trace, listed once for all compiles."""

    function: str
    """The function of the line, even if it was inlined."""
    reason: str
    """Torch's short reason, the same in every run."""
    details: tuple[str, ...]
    """All facts about it: an explanation, the functions that it cuts, the calls that lead to it."""
    hints: tuple[str, ...]
    link: str | None
    """Torch's page about it."""


@dataclass(frozen=True)
class FailedGuard(AtLine):
    """A failed guard of an earlier compile, at the line that caused the guard."""

    compile_id: str
    """The earlier compile."""
    guard: str
    """The guard in torch's words."""
    text: str
    """The guard in plain words."""
    then: str | None
    """The guarded value at the earlier compile, if known; ``now`` is the new value."""
    now: str | None


@dataclass(frozen=True)
class Recompile(AtLine):
    """A compile for a call that no earlier compile of the function fits, at the function's line."""

    function: str
    compile_id: str
    """The new compile."""
    failed: tuple[FailedGuard, ...]
    """One for each earlier compile, the newest first."""
    seconds: float | None
    """Duration of the new compile."""


@dataclass(frozen=True)
class Skip(AtLine):
    """A function that Dynamo does not trace, at its first line."""

    function: str
    reason: str


@dataclass(frozen=True)
class Recorded:
    """A snapshot of the contents of a record."""

    compiles: tuple[Compile, ...]
    breaks: tuple[Break, ...]
    recompiles: tuple[Recompile, ...]
    skips: tuple[Skip, ...]


def recorded_in(record: Record) -> Recorded:
    """Return the contents of a record. Call it inside ``Record.read``, or when the record is complete."""
    findings = findings_in([record], None).findings
    skipped = (one for one in findings if one.kind == SKIPPED)
    return Recorded(
        tuple(_compiles(record)),
        tuple(_break(record, one) for one in findings if one.kind == Kind.BREAK.value),
        tuple(_recompiles(record)),
        tuple(Skip(*_line_of_finding(record, one), one.function, one.reason) for one in skipped),
    )


def _compiles(record: Record) -> Iterator[Compile]:
    for function, made in record.compiles():
        graphs = (
            Graph(function.name, made.id, graph.operation_count, graph.node_count, graph) for graph in made.graphs
        )
        yield Compile(
            *_line(record, made.place),
            id=made.id,
            function=function.name,
            name=made.name,
            backend=made.backend,
            state=made.state,
            problem=made.problem,
            graphs=tuple(graphs),
            seconds=made.seconds,
        )


def _break(record: Record, found: Finding) -> Break:
    return Break(
        *_line_of_finding(record, found),
        function=found.function,
        reason=found.reason,
        details=tuple(found.details),
        hints=tuple(found.hints),
        link=found.link,
    )


def _recompiles(record: Record) -> Iterator[Recompile]:
    for function, made in record.compiles():
        if made.failures:
            failed = tuple(_failed_guard(record, one) for one in made.failures)
            yield Recompile(*_line(record, made.place), function.name, made.id, failed, made.seconds)


def _failed_guard(record: Record, failure: model.GuardFailure) -> FailedGuard:
    return FailedGuard(
        *_line(record, failure.place),
        compile_id=failure.compile_id,
        guard=failure.expression,
        text=failure_text(failure) if accepts_now(failure.expression) else failure.text or _with_values(failure),
        then=failure.value_then,
        now=failure.value_now,
    )


def _with_values(failure: model.GuardFailure) -> str:
    then, now = failure.value_then, failure.value_now
    return failure.expression + (f" (was {then}, is {now})" if then is not None and now is not None else "")


def _line_of_finding(record: Record, found: Finding) -> tuple[str | None, int | None, str]:
    return _line(record, None if found.path is None else model.Place(found.path, found.line or 1))


def _line(record: Record, place: model.Place | None) -> tuple[str | None, int | None, str]:
    if place is None:
        return None, None, ""
    text = recorded_line(record.sources, place)
    if not text and not record.sources.get(place.path) and _is_in_memory_alone(place.path):
        text = source_line(place.path, place.line)
    return place.path, place.line, text


def _is_in_memory_alone(path: str) -> bool:
    """Return whether ``path`` names a notebook cell. Its text never changes: an edited cell gets another name."""
    known = linecache.cache.get(path)
    # The entry of a file has a modification time; that of text in memory has None.
    return known is not None and len(known) > 1 and known[1] is None
