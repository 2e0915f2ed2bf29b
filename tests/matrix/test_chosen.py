"""Which combinations ``make test-matrix`` runs."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess

import pytest

from tests.matrix import run


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ([], list(run.COMBINATIONS)),
        (["TORCH=2.15.0"], [run.Combination(run.NEWEST_PYTHON, "torch==2.15.0")]),
        (["TORCH=torch==2.15.0"], [run.Combination(run.NEWEST_PYTHON, "torch==2.15.0")]),
        (["TORCH=2.15.0", "ARGUMENTS=--only 3.14"], [run.Combination("3.14", "torch==2.15.0")]),
        (["ARGUMENTS=--only 3.14"], [run.Combination("3.14", "torch")]),
    ],
)
def test_make_passes_on_what_it_was_given(given: list[str], expected: list[run.Combination]) -> None:
    """The Makefile's own torch is that of ``make setup``."""
    if shutil.which("make") is None:
        pytest.skip("make is not installed")
    environment = {name: value for name, value in os.environ.items() if name not in ("TORCH", "MAKEFLAGS", "ARGUMENTS")}
    command = ["make", "--dry-run", "--silent", "-C", str(run.ROOT), "test-matrix", *given]
    reported = subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout
    words = shlex.split(reported)
    options = run.parser().parse_args(words[words.index("tests/matrix/run.py") + 1 :])
    assert run.chosen(options.only, options.torch) == expected
