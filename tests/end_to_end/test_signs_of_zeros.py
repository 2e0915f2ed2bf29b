"""``dynamo-dap compare`` takes zeros with different signs for the same, but reports them."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from msgspec import json

from dynamo_dap.protocol.requests.comparisons import ComparisonBody
from tests.client.environments import own_command
from tests.client.timeline import DEADLINE

PROGRAM = """
import torch

def dropping_signs(graph, inputs):
    return lambda *args: tuple(each + 0.0 for each in graph(*args))

@torch.compile(backend=dropping_signs)
def negated(x):
    return -x

@torch.compile(backend="eager")
def right(x):
    return -x

x = torch.tensor([0.0, 1.0, 0.0, float("nan")])
assert str(negated(x)[0].item()) == "0.0"
right(x)
"""


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write the program and return its path."""
    path = tmp_path_factory.mktemp("zeros") / "program.py"
    path.write_text(PROGRAM, encoding="utf-8")
    return path


def _compared(path: Path, *options: str) -> str:
    words = [*own_command(), "compare", *options, str(path)]
    run = subprocess.run(words, capture_output=True, text=True, timeout=DEADLINE, check=False)
    assert run.returncode == 0, run.stderr
    return run.stdout


def test_zeros_of_another_sign_are_counted(path: Path) -> None:
    """The call counts as the same, but its verdict mentions the zeros."""
    lines = [line for line in _compared(path, "--json").splitlines() if line.startswith("{")]
    found = {body.function: body for body in (json.decode(line, type=ComparisonBody) for line in lines)}
    assert (found["negated"].same, found["negated"].zeros) == (True, 2)
    assert "signs of zeros differ" in found["negated"].verdict
    assert (found["right"].zeros, found["right"].verdict) == (0, "nothing differs.")


def test_the_text_says_so(path: Path) -> None:
    """One of the two calls has such zeros."""
    assert " ".join(_compared(path).split()).count("the signs of zeros differ") == 1
