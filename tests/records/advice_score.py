"""Scores the advice on programs with a known remedy: ``python -m tests.records.advice_score`` prints the table.

Each program runs twice, as it is and with its remedy. The page ``docs/advice-score.md`` has the table.
"""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.client.timeline import DEADLINE
from tests.models import model_remedies
from tests.records import remedies
from tests.records.remedies import Program

_COUNTS = ("breaks", "recompiles", "limits")
_HEADS = ("program", "remedy", "named", "breaks", "recompiles", "limits", "helps")


@dataclass(frozen=True)
class Score:
    """The score of the advice on one program."""

    program: Program
    is_named: bool
    """Whether the report names the remedy, the cause and the line."""
    helps: bool
    """Whether the remedy lowers the counts, with equal results."""
    before: dict[str, Any]
    after: dict[str, Any]

    @property
    def row(self) -> str:
        """The row of the table."""
        program = self.program
        remedy = f"`{program.setting.removeprefix('torch._dynamo.config.')}`" if program.setting else "edit"
        counts = [f"{self.before[name]} → {self.after[name]}" for name in _COUNTS]
        answers = ["yes" if one else "no" for one in (self.is_named, self.helps)]
        return f"| `{program.name}` | {remedy} | {' | '.join([answers[0], *counts, answers[1]])} |"


def ran(folder: Path, module: str) -> dict[str, Any]:
    """Run the programs of a module in one process; return the facts about each, before and after its remedy."""
    run = subprocess.run(
        [sys.executable, "-m", "tests.records.run_remedies", str(folder), module],
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    found: dict[str, Any] = json.loads(run.stdout.splitlines()[-1])
    return found


def score(one: dict[str, Any], program: Program) -> Score:
    """Score the advice in the facts about a program."""
    parts = ((program.advice, "advice"), (program.cause, "titles"), (program.origin, "lines"))
    is_named = not program.setting or program.setting in one["settings"]
    is_named = is_named and all(any(part in line for line in one[name]) for part, name in parts)
    before, after = one["before"], one["after"] or one["before"]
    if before["limits"]:
        # A function that reached the limit ran eagerly. With the remedy it may be compiled more often.
        is_better = after["limits"] == 0
    else:
        is_better = all(after[name] <= before[name] for name in _COUNTS)
        is_better = is_better and any(after[name] < before[name] for name in _COUNTS)
    return Score(program, is_named, is_better and after["results"] == before["results"], before, after)


def main() -> None:
    """Print the score as a table."""
    modules = [remedies, *([model_remedies] if importlib.util.find_spec("transformers") else [])]
    lines = [f"| {' | '.join(_HEADS)} |", f"|{' --- |' * len(_HEADS)}"]
    scores = []
    for module in modules:
        with tempfile.TemporaryDirectory() as folder:
            found = ran(Path(folder), module.__name__)
        scores += [score(found[program.name], program) for program in module.PROGRAMS]
    lines += [each.row for each in scores]
    right = sum(each.is_named and each.helps for each in scores)
    lines += ["", f"{right} of {len(scores)} programs: the report names the remedy and the line, and the remedy helps."]
    sys.stdout.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
