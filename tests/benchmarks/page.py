"""Writes ``docs/figures.md`` from results of ``make bench``.

Run ``python -m tests.benchmarks.page bench.json [NEWER.json ...]``. The newest file with a row gives its figures, so
that a part can be measured again. Rows of a quick run are refused, since they give no figures to quote.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).resolve().parents[2]), str(Path(__file__).resolve().parents[2] / "adapter")]

from tests.benchmarks.rows import ROWS
from tests.benchmarks.table import number

PAGE = Path(__file__).resolve().parents[2] / "docs" / "figures.md"
_HEAD = """# Figures

This page shows the debugger's cost and response times. `make bench` measures each row and its baseline alternately in
one run, and also writes `bench.json`. `make bench ARGUMENTS=NAME` measures one row or group.
`python -m tests.benchmarks.page bench.json` writes this page.

- A figure without a unit is a ratio. *Plain* is the program without a debugger.
- Half of the measurements lie between the *quartiles*.
- Below the table are notes on each figure that misses its target.
"""


def page(bodies: Sequence[dict[str, Any]]) -> str:
    """Return the page. ``bodies`` are ordered from the oldest; if several have a row, the newest one counts.

    Raises:
        ValueError: one of the results comes from a quick run.
    """
    if any(body["quick"] for body in bodies):
        raise ValueError("a quick run gives no figures to quote")
    found = {row["row"]: row for body in bodies for row in body["rows"]}
    machine, dates = bodies[-1]["machine"], [body["began"][:10] for body in bodies]
    measured = dates[0] if dates[0] == dates[-1] else f"{dates[0]} to {dates[-1]}"
    versions = ", ".join(f"{name} {machine[name.lower()]}" for name in ("Python", "torch", "debugpy"))
    lines = [
        _HEAD,
        f"Measured on {measured}: {versions}, {machine['system']} with {machine['processors']} processors.",
        "",
        "| row | what | figure | quartiles | target | for comparison |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    rows = [(row, found[row.key]) for row in ROWS if row.key in found]
    lines += [_line(row.label, each) for row, each in rows]
    missed = [(row, each) for row, each in rows if each["reached"] is False]
    if missed:
        lines += ["", "## Figures that miss their target", ""]
        lines += [f"- `{row.key}`: {row.tried or 'nothing was tried yet.'}" for row, _ in missed]
    return "\n".join([*lines, ""])


def _line(what: str, row: dict[str, Any]) -> str:
    unit = f" {row['unit']}" if row["unit"] else ""
    aim = "" if row["aim"] is None else f"{row['aim_is']} {row['aim']:g}{unit}"
    if row["not_measured"]:
        return f"| `{row['row']}` | {what} | not measured: {row['not_measured']} | | {aim} | |"
    reached = {True: "", False: ", missed", None: ""}[row["reached"]]
    low, high = map(number, row["quarters"])
    quarters = f"{low} to {high}" if row["count"] > 1 else "measured once"
    beside = ", ".join(f"{name} {number(value)}" for name, value in row["beside"].items())
    return f"| `{row['row']}` | {what} | {number(row['median'])}{unit} | {quarters} | {aim}{reached} | {beside} |"


if __name__ == "__main__":
    if not sys.argv[1:]:
        sys.exit("name the JSON files that make bench has written, oldest first")
    PAGE.write_text(page([json.loads(Path(name).read_bytes()) for name in sys.argv[1:]]), encoding="utf-8")
