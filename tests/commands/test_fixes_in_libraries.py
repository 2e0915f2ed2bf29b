"""What ``dynamo-dap fix`` advises where a library breaks the graph: its advice, applied to the program, helps."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from tests.client.environments import own_command

LIBRARY = """
import os

def scaled(x):
    with open(os.devnull) as nothing:
        nothing.read()
    return x * 3
"""
PROGRAM = """
import torch
import gauges

@torch.compile(backend="eager")
def step(x):
    y = x * 2
    z = gauges.scaled(y)
    return z + 1

for number in range(2):
    print(step(torch.arange(4.0) + number).sum().item())
"""
OUTSIDE = PROGRAM.replace(
    """def step(x):
    y = x * 2
    z = gauges.scaled(y)
    return z + 1
""",
    """def doubled(x):
    return x * 2

@torch.compile(backend="eager")
def increased(z):
    return z + 1

def step(x):
    return increased(gauges.scaled(doubled(x)))
""",
)
OPERATOR = PROGRAM.replace(
    "import gauges\n",
    """import gauges

@torch.library.custom_op("gauges::scaled", mutates_args=())
def scaled(x: torch.Tensor) -> torch.Tensor:
    return gauges.scaled(x)

scaled.register_fake(torch.empty_like)
""",
).replace("z = gauges.scaled(y)", "z = scaled(y)")
_BREAKS = re.compile(r"^Graph break count: (\d+)", re.MULTILINE)


def command(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run ``dynamo-dap`` in a folder whose ``site-packages`` has the library."""
    (folder / "site-packages").mkdir(exist_ok=True)
    (folder / "site-packages" / "gauges.py").write_text(LIBRARY, encoding="utf-8")
    environment = {**os.environ, "PYTHONPATH": str(folder / "site-packages")}
    return subprocess.run(
        [*own_command(), *arguments],
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
        cwd=folder,
        env=environment,
    )


def breaks_of(folder: Path, program: str) -> tuple[int, str]:
    """Run a program; return its graph breaks and what it prints."""
    (folder / "train.py").write_text(program, encoding="utf-8")
    ran = command(folder, "run", "train.py")
    assert ran.returncode == 0, ran.stderr
    found = _BREAKS.search(command(folder, "report").stdout)
    assert found is not None
    return int(found[1]), "\n".join(line for line in ran.stdout.splitlines() if line[:1].isdigit())


@pytest.mark.timeout(300)
@pytest.mark.parametrize("place", ["site-packages/gauges.py:5", "train.py:8"])
def test_the_advice_is_given_at_the_librarys_line_and_at_the_call(tmp_path: Path, place: str) -> None:
    """It says why nothing is tried, and names both remedies."""
    breaks_of(tmp_path, PROGRAM)
    answer = command(tmp_path, "fix", place)
    assert answer.returncode == 2
    message = answer.stderr
    assert "gauges.py is a library's file" in message
    assert "outside of the compiled function" in message
    assert "torch.library.custom_op" in message
    assert "called at train.py:8" in message


@pytest.mark.timeout(300)
@pytest.mark.parametrize("program", [OUTSIDE, OPERATOR], ids=["outside", "operator"])
def test_the_advice_helps(tmp_path: Path, program: str) -> None:
    """Either remedy removes all breaks and leaves the results as they were."""
    before, printed = breaks_of(tmp_path, PROGRAM)
    assert before > 0
    assert breaks_of(tmp_path, program) == (0, printed)
