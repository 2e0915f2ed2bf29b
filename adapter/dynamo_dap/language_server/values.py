"""Makes inlay hints and hovers from the values that names had while Dynamo traced.

It has no side effects.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from weakref import WeakKeyDictionary

from lsprotocol.types import Hover, InlayHint, InlayHintKind, MarkupContent, MarkupKind, Range

from dynamo_dap.fixes.document import Document, Positions, real_path
from dynamo_dap.records.events import Record
from dynamo_dap.records.model import Compile, Guard, TracedValue

_SHOWN = 2
_ROWS = 12
_GUARDS = 8


class _Index:
    """Indexes the values in one version of a record by file: a record may have a hundred thousand values."""

    def __init__(self, record: Record) -> None:
        self.version = record.version
        self._values: dict[str, list[tuple[Compile, list[TracedValue]]]] = {}
        """The values of each compile, by the recorded path of the file."""
        self._functions: dict[str, set[tuple[int, int]]] = {}
        """First and last lines of traced functions, by the file's path."""
        self._guards: dict[int, dict[str, list[Guard]]] = {}
        """The guards, by the compile's identity and the first name of the guarded expression."""
        for _, compiled in record.compiles():
            for one in compiled.traced:
                lines = one.place.line, max(one.lines, default=one.place.line)
                self._functions.setdefault(one.place.path, set()).add(lines)
            by_path: dict[str, list[TracedValue]] = {}
            for value in compiled.values:
                found = by_path.get(value.place.path)
                if found is None:
                    found = by_path[value.place.path] = []
                found.append(value)
            for path, values in by_path.items():
                self._values.setdefault(path, []).append((compiled, values))

    def values(self, path: str) -> Iterator[tuple[Compile, list[TracedValue]]]:
        """Yield each compile's facts about a file, by its real path."""
        for recorded, found in self._values.items():
            if real_path(recorded) == path:
                yield from found

    def function_around(self, document: Document, line: int) -> range:
        """Return the present lines of the innermost traced function around a line; empty if there is none.

        The lines come from the record: the text may have syntax errors, and must not be parsed at each keystroke.
        """
        recorded = next((one for at in range(line, 0, -1) if (one := document.recorded(at)) is not None), None)
        around = [
            (first, last)
            for path, found in self._functions.items()
            if real_path(path) == document.path
            for first, last in found
            if recorded is not None and first <= recorded <= last
        ]
        now = [] if not around else [document.now(one) for one in range(*_inclusive(max(around)))]
        known = [one for one in now if one is not None]
        return range(*_inclusive((known[0], max(line, known[-1])))) if known else range(0)

    def guards(self, compiled: Compile, name: str) -> list[Guard]:
        """Return the guards on the variable with which ``name`` begins, and on its parts."""
        known = self._guards.get(id(compiled))
        if known is None:
            known = self._guards[id(compiled)] = {}
            for guard in compiled.guards:
                if guard.source:
                    known.setdefault(_first_name(guard.source), []).append(guard)
        return known.get(_first_name(name), [])


def _inclusive(lines: tuple[int, int]) -> tuple[int, int]:
    return lines[0], lines[1] + 1


_indices: WeakKeyDictionary[Record, _Index] = WeakKeyDictionary()


def _index_of(record: Record) -> _Index:
    known = _indices.get(record)
    if known is None or known.version != record.version:
        known = _indices[record] = _Index(record)
    return known


def make_ready(record: Record) -> None:
    """Prepare the answers to hovers and hints in advance."""
    _index_of(record)


def _first_name(source: str) -> str:
    match = _NAME.match(source)
    return match[0] if match else source


_NAME = re.compile(r"\w+")


def inlay_hints(record: Record, document: Document, positions: Positions, lines: range) -> list[InlayHint]:
    """Return shapes and dtypes for the assignments in some lines, from the last compile."""
    found: dict[tuple[int, int], list[list[tuple[Compile, TracedValue]]]] = {}
    """The values of each compile, by line and column."""
    last: dict[tuple[int, str], int] = {}
    """Each name's last assignment in a line: one hint is enough."""
    places: dict[tuple[int, str, int | None], tuple[int, int | None]] = {}
    now = document.recorded_in(lines)
    for compiled, values in _index_of(record).values(document.path):
        for value in values:
            place = value.place
            if place.line not in now or value.is_parameter or not value.has_tensor:
                continue
            key = place.line, value.name, place.column
            at = places.get(key)
            if at is None:
                line = now[place.line]
                at = places[key] = line, document.column_after(line, value.name, place.column)
            line, column = at
            if column is not None:
                last[line, value.name] = max(column, last.get((line, value.name), 0))
                of_compiles = found.setdefault((line, column), [])
                if not of_compiles or of_compiles[-1][0][0] is not compiled:
                    of_compiles.append([])
                of_compiles[-1].append((compiled, value))
    shown = {(line, column) for (line, _), column in last.items()}
    return [_hint(document, positions, at, of_compiles) for at, of_compiles in sorted(found.items()) if at in shown]


