"""Each cause with a known remedy: the record suggests it, and it helps without changing the result."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.client.timeline import DEADLINE
from tests.records import model_remedies
from tests.records.remedies import PROGRAMS, Program


def _ran(folder: Path, module: str) -> dict[str, Any]:
    ran = subprocess.run(
        [sys.executable, "-m", "tests.records.run_remedies", str(folder), module],
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    found: dict[str, Any] = json.loads(ran.stdout.splitlines()[-1])
    return found


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What one process recorded of all programs, before and after."""
    return _ran(tmp_path_factory.mktemp("programs"), "remedies")


@pytest.fixture(scope="module")
def found_of_models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The same of models of transformers."""
    pytest.importorskip("transformers", reason="the models are transformers'")
    return _ran(tmp_path_factory.mktemp("models"), "model_remedies")


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda one: one.name)
def test_the_advice_names_what_helps(found: dict[str, Any], program: Program) -> None:
    _check(found[program.name], program)


@pytest.mark.parametrize("program", model_remedies.PROGRAMS, ids=lambda one: one.name)
def test_the_advice_on_a_model_names_what_helps(found_of_models: dict[str, Any], program: Program) -> None:
    _check(found_of_models[program.name], program)


def _check(one: dict[str, Any], program: Program) -> None:
    assert not program.setting or program.setting in one["settings"]
    assert any(program.advice in line for line in one["advice"]), one["advice"]
    assert any(program.cause in title for title in one["titles"]), one["titles"]
    assert any(program.origin in line for line in one["lines"]), one["lines"]
    before, after = one["before"], one["after"]
    assert after is not None
    assert after["results"] == before["results"]
    keys = ("breaks", "recompiles", "limits")
    if before["limits"]:
        # What reached the limit ran eagerly: it may be compiled more often once it does not.
        assert after["limits"] == 0
    else:
        assert all(after[key] <= before[key] for key in keys)
        assert any(after[key] < before[key] for key in keys)


def test_what_needs_the_number_itself_is_not_to_be_marked(found: dict[str, Any]) -> None:
    for name in ("loop_over_a_number", "loop_over_a_size", "asked_for_a_size", "parameter_given"):
        advice = found[name]["advice"]
        assert not any("mark_dynamic" in line or "dynamic=True" in line for line in advice), (name, advice)


def test_a_parameter_of_another_dtype_gets_no_advice_on_sizes(found: dict[str, Any]) -> None:
    one = found["parameter_of_another_dtype"]
    assert not one["settings"]
    assert not any("static_shapes" in line for line in one["advice"])
