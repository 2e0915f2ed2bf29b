"""Scores the exception filter ``nan`` on wrong and on correct programs: ``python -m tests.end_to_end.culprits``.

The programs are in ``fixtures/not_finite``. In each wrong program, ``# nan`` or ``# inf`` marks the line that makes the
value. The cases of a file run in one process, under one session. The local ``name`` of the file's ``main`` is the case
of a stop.
"""

from __future__ import annotations

import ast
import re
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.client import Fixture, Session, Stop

FOLDER = Path(__file__).parents[2] / "fixtures" / "not_finite"
WRONG = ("forward.py", "backward.py")
CORRECT = "correct.py"
_MARK = re.compile(r"# (nan|inf)(?:: (\w+))?$")
_MADE = re.compile(r"\b(?:is|are|has) -?(NaN|Inf)")
_WHERE = re.compile(r"^Where: (.*?):(\d+)\b", re.MULTILINE)
_SECONDS = 600


@dataclass(frozen=True)
class Reported:
    """The facts that one stop reports, and where it is."""

    name: str
    line: int | None
    """The line that the text names."""
    frames: list[int]
    """The lines of the program's frames at the stop, innermost first."""
    kind: str | None
    text: str


@dataclass(frozen=True)
class Score:
    """The reports on one wrong program."""

    name: str
    stops: bool
    has_line: bool
    has_kind: bool

    @property
    def is_right(self) -> bool:
        """Whether there is a stop, and the first one is right."""
        return self.stops and self.has_line and self.has_kind

    @property
    def row(self) -> str:
        """The row of the table in the docs."""
        answers = ("yes" if one else "no" for one in (self.stops, self.has_line, self.has_kind))
        return f"| `{self.name}` | {' | '.join(answers)} |"


def culprits(program: str) -> dict[str, tuple[int, str]]:
    """Return the marked line and kind of each case; a mark outside of the case's function names the case."""
    text = (FOLDER / program).read_text(encoding="utf-8")
    marks = [(at, found) for at, line in enumerate(text.splitlines(), 1) if (found := _MARK.search(line))]
    named = {found[2]: (at, found[1]) for at, found in marks if found[2]}
    cases: dict[str, tuple[int, str]] = {}
    for node in ast.parse(text).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and _is_case(node.decorator_list):
            within = range(node.lineno, (node.end_lineno or node.lineno) + 1)
            here = [(at, found[1]) for at, found in marks if at in within]
            cases[node.name] = named.get(node.name) or here[0]
    return cases


def correct_programs() -> int:
    """Count the cases of ``correct.py``."""
    tree = ast.parse((FOLDER / CORRECT).read_text(encoding="utf-8"))
    return sum(_is_case(getattr(node, "decorator_list", [])) for node in tree.body)


def _is_case(decorators: Sequence[ast.expr]) -> bool:
    return any(ast.unparse(each).startswith(("case(", "called")) for each in decorators)


def stops_in(session: Session, program: str, *names: str) -> list[Reported]:
    """Run all or some cases of a program, and return the report of each stop."""
    with session.launching(Fixture(FOLDER / program), args=list(names)):
        session.request("setExceptionBreakpoints", {"filters": ["nan"]})
    found: list[Reported] = []
    while True:
        event, body = session.timeline.expect_first("stopped", "terminated", deadline=_SECONDS)
        if event == "terminated":
            return found
        stop = Stop(session, body)
        info = session.request("exceptionInfo", {"threadId": stop.thread_id})
        text = f"{info['exceptionId']}\n{info['description']}"
        where, made = _WHERE.search(info["description"]), _MADE.search(text)
        frames = [each.line for each in stop.frames if Path(each.path or "").name == program]
        found.append(
            Reported(
                stop.frame_called("main").evaluate("name").text.strip("'"),
                int(where[2]) if where and Path(where[1]).name == program else None,
                frames,
                made[1].lower() if made else None,
                text,
            )
        )
        session.resume(thread_id=stop.thread_id)


def scores(program: str, reported: Sequence[Reported]) -> list[Score]:
    """Score each case of a program: its first stop counts."""
    result: list[Score] = []
    for name, (line, kind) in culprits(program).items():
        first = next((each for each in reported if each.name == name), None)
        result.append(
            Score(name, first is not None, bool(first and first.line == line), bool(first and first.kind == kind))
        )
    return result


def main() -> None:
    """Print the score as a table."""
    reported: dict[str, list[Reported]] = {}
    for program in (*WRONG, CORRECT):
        with tempfile.TemporaryDirectory() as folder:
            session = Session(Path(folder))
            try:
                reported[program] = stops_in(session, program, *sys.argv[1:])
            finally:
                session.close()
            sys.stderr.write("".join(f"{each}\n" for each in reported[program]) + session.output("important"))
    found = [score for program in WRONG for score in scores(program, reported[program])]
    lines = ["| program | stops | line | kind |", "| --- | --- | --- | --- |"]
    lines += [each.row for each in found]
    lines += ["", f"{sum(each.is_right for each in found)} of {len(found)} wrong programs: line and kind are right."]
    lines.append(f"{len(reported[CORRECT])} false alarms in {correct_programs()} correct programs.")
    sys.stdout.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
