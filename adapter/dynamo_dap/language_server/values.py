"""What names stood for while functions were traced: inlay hints at assignments, and hovers. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator

from lsprotocol.types import Hover, InlayHint, InlayHintKind, MarkupContent, MarkupKind, Range

from dynamo_dap.language_server.document import Document, first_line
from dynamo_dap.language_server.positions import Positions
from dynamo_dap.record.model import Compile, Guard, Value
from dynamo_dap.record.session import Session

_SHOWN = 2
_ROWS = 12
_GUARDS = 8


def _values_in(session: Session, document: Document) -> Iterator[tuple[Compile, Value, int]]:
    """Yield every value of names in a document: the compile, the value, and its line now."""
    for _, compiled in session.compiles():
        for value in compiled.values:
            line = document.line_of(value.place)
            if line is not None:
                yield compiled, value, line


def inlay_hints(session: Session, document: Document, positions: Positions, lines: range) -> list[InlayHint]:
    """Return shapes and dtypes at the assignments of some lines, as the last compile had them."""
    found: dict[tuple[int, int], dict[Compile | int, list[tuple[Compile, Value]]]] = {}
    for compiled, value, line in _values_in(session, document):
        if line not in lines or value.is_parameter or not value.has_tensor:
            continue
        column = document.column_after(line, value.name, value.place.column)
        if column is not None:
            found.setdefault((line, column), {}).setdefault(id(compiled), []).append((compiled, value))
    return [
        _hint(document, positions, line, column, list(by_compile.values()))
        for (line, column), by_compile in sorted(found.items())
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
    values = [(one, value, at) for one, value, at in _values_in(session, document) if value.name == name]
    values = [(one, value, at) for one, value, at in values if at in inside]
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
    for function, compiled in session.compiles():
        at = document.line_of(function.place)
        for guard in compiled.guards if at is not None and at in inside else ():
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
