"""Shows a comparison as one page: each difference with A and B side by side, then counts and seconds.

The page has no script, and its texts are escaped: a record may come from anybody. The module reads the user's files,
and has no side effects.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from html import escape
from itertools import zip_longest

from dynamo_dap.diff.model import Difference, JsonDiff
from dynamo_dap.diff.sides import Run
from dynamo_dap.diff.text import code_at, numbers_of, part_text
from dynamo_dap.records.advice.items import at
from dynamo_dap.records.report.html_shell import html_shell, page_file


def html_page(diff: JsonDiff, runs: tuple[Run, Run]) -> Iterator[str]:
    """Return the page in parts."""
    style = page_file("records", "page.css") + page_file("diff", "diff.css")
    return html_shell(f"{diff.a.given} ↔ {diff.b.given}", style, _body(diff, runs), [])


def _body(diff: JsonDiff, runs: tuple[Run, Run]) -> Iterator[str]:
    yield "<h1>Where two runs of torch.compile differ</h1>"
    for name, side in (("A", diff.a), ("B", diff.b)):
        yield f"<p><b>{name}</b> <code>{escape(side.given)}</code></p>"
    if not diff.differences:
        yield "<h2>No difference</h2>"
    for number, difference in enumerate(diff.differences):
        yield {0: "<h2>First difference</h2>", 1: "<h2>Also</h2>"}.get(number, "")
        yield _difference(difference, runs)
    yield "<h2>Counts and seconds</h2>"
    rows = ("".join(f"<td>{escape(text)}</td>" for text in row) for row in numbers_of(diff))
    yield _table(["<th></th><th>A</th><th>B</th>", *rows])
    if diff.settings:
        yield "<h2>Settings that differ at the first compile</h2>"
        yield _list(map(part_text, diff.settings))
    if diff.not_compared:
        yield "<h2>Not compared</h2>"
        yield _list(diff.not_compared)


def _difference(difference: Difference, runs: tuple[Run, Run]) -> str:
    parts = [f"<h3>{escape(difference.text)} <span>{escape(difference.kind)}</span></h3>"]
    for name, place, run in zip("AB", (difference.place, difference.place_in_b), runs, strict=True):
        if place is not None:
            code = code_at(place, run)
            shown = f" <code>{escape(code)}</code>" if code else ""
            where = f"<span title='{escape(place.path, quote=True)}:{place.line}'>{escape(at(place))}</span>"
            parts.append(f"<p class='place'>{name}: {where}{shown}</p>")
    if difference.diff:
        rows = "".join(f"<tr>{_cell('a', a, b)}{_cell('b', b, a)}</tr>" for a, b in _sides(difference.diff))
        parts.append(f"<table class='sides'>{rows}</table>")
    return f"<div class='item'>{''.join(parts)}</div>"


def _cell(side: str, text: str | None, other: str | None) -> str:
    return f"<td{f' class={side}' if text != other and text is not None else ''}>{escape(text or '')}</td>"


def _sides(diff: Sequence[str]) -> Iterator[tuple[str | None, str | None]]:
    """Yield the lines of A and B that are shown side by side; None beside a line of one side only."""
    only_a: list[str] = []
    only_b: list[str] = []
    for line in diff:
        if line[:1] in "-+":
            (only_a if line[:1] == "-" else only_b).append(line[1:])
            continue
        yield from zip_longest(only_a, only_b)
        only_a.clear()
        only_b.clear()
        shown = line if line.startswith("@@") else line[1:]
        yield shown, shown
    yield from zip_longest(only_a, only_b)


def _table(rows: Iterable[str]) -> str:
    return f"<table>{''.join(f'<tr class=row>{row}</tr>' for row in rows)}</table>"


def _list(texts: Iterable[str]) -> str:
    return f"<ul>{''.join(f'<li>{escape(text)}</li>' for text in texts)}</ul>"
