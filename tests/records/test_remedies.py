"""Each cause with a known remedy: the record suggests it, and it helps without changing the result."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.records.advice_score import ran, score
from tests.records.remedies import PROGRAMS, Program

PAGE = Path(__file__).parents[2] / "docs" / "advice-score.md"


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Return the facts about all programs, before and after their remedies, from one process."""
    return ran(tmp_path_factory.mktemp("programs"), "tests.records.remedies")


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda one: one.name)
def test_the_advice_names_what_helps(found: dict[str, Any], program: Program) -> None:
    check_advice(found[program.name], program)


def check_advice(one: dict[str, Any], program: Program) -> None:
    """Check that the report names the remedy, and that the remedy helps."""
    assert one["after"] is not None
    found = score(one, program)
    assert found.is_named, (one["settings"], one["advice"], one["titles"], one["lines"])
    assert found.helps, (found.before, found.after)


def test_the_page_has_the_score(found: dict[str, Any]) -> None:
    """The table in the docs is the output of the command."""
    rows = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("| `")]
    assert rows == [score(found[program.name], program).row for program in PROGRAMS]


def test_what_needs_the_number_itself_is_not_to_be_marked(found: dict[str, Any]) -> None:
    for name in ("loop_over_a_number", "loop_over_a_size", "loop_over_data", "asked_for_a_size", "parameter_given"):
        advice = found[name]["advice"]
        assert not any("mark_dynamic" in line or "dynamic=True" in line for line in advice), (name, advice)


def test_a_parameter_of_another_dtype_gets_no_advice_on_sizes(found: dict[str, Any]) -> None:
    one = found["parameter_of_another_dtype"]
    assert not one["settings"]
    assert not any("static_shapes" in line for line in one["advice"])
