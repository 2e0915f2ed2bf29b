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


def test_the_last_twenty_lines_have_all_kinds_of_failures_and_where_more_is_known() -> None:
    """Of pytest, which names some of its failures itself, and of the browser's tests."""
    of_python = "for i in $(seq 15); do echo FAILED python $i; done; echo ... and 20 more; echo KEPT logs: /a; exit 1"
    of_browser = "for i in $(seq 3); do echo FAILED browser $i; done; echo KEPT logs: /b; exit 2"
    done = _run(of_python, of_browser)
    printed = done.stdout.splitlines()
    last = printed[printed.index(f"{of_python}: exit status 1") :]
    assert len(last) <= 20
    assert [line for line in last if line.startswith("FAILED python")] == [f"FAILED python {n}" for n in range(1, 7)]
    assert [line for line in last if line.startswith("FAILED browser")] == [f"FAILED browser {n}" for n in range(1, 4)]
    assert [line for line in last if line.startswith("... and")] == ["... and 29 more"]
    assert [line for line in last if line.startswith("KEPT")] == ["KEPT logs: /a", "KEPT logs: /b"]
    assert f"{of_browser}: exit status 2" in last


def test_commands_run_at_the_same_time_and_all_may_pass(tmp_path: Path) -> None:
    """Each waits for a file that the other one makes."""
    one, other = tmp_path / "one", tmp_path / "other"
    meet = "touch {}; while ! test -e {}; do sleep 0.01; done; echo met"
    done = _run(meet.format(one, other), meet.format(other, one))
    assert done.returncode == 0
    assert done.stdout.split() == ["met", "met"]
