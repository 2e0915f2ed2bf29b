"""Scores the verdicts of ``dynamo-dap compare`` on wrong and correct programs: ``python -m tests.end_to_end.verdicts``.

The programs are in ``fixtures/compared``. Each wrong program has one injected defect: ``# wrong`` marks the line, and
the verdict must name the stage. All wrong programs run in one process, all correct ones in another.
"""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from tests.client.environments import own_command

FOLDER = Path(__file__).parents[2] / "fixtures" / "compared"
WRONG = ("defects.py", "stages.py", "gradients.py", "outputs.py", "transforms.py")
CORRECT_CALLS = {"correct.py": 116, "sizes.py": 27, "rounding.py": 27, "training.py": 101, "models.py": 12}
"""Correct programs, each with the least number of compared calls."""
NOT_COMPARED = ("dropout_of_inductor", "shared_inputs")
"""Functions of ``rounding.py`` that get a reason instead of a verdict."""
_INDUCTOR = (
    "wrong_lowering_of_sine",
    "wrong_lowering_of_a_maximum",
    "wrong_pass",
    "wrong_code",
    "wrong_lowering_in_vmap",
    "wrong_results_without_a_setting",
    "lowering_of_a_backward",
    "pass_over_the_joint_graph",
)
_DECOMPOSITIONS = ("wrong_decomposition", "wrong_decomposition_later", "decomposition_of_a_backward")
_AOT_AUTOGRAD = (
    "backward_of_an_operator",
    "backward_for_an_input",
    "backward_in_bfloat16",
    "wrong_partition",
    "overlapping_rows",
)
_DYNAMO = (
    "another_function_is_traced",
    "another_function_is_traced_with_aot",
    "a_side_effect_is_wrong",
    "a_stored_number_is_wrong",
    "an_entry_is_lost",
    "memory_is_not_released",
    "a_draw_is_lost",
    "the_second_draw_is_lost",
    "stale_number",
    "stale_tensor",
)
STAGES = {
    **dict.fromkeys(_DECOMPOSITIONS, "decomposition"),
    **dict.fromkeys(_AOT_AUTOGRAD, "AOTAutograd"),
    **dict.fromkeys(_INDUCTOR, "inductor"),
    **dict.fromkeys(_DYNAMO, "Dynamo"),
    "fake_of_another_type": "fake kernel",
    "raising_graph": "raises",
    "wrong_fake_shape": "fake kernel",
    "wrong_fake_strides": "fake kernel",
    "undeclared_write": "custom operator",
    "Switched.forward": "Dynamo",
}
"""The stages of the functions whose fault is not in a backend."""
_OTHER_STAGES = {*STAGES.values(), "AOTAutograd"}
_SECONDS = 900
_NAMED = re.compile(r"# wrong: (\w+)$")


@dataclass(frozen=True)
class Score:
    """The verdict on one program, with the expected one."""

    name: str
    is_different: bool
    has_line: bool
    has_stage: bool

    @property
    def is_right(self) -> bool:
        """Whether the verdict, the line and the stage are right."""
        return self.is_different and self.has_line and self.has_stage

    @property
    def row(self) -> str:
        """The row of the table in the docs."""
        answers = ("yes" if one else "no" for one in (self.is_different, self.has_line, self.has_stage))
        return f"| `{self.name}` | {' | '.join(answers)} |"


@cache
def compared(program: str) -> tuple[int, list[dict[str, Any]]]:
    """Run a program under the command; return the exit status and the output about each call."""
    words = [*own_command(), "compare", "--json", str(FOLDER / program)]
    run = subprocess.run(words, capture_output=True, text=True, timeout=_SECONDS, check=False)
    return run.returncode, [json.loads(line) for line in run.stdout.splitlines() if line.startswith("{")]


def marked_lines(program: str) -> dict[str, int | None]:
    """Return the marked line of each wrong function; None for a defect without a line."""
    text = (FOLDER / program).read_text(encoding="utf-8")
    lines = text.splitlines()
    named = {name: line for line, text in enumerate(lines, start=1) for name in _NAMED.findall(text)}
    found: dict[str, int | None] = {}
    for node in ast.parse(text).body:
        decorators = " ".join(map(ast.unparse, getattr(node, "decorator_list", [])))
        name = None
        if isinstance(node, ast.FunctionDef) and ("wrong" in decorators or "torch.compile" in decorators):
            name = node.name
        elif isinstance(node, ast.ClassDef) and node.name == "Switched":
            name = f"{node.name}.forward"
        if name is not None:
            within = range(node.lineno, (node.end_lineno or node.lineno) + 1)
            line = next((line for line in within if lines[line - 1].endswith("# wrong")), None)
            found[name] = named.get(name, line)
    return found


def scores() -> list[Score]:
    """Score each wrong function."""
    return [score for program in WRONG for score in _scores(program)]


def _scores(program: str) -> Iterator[Score]:
    _, calls = compared(program)
    for name, line in marked_lines(program).items():
        body = next((each for each in calls if each["function"] == name and not each["same"]), {})
        stage = body.get("stage")
        is_stage = stage == STAGES[name] if name in STAGES else stage is not None and stage not in _OTHER_STAGES
        yield Score(name, body.get("compared", bool(body)), body.get("line") == line, is_stage)


def correct_calls(program: str) -> list[dict[str, Any]]:
    """Return the verdict on each call of a correct function, except those that cannot be compared."""
    return [call for call in compared(program)[1] if call["function"] not in NOT_COMPARED]


def false_alarms(program: str) -> list[str]:
    """Return the correct calls with a verdict that they differ, or without a comparison."""
    return [
        f"{each['function']} line {each.get('line')}: {each['verdict']}, {each['outputs']}"
        for each in correct_calls(program)
        if not each["same"]
    ]


def main() -> None:
    """Print the score as a table."""
    found = scores()
    alarms = [each for program in CORRECT_CALLS for each in false_alarms(program)]
    calls = sum(len(correct_calls(program)) for program in CORRECT_CALLS)
    lines = ["| program | differs | line | stage |", "| --- | --- | --- | --- |"]
    lines += [each.row for each in found]
    lines += ["", f"{sum(each.is_right for each in found)} of {len(found)} wrong programs: line and stage are right."]
    lines.append(f"{len(alarms)} false alarms in {calls} calls of correct programs.")
    sys.stdout.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
