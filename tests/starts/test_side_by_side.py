"""Commands that run at the same time: both are run whole, and the last lines name what failed in either."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.structure.sources import ROOT


def _run(*commands: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tests.side_by_side", *commands]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)


def test_the_last_lines_name_what_failed_in_either() -> None:
    """Also if the other command continues printing after the failure."""
    fails = "echo 'FAILED tests/test_a.py::test_b - 1 == 2'; exit 3"
    runs_long = "for i in $(seq 200); do echo line $i; done"
    for commands in ((fails, runs_long), (runs_long, fails)):
        done = _run(*commands)
        assert done.returncode == 1
        assert done.stdout.count("line 200") == 1
        last = done.stdout.splitlines()[-20:]
        assert "FAILED tests/test_a.py::test_b - 1 == 2" in last
        assert any(line.endswith("exit status 3") for line in last)


def test_commands_run_at_the_same_time_and_all_may_pass(tmp_path: Path) -> None:
    """Each waits for a file that the other one makes."""
    one, other = tmp_path / "one", tmp_path / "other"
    meet = "touch {}; while ! test -e {}; do sleep 0.01; done; echo met"
    done = _run(meet.format(one, other), meet.format(other, one))
    assert done.returncode == 0
    assert done.stdout.split() == ["met", "met"]
