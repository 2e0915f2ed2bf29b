"""Causes in models of transformers with a known remedy: as ``tests.records.test_remedies`` for small functions."""

from __future__ import annotations

from typing import Any

import pytest

from tests.models.model_remedies import PROGRAMS
from tests.records.advice_score import ran
from tests.records.remedies import Program
from tests.records.test_remedies import check_advice

pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What one process recorded of all programs, before and after."""
    return ran(tmp_path_factory.mktemp("models"), "tests.models.model_remedies")


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda one: one.name)
def test_the_advice_on_a_model_names_what_helps(found: dict[str, Any], program: Program) -> None:
    check_advice(found[program.name], program)
