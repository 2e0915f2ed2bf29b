"""Runs the programs of ``fixtures/verdicts`` and scores what ``dynamo-dap compare`` says of each function.

``python -m tests.verdicts.scores`` prints the table that ``docs/verdicts.md`` holds.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import msgspec

from dynamo_dap.protocol.contract import ComparisonBody
from tests.client import FIXTURES, Fixture
from tests.client.timeline import DEADLINE

WRONG, RIGHT = Fixture(FIXTURES / "verdicts" / "wrong.py"), Fixture(FIXTURES / "verdicts" / "right.py")
BACKEND, INDUCTOR, DECOMPOSITION, DYNAMO = "backend", "inductor", "decomposition", "Dynamo"
FAKE, OPERATOR = "fake kernel", "custom operator"

STAGES = {
    **dict.fromkeys(
        (
            "seven_for_nan",
            "nan_for_a_number",
            "inf_for_a_number",
            "other_sign_of_inf",
            "zeros_for_small_values",
            "one_percent_of_tiny_values",
            "written_after_it_was_made",
            "one_in_a_million",
            "a_thousandth",
            "six_percent_in_bfloat16",
            "a_hundredth_in_half",
            "integers_off_by_one",
            "booleans_turned",
            "outputs_swapped",
            "turned_around",
            "another_type",
            "another_write",
            "only_the_input_is_wrong",
            "an_input_is_clobbered",
            "a_billionth_in_double",
            "conjugated",
            "in_the_middle",
            "too_short",
            "one_of_huge_values",
            "small_beside_large",
        ),
        BACKEND,
    ),
    **dict.fromkeys(("wrong_decomposition", "wrong_decomposition_later"), DECOMPOSITION),
    **dict.fromkeys(("wrong_lowering_of_sine", "wrong_lowering_of_a_maximum", "wrong_pass", "wrong_code"), INDUCTOR),
    **dict.fromkeys(
        ("another_function_is_traced", "another_function_is_traced_with_aot", "a_side_effect_is_wrong"), DYNAMO
    ),
    **dict.fromkeys(("fake_of_another_type", "fake_of_other_strides"), FAKE),
    "writes_unsaid": OPERATOR,
}
"""The functions of ``wrong.py`` and the stage that each has its defect in."""
_WITHOUT_LINE = {"an_input_is_clobbered"}
"""Functions whose defect is not of a line."""
NOT_COMPARED = {"dropout_of_inductor", "shared_inputs"}
"""Functions of ``right.py`` for which a reason is given in place of a verdict."""


@dataclass(frozen=True)
class Score:
    """What was said of a function, and whether that is so."""

    function: str
    defect: str
    said: str
    is_right: bool


def compared(program: Fixture) -> dict[str, ComparisonBody]:
    """Run a program under ``compare``; return what it says by function."""
    command = [sys.executable, "-m", "dynamo_dap", "compare", "--json", str(program.path)]
    run = subprocess.run(command, capture_output=True, text=True, timeout=2 * DEADLINE, env=os.environ, check=False)
    bodies = [msgspec.json.decode(line, type=ComparisonBody) for line in run.stdout.splitlines() if line[:1] == "{"]
    assert bodies, run.stderr
    return {body.function: body for body in bodies}


def scores_of_wrong() -> Iterator[Score]:
    """Yield the score of each function that is wrong: the stage and the line must be named."""
    found = compared(WRONG)
    for function, stage in STAGES.items():
        body = found.get(function)
        if body is None:
            yield Score(function, stage, "not compared", is_right=False)
            continue
        known = {INDUCTOR, DECOMPOSITION, DYNAMO, "AOTAutograd", FAKE, OPERATOR, None}
        said = body.stage if body.stage in known else BACKEND
        line = None if function in _WITHOUT_LINE else WRONG.line(function)
        place = "" if body.line in (None, line) else f" in line {body.line}"
        yield Score(function, stage, "the same" if body.same else f"{said}{place}", said == stage and line == body.line)


def scores_of_right() -> Iterator[Score]:
    """Yield the score of each function that is right: nothing may be blamed."""
    found = compared(RIGHT)
    for function in found.keys() | NOT_COMPARED:
        body = found.get(function)
        said = "not compared" if body is None else "the same" if body.same else f"differs: {body.verdict}"
        yield Score(function, "none", said, said == ("not compared" if function in NOT_COMPARED else "the same"))


def table() -> str:
    """Return the scores as the docs have them."""
    wrong, right = list(scores_of_wrong()), list(scores_of_right())
    lines = ["| defect in | functions | line and stage found |", "| --- | --- | --- |"]
    known = Counter(each.defect for each in wrong)
    found = Counter(each.defect for each in wrong if each.is_right)
    lines += [f"| {stage} | {count} | {found[stage]} |" for stage, count in known.items()]
    compared_right = [each for each in right if each.function not in NOT_COMPARED]
    count = sum(each.is_right for each in compared_right)
    lines.append(f"| nothing: the function is right | {len(compared_right)} | {count} |")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.stdout.write(table() + "\n")