def _hint(
    document: Document, positions: Positions, at: tuple[int, int], compiles: list[list[tuple[Compile, TracedValue]]]
) -> InlayHint:
    texts = list(dict.fromkeys(value.text for _, value in compiles[-1]))
    label = " | ".join(texts[:_SHOWN]) + (" | …" if len(texts) > _SHOWN else "")
    rows: dict[str, None] = {}
    for compiled, value in (one for known in reversed(compiles) for one in reversed(known)):
        rows[f"- {_code(value.text)} in {_of(compiled)}"] = None
        if len(rows) == _ROWS:
            break
    return InlayHint(
        position=positions.position(document, *at),
        label=f": {label}",
        kind=InlayHintKind.Type,
        tooltip=MarkupContent(MarkupKind.Markdown, "\n".join(reversed(rows))),
    )


def hover(record: Record, document: Document, positions: Positions, line: int, column: int) -> Hover | None:
    """Return the facts about the name at a place: its values over the compiles, its source, its guards."""
    found = document.name_at(line, column)
    if found is None:
        return None
    name, start, end = found
    inside = _index_of(record).function_around(document, line)
    # Python normalizes names, and so does the record.
    name = unicodedata.normalize("NFKC", name)
    now = document.recorded_in(inside)
    values = [
        (compiled, value, now[value.place.line])
        for compiled, known in _index_of(record).values(document.path)
        for value in known
        if value.name == name and value.place.line in now
    ]
    guards = list(_guards(record, document, name, inside))
    if not values and not guards:
        return None
    text = "\n\n".join([f"**{_code(name)}** while Dynamo traced it", *_value_text(values), *_guard_text(guards)])
    at = Range(positions.position(document, line, start), positions.position(document, line, end))
    return Hover(MarkupContent(MarkupKind.Markdown, text), at)


def _value_text(values: list[tuple[Compile, TracedValue, int]]) -> Iterator[str]:
    known = {(one.text, one.is_parameter, line, id(compiled)): compiled for compiled, one, line in values}
    rows = [
        f"- {_code(text)} {'given to' if is_parameter else f'at line {line} in'} {_of(compiled)}"
        for (text, is_parameter, line, _), compiled in list(known.items())[-_ROWS:]
    ]
    if len(known) > _ROWS:
        rows.insert(0, f"- … {len(known) - _ROWS} earlier ones")
    if rows:
        yield "\n".join(rows)
    sources = list(dict.fromkeys(value.source for _, value, _ in values if value.source))
    if sources:
        yield f"Source: {', '.join(map(_code, sources[:_SHOWN]))}"


def _guards(record: Record, document: Document, name: str, inside: range) -> Iterator[tuple[Compile, Guard]]:
    index = _index_of(record)
    for function, compiled in record.compiles():
        at = document.line_of(function.place)
        for guard in index.guards(compiled, name) if at is not None and at in inside else ():
            source = guard.source or ""
            if source == name or source.startswith((f"{name}.", f"{name}[")):
                yield compiled, guard


def _guard_text(guards: list[tuple[Compile, Guard]]) -> Iterator[str]:
    groups: dict[tuple[str, str, str | None], tuple[Compile, list[str]]] = {}
    for one, guard in guards:
        groups.setdefault((one.id, guard.type, guard.source), (one, []))[1].append(guard.text or guard.expression)
    rows = [_guard_row(one, list(dict.fromkeys(expressions))) for one, expressions in groups.values()]
    if rows:
        more = [f"- … and {len(rows) - _GUARDS} more"] if len(rows) > _GUARDS else []
        yield "\n".join(["Guards:", "", *rows[:_GUARDS], *more])


def _guard_row(compiled: Compile, expressions: list[str]) -> str:
    """Return a row for the guards on one value: the first guard, and the number of others."""
    more = f" and {len(expressions) - 1} more" if len(expressions) > 1 else ""
    return f"- {_code(expressions[0])}{more} ({_of(compiled)})"


# -- Markdown: texts of a record are never formatting ---------------------------------------------------

_SPECIAL = re.compile(r"([\\`*_{}\[\]()#+\-.!<>|~&:])")
_HARMLESS = re.compile(r"[\w. ]+(?:\(resumed at line \d+\) )?\[[\w/#]+\]")
_TICKS = re.compile("`+")


def _of(compiled: Compile) -> str:
    return _plain(f"{compiled.name} [{compiled.id}]")


def _code(text: str) -> str:
    """Return a text as code, fenced by more backticks than it has in a row."""
    text = " ".join(text.split())
    fence = "`" * (max(map(len, _TICKS.findall(text)), default=0) + 1)
    padding = " " if text.startswith("`") or text.endswith("`") or not text else ""
    return f"{fence}{padding}{text}{padding}{fence}"


def _plain(text: str) -> str:
    """Return a text that Markdown shows unchanged: no link, no picture, no HTML."""
    return text if _HARMLESS.fullmatch(text) else _SPECIAL.sub(r"\\\1", " ".join(text.split()))
