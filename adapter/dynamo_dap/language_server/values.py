"""What names stood for while functions were traced: inlay hints at assignments, and hovers. Pure."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from weakref import WeakKeyDictionary

from lsprotocol.types import Hover, InlayHint, InlayHintKind, MarkupContent, MarkupKind, Range

from dynamo_dap.language_server.document import Document, first_line, real_path
from dynamo_dap.language_server.positions import Positions
from dynamo_dap.record.model import Compile, Guard, Value
from dynamo_dap.record.session import Session

_SHOWN = 2
_ROWS = 12
_GUARDS = 8


class _Index:
    """What one version of a session holds, by file and by name: a record has a hundred thousand values."""

    def __init__(self, session: Session) -> None:
        self.version = session.version
        self.values: dict[str, list[tuple[Compile, Value]]] = {}
        """By the real path of the file."""
        self.named: dict[tuple[str, str], list[tuple[Compile, Value]]] = {}
        """By that and the name."""
        self._guards: dict[int, dict[str, list[Guard]]] = {}
        """By the identity of the compile, and the name that they begin with."""
        for _, compiled in session.compiles():
            for value in compiled.values:
                path = real_path(value.place.path)
                self.values.setdefault(path, []).append((compiled, value))
                self.named.setdefault((path, value.name), []).append((compiled, value))

    def guards(self, compiled: Compile, name: str) -> list[Guard]:
        """Return the guards on what a name's first part stands for."""
        known = self._guards.get(id(compiled))
        if known is None:
            known = self._guards[id(compiled)] = {}
            for guard in compiled.guards:
                if guard.source:
                    known.setdefault(_first_name(guard.source), []).append(guard)
        return known.get(_first_name(name), [])


_indices: WeakKeyDictionary[Session, _Index] = WeakKeyDictionary()


def _index_of(session: Session) -> _Index:
    known = _indices.get(session)
    if known is None or known.version != session.version:
        known = _indices[session] = _Index(session)
    return known


def make_ready(session: Session) -> None:
    """Have the answers to hovers and hints at hand before they are asked for."""
    _index_of(session)


def _first_name(source: str) -> str:
    match = _NAME.match(source)
    return match[0] if match else source


_NAME = re.compile(r"\w+")


def _values_in(session: Session, document: Document, name: str | None = None) -> Iterator[tuple[Compile, Value, int]]:
    """Yield every value in a document, or those of one name: the compile, the value, and its line now."""
    index = _index_of(session)
    found = index.values.get(document.path) if name is None else index.named.get((document.path, name))
    for compiled, value in found or ():
        line = document.now(value.place.line)
        if line is not None:
            yield compiled, value, line


def inlay_hints(session: Session, document: Document, positions: Positions, lines: range) -> list[InlayHint]:
    """Return shapes and dtypes at the assignments of some lines, as the last compile had them."""
    found: dict[tuple[int, int], dict[Compile | int, list[tuple[Compile, Value]]]] = {}
    columns: dict[tuple[int, str], int] = {}
    """Where each name is assigned last in a line: one hint is enough."""
    for compiled, value, line in _values_in(session, document):
        if line not in lines or value.is_parameter or not value.has_tensor:
            continue
        column = document.column_after(line, value.name, value.place.column)
        if column is not None:
            columns[line, value.name] = max(column, columns.get((line, value.name), 0))
            found.setdefault((line, column), {}).setdefault(id(compiled), []).append((compiled, value))
    shown = {(line, column) for (line, _), column in columns.items()}
    return [
        _hint(document, positions, line, column, list(by_compile.values()))
        for (line, column), by_compile in sorted(found.items())
        if (line, column) in shown
    ]


def _hint(
    document: Document, positions: Positions, line: int, column: int, compiles: list[list[tuple[Compile, Value]]]
) -> InlayHint:
    texts = list(dict.fromkeys(value.text for _, value in compiles[-1]))
    label = " | ".join(texts[:_SHOWN]) + (" | …" if len(texts) > _SHOWN else "")
    rows = [f"- {_code(value.text)} in {_of(one)}" for known in compiles for one, value in known]
    return InlayHint(
        position=positions.position(document, line, column),
        label=f": {label}",
        kind=InlayHintKind.Type,
        tooltip=MarkupContent(MarkupKind.Markdown, "\n".join(list(dict.fromkeys(rows))[-_ROWS:])),
    )


def hover(session: Session, document: Document, positions: Positions, line: int, column: int) -> Hover | None:
    """Return what is known of the name at a place: values over the compiles, its source, the guards on it."""
    found = document.name_at(line, column)
    if found is None:
        return None
    name, start, end = found
    function = document.function_around(line)
    inside = range(first_line(function), (function.end_lineno or line) + 1) if function else range(0)
    # Python normalizes names, and the record has them as Python does.
    name = unicodedata.normalize("NFKC", name)
    values = [(one, value, at) for one, value, at in _values_in(session, document, name) if at in inside]
    guards = list(_guards(session, document, name, inside))
    if not values and not guards:
        return None
    text = "\n\n".join([f"**{_code(name)}** while Dynamo traced it", *_value_text(values), *_guard_text(guards)])
    at = Range(positions.position(document, line, start), positions.position(document, line, end))
    return Hover(MarkupContent(MarkupKind.Markdown, text), at)


def _value_text(values: list[tuple[Compile, Value, int]]) -> Iterator[str]:
    rows = [
        f"- {_code(value.text)} {'given to' if value.is_parameter else f'at line {line} in'} {_of(compiled)}"
        for compiled, value, line in values
    ]
    rows = list(dict.fromkeys(rows))
    if len(rows) > _ROWS:
        rows = [f"- … {len(rows) - _ROWS} earlier ones", *rows[-_ROWS:]]
    if rows:
        yield "\n".join(rows)
    sources = list(dict.fromkeys(value.source for _, value, _ in values if value.source))
    if sources:
        yield f"Source: {', '.join(map(_code, sources[:_SHOWN]))}"


def _guards(session: Session, document: Document, name: str, inside: range) -> Iterator[tuple[Compile, Guard]]:
    index = _index_of(session)
    for function, compiled in session.compiles():
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
    """Return a row for what is checked of one thing, of which the first says most."""
    more = f" and {len(expressions) - 1} more" if len(expressions) > 1 else ""
    return f"- {_code(expressions[0])}{more} ({_of(compiled)})"


# -- Markdown: what a record says is text, whatever it looks like ---------------------------------------------------

_SPECIAL = re.compile(r"([\\`*_{}\[\]()#+\-.!<>|~&:])")
_HARMLESS = re.compile(r"[\w. ]+(?:\(resumed at line \d+\) )?\[[\w/#]+\]")
_TICKS = re.compile("`+")


def _of(compiled: Compile) -> str:
    return _plain(f"{compiled.name} [{compiled.id}]")


def _code(text: str) -> str:
    """Return a text as code, fenced by more backticks than it has in a row."""
    text = " ".join(text.split())
    fence = "`" * (max(map(len, _TICKS.findall(text)), default=0) + 1)
    room = " " if text.startswith("`") or text.endswith("`") or not text else ""
    return f"{fence}{room}{text}{room}{fence}"


def _plain(text: str) -> str:
    """Return a text that Markdown shows as it is: no link, no picture, no HTML."""
    return text if _HARMLESS.fullmatch(text) else _SPECIAL.sub(r"\\\1", " ".join(text.split()))
