"""Shows a tensor as text, page by page: rows that fit the screen, statistics, a one-line histogram.

Runs on the prompt's thread; a ``Shown`` lives until another tensor is shown.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from rich.text import Text

from dynamo_dap.protocol.requests.contract import TENSOR
from dynamo_dap.protocol.requests.tensor_requests import (
    ELEMENTS,
    STATISTICS,
    TensorArguments,
    TensorBody,
    TensorHistogram,
    TensorStatistics,
)
from dynamo_dap.terminal.client import Client
from dynamo_dap.terminal.screen import Screen

_ROWS = 16
_MOST_COLUMNS = 24
_STEPS = "▁▂▃▄▅▆▇█"
_MARKS = {"nan": "bold white on magenta", "inf": "bold black on yellow"}


@dataclass
class Shown:
    """The tensor that was shown last, and where its next page begins."""

    expression: str
    row: int = 0


def show(client: Client, screen: Screen, frame_id: int | None, shown: Shown) -> None:
    """Print a page of rows, and on the first page the statistics.

    Raises:
        RequestFailed: the expression is not a tensor, or has no data.
    """
    wanted = TensorArguments(
        ELEMENTS,
        expression=shown.expression,
        frame_id=frame_id,
        start_row=shown.row,
        row_count=_ROWS,
        column_count=_MOST_COLUMNS,
    )
    body = client.ask(TENSOR, wanted, TensorBody)
    is_first = shown.row == 0
    if is_first:
        screen.say(f"{body.text}{f' ({body.note})' if body.note else ''}")
    _print_rows(screen, body, shown)
    if is_first:
        asked = TensorArguments(STATISTICS, expression=shown.expression, frame_id=frame_id)
        statistics = client.ask(TENSOR, asked, TensorBody).statistics
        if statistics is not None:
            _print_statistics(screen, statistics, math.prod(body.shape))


def _print_rows(screen: Screen, body: TensorBody, shown: Shown) -> None:
    rows = body.elements or []
    if not rows:
        screen.note("  no more rows" if shown.row else "  no elements")
        return
    first, shown.row = shown.row, shown.row + len(rows)
    numbered = [str(first + at) for at in range(len(rows))]
    edge = max(len(number) for number in numbered) + 2
    widths = _widths(rows, screen.console.width - edge)
    part = ", ".join(["0"] * (len(body.shape) - 2) + [":"] * min(len(body.shape), 2))
    if len(body.shape) >= 2:
        screen.note(" " * edge + "".join(f"{column:>{width}}" for column, width in enumerate(widths)))
    for number, row in zip(numbered, rows, strict=True):
        line = Text(f"{number:>{edge}}", style="dim") if body.shape else Text("  ")
        for text, width in zip(row, widths, strict=False):
            style = next((mark for kind, mark in _MARKS.items() if kind in text), "")
            line.append(" " * (width - len(text))).append(text, style)
        screen.say(line)
    total = body.shape[-2:] if len(body.shape) > 1 else [*body.shape, 1, 1][:2]
    notes = []
    if len(body.shape) > 2:
        notes.append(f"this is [{part}]")
    if len(widths) < total[1]:
        notes.append(f"{len(widths)} of {total[1]} columns")
    if shown.row < total[0]:
        notes.append(f"{shown.row} of {total[0]} rows: 'show' continues")
    if len(body.shape) > 2:
        notes.append(f"another part: show ({shown.expression})[-1]")
    if notes:
        screen.note(f"  {'; '.join(notes)}")


def _widths(rows: list[list[str]], room: int) -> list[int]:
    """Return the widths of the columns that fit."""
    widths: list[int] = []
    for column in range(len(rows[0])):
        width = max(*(len(row[column]) for row in rows), len(str(column))) + 2
        if widths and sum(widths) + width > room:
            break
        widths.append(width)
    return widths


def _print_statistics(screen: Screen, found: TensorStatistics, total: int) -> None:
    named = [
        ("min", found.minimum),
        ("max", found.maximum),
        ("mean", found.mean),
        ("std", found.deviation),
        ("zeros", found.zeros),
        ("NaN", found.nans),
        ("Inf", found.positive_infs + found.negative_infs),
    ]
    line = Text()
    for name, value in named:
        if value is not None:
            style = _MARKS[name.lower()] if name.lower() in _MARKS and value else ""
            line.append(f"  {name} ", "dim").append(str(value), style)
    if found.of != "all":
        line.append(f"  (of {found.count} of {total} elements, taken at random)", "dim")
    screen.say(line)
    if found.histogram is not None:
        screen.say(Text("  ").append(_line(found.histogram), "cyan"))


def _line(histogram: TensorHistogram) -> str:
    """Return a histogram as one line; each non-empty interval is visible."""
    most, top = max(histogram.counts), len(_STEPS)
    bars = [_STEPS[min(count * top // most, top - 1)] if count else " " for count in histogram.counts]
    return f"{histogram.low:.4g} {''.join(bars)} {histogram.high:.4g}  (highest: {most})"
