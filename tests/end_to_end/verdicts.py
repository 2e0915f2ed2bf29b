"""Scores what ``dynamo-dap compare`` says of wrong and of correct programs: ``python -m tests.end_to_end.verdicts``.

The programs are in ``fixtures/compared``: each wrong one has one injected defect, the line marked ``# wrong``, and the
stage that it must name. All wrong ones run in one process, all correct ones in another.
"""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parents[2] / "fixtures" / "compared"
STAGES = {
    "raising_graph": "raises",
    "wrong_fake_shape": "fake kernel",
    "wrong_fake_strides": "fake kernel",
    "undeclared_write": "custom operator",
    "Switched.forward": "Dynamo",
}
"""Where the stage is not the backend ``defect``."""
_SECONDS = 900


@dataclass(frozen=True)
class Score:
    """What was said of one program."""

    name: str
    is_different: bool
    has_line: bool
    has_stage: bool

    @property
    def is_right(self) -> bool:
        """Whether the verdict, the line and the stage are right."""
        return self.is_different and self.has_line and self.has_stage


@cache
def compared(program: str) -> tuple[int, list[dict[str, Any]]]:
    """Run a program under the command; return its exit status and what it prints of each call."""
    words = [sys.executable, "-m", "dynamo_dap", "compare", "--json", str(FOLDER / program)]
    run = subprocess.run(words, capture_output=True, text=True, timeout=_SECONDS, check=False)
    return run.returncode, [json.loads(line) for line in run.stdout.splitlines() if line.startswith("{")]


def marked_lines() -> dict[str, int | None]:
    """Return the marked line of each wrong program; None for a defect that no line has caused."""
    text = (FOLDER / "defects.py").read_text(encoding="utf-8")
    lines = text.splitlines()
    found: dict[str, int | None] = {}
    for node in ast.parse(text).body:
        is_case = isinstance(node, ast.FunctionDef) and any(
            "wrong" in ast.unparse(each) for each in node.decorator_list
        )
        if is_case or (isinstance(node, ast.ClassDef) and node.name == "Switched"):
            name = f"{node.name}.forward" if isinstance(node, ast.ClassDef) else node.name
            within = range(node.lineno, (node.end_lineno or node.lineno) + 1)
            found[name] = next((line for line in within if lines[line - 1].endswith("# wrong")), None)
    return found


def scores() -> list[Score]:
    """Score each wrong program."""
    _, calls = compared("defects.py")
    found = []
    for name, line in marked_lines().items():
        body = next((each for each in calls if each["function"] == name and not each["same"]), {})
        stage = body.get("stage")
        found.append(
            Score(name, body.get("compared", bool(body)), body.get("line") == line, stage == STAGES.get(name, "defect"))
        )
    return found


def false_alarms() -> list[str]:
    """Return the correct calls that are said to differ, or were not compared."""
    return [f"{each['function']} line {each.get('line')}" for each in compared("correct.py")[1] if not each["same"]]


def main() -> None:
    """Print the score as a table."""
    found, alarms = scores(), false_alarms()
    lines = ["| program | differs | line | stage |", "| --- | --- | --- | --- |"]
    for each in found:
        answers = ("yes" if one else "no" for one in (each.is_different, each.has_line, each.has_stage))
        lines.append(f"| `{each.name}` | {' | '.join(answers)} |")
    lines += ["", f"{sum(each.is_right for each in found)} of {len(found)} wrong programs: line and stage are right."]
    lines.append(f"{len(alarms)} false alarms in {len(compared('correct.py')[1])} calls of correct programs.")
    sys.stdout.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
