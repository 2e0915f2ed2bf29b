"""What torch.compile made, as a program reads it in a ``Recording``: plain values that stay as they are.

Their names are part of the public interface: see docs/breaks-and-recompiles.md, "In a program". Pure, but for reading
the user's lines.
"""

from __future__ import annotations

import linecache
from collections.abc import Iterator
from dataclasses import dataclass, field

from dynamo_dap.checking.findings import SKIPPED, Finding, findings_in
from dynamo_dap.records import model
from dynamo_dap.records.events import Record
from dynamo_dap.records.items import Kind
from dynamo_dap.records.texts import readable_graph, recorded_line, source_line


@dataclass(frozen=True)
class AtLine:
    """Base of what is at a line of the user's."""

    path: str | None
    """The file, or Jupyter's name of a cell; None for what is at no line, as is ``line`` then."""
    line: int | None
    source: str
    """The text of the line; empty if it cannot be read, or was changed since."""


@dataclass(frozen=True)
class Graph:
    """A graph that was given to the backend."""

    function: str
    compile_id: str
    operations: int
    """Its calls of functions: what ``torch._dynamo.explain`` counts as ops."""
    nodes: int
    _graph: model.Graph = field(repr=False, compare=False)

    @property
    def code(self) -> str:
        """The graph as Python, each operation under the user's line that it came from."""
        return readable_graph(self._graph, self.function)


@dataclass(frozen=True)
class Compile(AtLine):
    """One compile, of a function or of its rest after a graph break; it is at the line where that begins."""

    id: str
    """Torch's: ``0/1``; with ``#2`` behind it when there was another of that name before ``torch.compiler.reset()``."""
    function: str
    """The user's: ``Model.forward``."""
    name: str
    """The same, or the rest of it that was compiled: ``Model.forward (resumed at line 8)``."""
    backend: str | None
    state: str
    """``compiled``, ``skipped``, ``failed``, or ``tracing`` while it goes on."""
    problem: str | None
    """Why it was skipped, or failed."""
    graphs: tuple[Graph, ...]
    seconds: float | None
    """None while it goes on."""


@dataclass(frozen=True)
class Break(AtLine):
    """A graph break: a line that Dynamo could not trace; met in many compiles it is one."""

    function: str
    """Which the line is in, also if that was inlined into another."""
    reason: str
    """Torch's name of the kind of break."""
    details: tuple[str, ...]
    """What there is to say of it: an explanation, what was cut, through which calls."""
    hints: tuple[str, ...]
    link: str | None
    """Torch's page about it."""


@dataclass(frozen=True)
class FailedGuard(AtLine):
    """A guard of an earlier compile that did not hold; it is at the line that had asked for the guard."""

    compile_id: str
    """The earlier compile."""
    guard: str
    """In torch's words."""
    text: str
    """As a person says it."""
    then: str | None
    """What was compiled for, if that is a value."""
    now: str | None


@dataclass(frozen=True)
class Recompile(AtLine):
    """A function was compiled again since no compile that there was served the call; it is at the function's line."""

    function: str
    compile_id: str
    """The new compile."""
    failed: tuple[FailedGuard, ...]
    """One for each compile that there was, the newest first."""
    seconds: float | None
    """What the new compile took."""


@dataclass(frozen=True)
class Skip(AtLine):
    """A function that Dynamo does not trace; it is at the function's line."""

    function: str
    reason: str


@dataclass(frozen=True)
class Recorded:
    """Everything, as it was at one time."""

    compiles: tuple[Compile, ...]
    breaks: tuple[Break, ...]
    recompiles: tuple[Recompile, ...]
    skips: tuple[Skip, ...]


def recorded_in(record: Record) -> Recorded:
    """Return the contents of a record. Inside ``Record.read``, or when the record no longer changes."""
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
        text=failure.text or _with_values(failure),
        then=failure.value_then,
        now=failure.value_now,
    )


def _with_values(failure: model.GuardFailure) -> str:
    then, now = failure.value_then, failure.value_now
    return failure.expression + (f" (it was {then}, and is {now})" if then is not None and now is not None else "")


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
    """Whether it is a cell of a notebook, whose text stays what it was: an edited cell gets another name."""
    known = linecache.cache.get(path)
    # Files have a time here, what is in memory has none.
    return known is not None and len(known) > 1 and known[1] is None
