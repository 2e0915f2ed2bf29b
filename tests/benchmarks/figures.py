"""Rows of the table of all that the debugger is measured by: what is measured, in which unit, and what it has to be.

A row is known before it is measured, so that a failed row is reported with its target, too. What a benchmark yields is
``Measured``; ``reported`` joins the two as the JSON file has it. Plain data; runs anywhere.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Row:
    """One figure of the table."""

    key: str
    """``GROUP.NAME``: rows of a group are measured together."""
    label: str
    unit: str
    """Empty for a ratio."""
    aim: float | None = None
    is_least: bool = False
    """Whether the target is a minimum; otherwise it is a maximum."""
    tried: str = ""
    """What was done to reach a target that is missed."""

    @property
    def group(self) -> str:
        """The name of its group."""
        return self.key.partition(".")[0]


@dataclass(frozen=True)
class Measured:
    """What one run of a benchmark found for a row."""

    key: str
    figures: Sequence[float]
    beside: Mapping[str, float] = field(default_factory=dict)
    """Medians of what it is compared with, by name and unit."""
    figure: float | None = None
    """The one that counts where it is not the median (a percentile)."""


Measure = Callable[[bool], Iterator[Measured]]
"""Yields what it found; True is for a quick look whether it works, which gives no figures to quote."""


def reported(row: Row, measured: Measured | None, why_not: str) -> dict[str, Any]:
    """Return a row as the JSON file has it; ``why_not`` says why it was not measured."""
    found: dict[str, Any] = {
        "row": row.key,
        "what": row.label,
        "unit": row.unit,
        "aim": row.aim,
        "aim_is": "at least" if row.is_least else "at most",
        "median": None,
        "quarters": None,
        "count": 0,
        "reached": None,
        "beside": {},
        "tried": row.tried,
        "not_measured": why_not or "nothing was found",
    }
    if measured is None or not measured.figures:
        return found
    taken = sorted(measured.figures)
    quarters = statistics.quantiles(taken, n=4) if len(taken) > 1 else [taken[0]] * 3
    figure = statistics.median(taken) if measured.figure is None else measured.figure
    reached = None if row.aim is None else figure >= row.aim if row.is_least else figure <= row.aim
    return {
        **found,
        "median": figure,
        "quarters": [quarters[0], quarters[2]],
        "count": len(taken),
        "reached": reached,
        "beside": dict(measured.beside),
        "not_measured": None,
    }


def ratios(taken: Sequence[Sequence[float]], plain: Sequence[Sequence[float]], index: int = 1) -> list[float]:
    """Return those of each turn; ``index`` 0 is for seconds of the clock, 1 for those of the processor."""
    return [one[index] / other[index] for one, other in zip(taken, plain, strict=True)]
