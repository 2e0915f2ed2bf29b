"""The exception filter ``nan`` on programs with a known culprit, and on correct ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.client import Session
from tests.client.environments import need_inductor
from tests.end_to_end.culprits import CORRECT, WRONG, correct_programs, culprits, scores, stops_in


def test_the_logarithm_of_a_negative_number_is_the_first_stop(session: Session) -> None:
    """One of the programs below, without Inductor."""
    (reported,) = stops_in(session, "forward.py", "log_of_negative")
    assert (reported.line, reported.kind) == culprits("forward.py")["log_of_negative"]


PAGE = Path(__file__).parents[2] / "docs" / "nan-score.md"
OF_CALLERS = {"data_with_nan", "later_data_with_nan", "optimizer_in_a_step"}
"""The thread is in a traced function, and the text names the line that calls it."""


@pytest.mark.long
@pytest.mark.timeout(300)
@pytest.mark.parametrize("program", WRONG)
def test_the_first_stop_names_line_and_kind(session: Session, program: str) -> None:
    """Each program stops at the line that made the first NaN or Inf."""
    need_inductor("programs on Inductor")
    assert sum(len(culprits(each)) for each in WRONG) >= 40
    reported = stops_in(session, program)
    assert [each for each in scores(program, reported) if not each.is_right] == []
    rows = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("| `")]
    count = len(culprits(program))
    of_program = rows[:count] if program == WRONG[0] else rows[-count:]
    assert of_program == [each.row for each in scores(program, reported)], "the docs have the output of the command"
    assert len(rows) == sum(len(culprits(each)) for each in WRONG)
    firsts = {each.name: each for each in reversed(reported)}
    elsewhere = {name for name, each in firsts.items() if each.frames[0] != each.line}
    assert elsewhere <= OF_CALLERS, "the thread is at the line that the text names"
    assert program == "backward.py" or any(" in forward of self.layers.1: " in each.text for each in reported)


@pytest.mark.long
@pytest.mark.timeout(300)
def test_correct_programs_do_not_stop(session: Session) -> None:
    """They have intended NaN and Inf: in masks, markers, padding and buffers."""
    need_inductor("programs on Inductor")
    assert correct_programs() >= 10
    assert stops_in(session, CORRECT) == []
