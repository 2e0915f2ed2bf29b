"""All that the debugger is measured by, as one table and one JSON file: ``make bench``.

``python -m tests.benchmarks.table [ROW or GROUP ...] [--quick] [--json FILE] [--limit SECONDS]``. Each group of rows is
measured in a process of its own, which is ended when it takes longer than its limit: a row that fails says why, and the
others continue. Medians, the quartiles around them, the target, and whether it is reached; what a row is compared with
beside it. The programs under ``tests/benchmarks`` that are not part of a row's name print more of each.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime as dt
import json
import os
import platform
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
from rich.console import Console
from rich.table import Table

sys.path[:0] = [str(Path(__file__).resolve().parents[2]), str(Path(__file__).resolve().parents[2] / "adapter")]

from tests.benchmarks.figures import Measured, Row, reported
from tests.benchmarks.rows import MEASURES, ROWS

LIMIT, QUICK_LIMIT = 1500.0, 180.0
"""Seconds that a group may take."""


def chosen(names: Sequence[str]) -> list[Row]:
    """Return the rows of these names or groups; all, if none is given.

    Raises:
        ValueError: there is none of a name.
    """
    unknown = [name for name in names if not any(name in (row.key, row.group) for row in ROWS)]
    if unknown:
        known = ", ".join([*MEASURES, *(row.key for row in ROWS)])
        raise ValueError(f"there is no row or group {', '.join(unknown)}; there are: {known}")
    return [row for row in ROWS if not names or row.key in names or row.group in names]


def measured(group: str, *, is_quick: bool, limit: float) -> tuple[dict[str, Measured], str]:
    """Measure a group in a process; return what it found by row, and why that is not all."""
    with tempfile.TemporaryDirectory() as folder:
        found, errors = Path(folder, "found.jsonl"), Path(folder, "errors.txt")
        command = [sys.executable, "-m", "tests.benchmarks.table", group, "--measure", str(found)]
        with errors.open("w", encoding="utf-8") as stream:
            # Its own process group, so that what it started ends with it.
            process = subprocess.Popen(
                [*command, *(["--quick"] if is_quick else [])],
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=stream,
                start_new_session=True,
                cwd=Path(__file__).resolve().parents[2],
            )
            try:
                status = process.wait(limit)
                why = "" if status == 0 else _last_line(errors) or f"it ended with status {status}"
            except subprocess.TimeoutExpired:
                why = f"it took longer than {limit:g} s (--limit)"
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        lines = found.read_bytes().splitlines() if found.exists() else []
        rows = [msgspec.json.decode(line, type=Measured) for line in lines]
        return {row.key: row for row in rows}, why


def _last_line(path: Path) -> str:
    lines = path.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    return lines[-1][:300] if lines else ""


def measure_here(group: str, *, is_quick: bool, found: Path) -> None:
    """Measure a group in this process, writing each row as it is found."""
    with found.open("ab") as stream:
        for row in MEASURES[group](is_quick):
            stream.write(msgspec.json.encode(row) + b"\n")
            stream.flush()


def machine() -> dict[str, Any]:
    """Return what the figures depend on."""
    from importlib.metadata import version

    return {
        "python": platform.python_version(),
        "torch": version("torch"),
        "debugpy": version("debugpy"),
        "system": f"{platform.system()} {platform.machine()}",
        "processors": os.cpu_count(),
    }


def shown(rows: Sequence[dict[str, Any]]) -> Table:
    """Return the rows as a table for a terminal."""
    table = Table("row", "what", "median", "quarters", "aim", "reached", "beside")
    for row in rows:
        unit = row["unit"]
        aim = "" if row["aim"] is None else f"{'>=' if row['aim_is'] == 'at least' else '<='} {row['aim']:g} {unit}"
        if row["not_measured"]:
            table.add_row(row["row"], row["what"], "not measured", row["not_measured"], aim, "", "")
            continue
        low, high = row["quarters"]
        reached = {True: "yes", False: "no", None: ""}[row["reached"]]
        beside = ", ".join(f"{name} {number(value)}" for name, value in row["beside"].items())
        median = f"{number(row['median'])} {unit}".strip()
        quarters = f"{number(low)} to {number(high)}" if row["count"] > 1 else "measured once"
        table.add_row(row["row"], row["what"], median, quarters, aim.strip(), reached, beside)
    return table


def number(value: float) -> str:
    """Return a figure with as many digits as say something."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}" if abs(value) < 0.1 else f"{value:.4g}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print and write; the status is 1 when a row could not be measured."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", nargs="*", metavar="ROW", help="rows or groups of rows; all if none is named")
    parser.add_argument("--quick", action="store_true", help="once each, to see that it works: no figures to quote")
    parser.add_argument("--json", type=Path, default=Path("bench.json"), help="where to write (default: bench.json)")
    parser.add_argument(
        "--limit",
        type=float,
        help=f"seconds that each group may take (default: {LIMIT:g}, with --quick {QUICK_LIMIT:g})",
    )
    parser.add_argument("--measure", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    try:
        rows = chosen(options.rows)
    except ValueError as problem:
        parser.error(str(problem))
    if options.measure is not None:
        measure_here(options.rows[0], is_quick=options.quick, found=options.measure)
        return 0
    limit = options.limit or (QUICK_LIMIT if options.quick else LIMIT)
    console = Console(width=None if sys.stdout.isatty() else 200)
    body: dict[str, Any] = {
        "began": dt.datetime.now(dt.timezone.utc).isoformat(timespec="seconds"),
        "machine": machine(),
        "quick": options.quick,
        "load": [],
        "seconds": {},
        "rows": [],
    }
    for group in dict.fromkeys(row.group for row in rows):
        body["load"].append(os.getloadavg()[0])
        began = time.monotonic()
        found, why = measured(group, is_quick=options.quick, limit=limit)
        body["seconds"][group] = round(time.monotonic() - began, 1)
        body["rows"] += [reported(row, found.get(row.key), why) for row in rows if row.group == group]
        # Written as it goes, so that a run that is ended has left what it found.
        options.json.write_text(json.dumps(body, indent=1) + "\n", encoding="utf-8")
        sys.stderr.write(f"{group}: {body['seconds'][group]} s{'; ' + why if why else ''}\n")
    console.print(shown(body["rows"]))
    return int(any(row["not_measured"] for row in body["rows"]))


if __name__ == "__main__":
    sys.exit(main())
