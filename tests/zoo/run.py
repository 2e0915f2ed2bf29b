"""Debugs small programs of other people's packages, and writes the results: ``make test-zoo``.

Each program runs as plain Python, with an idle debugger, and with a breakpoint on every line that it executes; a
comment ``# also: MODULE FUNCTION`` adds the lines of one of the package's own functions. Exit status and output have to
be the same each time; programs print random numbers at their end. ``docs/zoo.md`` has the lines that are not hit.
The packages are in an environment of their own, ``.zoo``; programs whose package is missing are left out.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
PYTHON = ROOT / ".zoo" / "bin" / "python"
PAGE = ROOT / "docs" / "zoo.md"
PROGRAMS = Path(__file__).with_name("programs")

_SECONDS = 300
_MOST_STOPS = 2000
_CALLS = 3
"""Hits of a line that are waited for: in the trace, in a cached call, and in one whose trace is kept."""

Line = tuple[str, int]


@dataclass
class Outcome:
    """What a program did."""

    status: int
    output: str


@dataclass
class Row:
    """The result of one program."""

    name: str
    problems: list[str] = field(default_factory=list)
    executed: Counter[Line] = field(default_factory=Counter)
    hit: Counter[Line] = field(default_factory=Counter)
    reasons: dict[Line, str] = field(default_factory=dict)
    """Why a line has no stop, as the debugger says it."""

    @property
    def missed(self) -> list[Line]:
        """Lines that ran, and were not stopped at."""
        return sorted(line for line in self.executed if line not in self.hit)


def plain(program: Path, python: Path = PYTHON) -> Outcome:
    """Run a program as plain Python."""
    ran = subprocess.run(
        [python, program], capture_output=True, text=True, timeout=_SECONDS, check=False, stdin=subprocess.DEVNULL
    )
    return Outcome(ran.returncode, ran.stdout)


def executed_lines(program: Path, python: Path = PYTHON) -> Counter[Line]:
    """Return how often each line runs without torch.compile, of the program and the function that it names."""
    also = next((line.split()[2:] for line in program.read_text().splitlines() if line.startswith("# also: ")), [])
    with tempfile.NamedTemporaryFile("r", suffix=".json") as file:
        command: list[str | Path] = [python, Path(__file__).with_name("executed.py"), file.name, program, *also]
        environment = {**os.environ, "TORCHDYNAMO_DISABLE": "1"}
        subprocess.run(command, env=environment, stdout=subprocess.DEVNULL, timeout=_SECONDS, check=True)
        return Counter({(path, line): count for path, line, count in json.load(file)})


@contextlib.contextmanager
def _session(program: Path, python: Path, lines: Counter[Line]) -> Iterator[tuple[Any, dict[Line, str]]]:
    """Run a program in a session with breakpoints on ``lines``; yield it and why breakpoints are elsewhere."""
    from tests.client.session import Session

    reasons: dict[Line, str] = {}
    with tempfile.TemporaryDirectory() as folder:
        session = Session(Path(folder))
        try:
            configuration: dict[str, Any] = {"program": str(program), "python": [str(python)]}
            if {path for path, _ in lines} > {str(program)}:
                configuration["justMyCode"] = False  # the lines of a package are stopped at only then
            with session.configuring("launch", configuration):
                for path in sorted({path for path, _ in lines}):
                    wanted = sorted(line for each, line in lines if each == path)
                    for line, answered in zip(wanted, session.set_breakpoints(path, *wanted), strict=True):
                        if not answered.verified:
                            reasons[path, line] = answered.message or "not verified"
                        elif answered.line != line:
                            reasons[path, line] = f"its breakpoint moves to line {answered.line}"
            yield session, reasons
        finally:
            session.close()


def debugged(
    program: Path, lines: Counter[Line], python: Path = PYTHON
) -> tuple[Outcome, Counter[Line], dict[Line, str]]:
    """Run a program with breakpoints on ``lines``; return what it did, the stops, and why others have none."""
    from tests.client.timeline import ExpectationError

    hit: Counter[Line] = Counter()
    with _session(program, python, lines) as (session, reasons):
        while sum(hit.values()) < _MOST_STOPS:
            try:
                body = session.timeline.expect_event("stopped", deadline=_SECONDS, unless=("terminated",))
            except ExpectationError:
                break
            frame = session.client.stack_trace(body["threadId"]).stack_frames[0]
            at = (str(frame.source.path if frame.source is not None else ""), frame.line)
            hit[at] += 1
            if hit[at] == _CALLS:
                rest = sorted(line for path, line in lines if path == at[0] and hit[path, line] < _CALLS)
                session.set_breakpoints(at[0], *rest)
            session.client.resume("continue", body["threadId"], None)
        exited = next(event["body"]["exitCode"] for event in session.timeline.events if event["event"] == "exited")
        return Outcome(exited, session.output("stdout")), hit, reasons


def row_of(program: Path, python: Path = PYTHON) -> Row:
    """Run a program in all ways."""
    row = Row(program.stem)
    expected = plain(program, python)
    if expected.status:
        row.problems.append(f"it fails without the debugger: exit status {expected.status}")
        return row
    row.executed = executed_lines(program, python)
    idle, _, _ = debugged(program, Counter(), python)
    stopped, row.hit, row.reasons = debugged(program, row.executed, python)
    for how, outcome in (("idle debugger", idle), ("breakpoints", stopped)):
        if outcome != expected:
            row.problems.append(f"{how}: exit status {outcome.status} and output {outcome.output!r:.300}")
    return row


_HEADER = "| program | same exit, output, random numbers | lines run | lines hit | not hit |"


def rows_of(text: str) -> dict[str, str]:
    """Return the rows of a page, by program."""
    _, found, table = text.partition(f"{_HEADER}\n")
    rows = (line for line in table.split("\n\n")[0].splitlines()[1:])
    return {line.split("|")[1].strip(): line for line in rows} if found else {}


def page(rows: list[Row], missing: list[str], kept: Mapping[str, str] | None = None) -> str:
    """Return the table in Markdown; ``kept`` has the rows of programs that did not run this time."""
    lines = [
        "# Programs of other packages",
        "",
        "`make test-zoo` writes this page. It runs small programs of installed packages as plain Python, with an idle",
        "debugger, and with a breakpoint on every line that they execute. Exit status, output and random numbers are",
        "compared. A line counts as hit when the debugger stops there at least once. Some programs name a function of",
        "their package, whose lines count as well; these runs have `justMyCode` off. A breakpoint on a decorator or on",
        "the `def` line moves to the first line of the function's body, so these two are not hit.",
        "",
        _HEADER,
        "| --- | --- | --- | --- | --- |",
    ]
    table = dict(kept or {})
    for row in rows:
        same = "yes" if not row.problems else "; ".join(row.problems).replace("|", "/")
        missed = [
            f"{Path(path).name}:{line}: {row.reasons.get((path, line), 'no reason known')}" for path, line in row.missed
        ]
        hit = len(row.executed) - len(row.missed)
        table[row.name] = f"| {row.name} | {same} | {len(row.executed)} | {hit} | {'<br>'.join(missed) or 'none'} |"
    lines += [table[name] for name in sorted(table)]
    lines += ["", f"Not run, as the package was not installed: {', '.join(missing)}."] if missing else []
    return "\n".join(lines) + "\n"


def main() -> int:
    """Run the programs whose packages are there; return 1 if one does something else under the debugger."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("programs", nargs="*", help="some of the programs, by name")
    parser.add_argument("--output", type=Path, default=PAGE, help="the page that is written")
    options = parser.parse_args()
    os.chdir(ROOT)
    rows, missing = [], []
    is_old = options.programs and options.output.exists()
    kept = rows_of(options.output.read_text(encoding="utf-8")) if is_old else {}
    for program in sorted(PROGRAMS.glob("*.py")):
        if options.programs and program.stem not in options.programs:
            continue
        imports = [
            line.split()[1].partition(".")[0]
            for line in program.read_text().splitlines()
            if line.startswith(("import ", "from "))
        ]
        check = "import sys; from importlib.util import find_spec; sys.exit(not all(map(find_spec, sys.argv[1:])))"
        if subprocess.run([PYTHON, "-c", check, *imports], check=False).returncode:
            missing.append(program.stem)
            continue
        row = row_of(program)
        rows.append(row)
        options.output.write_text(page(rows, missing, kept), encoding="utf-8")
        print(
            row.name, f"{len(row.executed) - len(row.missed)} of {len(row.executed)} lines", *row.problems, flush=True
        )
    return int(any(row.problems for row in rows))


if __name__ == "__main__":
    sys.exit(main())
