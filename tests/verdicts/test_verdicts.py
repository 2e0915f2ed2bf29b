"""``compare`` names line and stage of each known defect, and blames nothing where a function is right."""

from __future__ import annotations

import re

import pytest

from tests.client.environments import need_inductor
from tests.structure.sources import ROOT
from tests.verdicts.scores import NOT_COMPARED, RIGHT, STAGES, WRONG, scores_of_right, scores_of_wrong

pytestmark = pytest.mark.long


def test_each_defect_is_found() -> None:
    need_inductor(WRONG.path.name)
    scores = list(scores_of_wrong())
    assert len(scores) == len(STAGES) >= 38
    assert [(each.function, each.defect, each.said) for each in scores if not each.is_right] == []


def test_no_right_function_is_blamed() -> None:
    need_inductor(RIGHT.path.name)
    scores = list(scores_of_right())
    assert len(scores) >= 30 + len(NOT_COMPARED)
    assert [(each.function, each.said) for each in scores if not each.is_right] == []


def test_the_docs_have_the_scores() -> None:
    page = (ROOT / "docs" / "verdicts.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| .+ \| (\d+) \| (\d+) \|$", page, re.MULTILINE)
    assert sum(int(count) for count, _ in rows[:-1]) == len(STAGES)
    assert all(count == found for count, found in rows)
