"""What a run of the tests leaves of those that failed: a folder for each, and the last lines."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.structure.sources import ROOT

CONFTEST = """\
from pathlib import Path
from tests import failures
from tests.conftest import (
    new_session,
    pytest_collectreport,
    pytest_configure,
    pytest_runtest_makereport,
    pytest_terminal_summary,
    session,
)

failures.FOLDER = Path(__file__).parent / "failures"  # that of this run belongs to this run
"""
FAILS = """\
def test_it(session):
    session.launch("plain")
    assert session.wait_for_exit() == 7

def test_that():
    pass
"""
IS_BROKEN = "import no_such_module\n"


@pytest.mark.parametrize("workers", ["0", "2"])
def test_a_failed_test_leaves_its_transcript_and_log(tmp_path: Path, workers: str) -> None:
    """The last lines name it, and a file that cannot be imported, too."""
    for name, text in {"conftest.py": CONFTEST, "test_a.py": FAILS, "test_b.py": IS_BROKEN}.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = -rsxX\n")
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-n",
        workers,
        "--continue-on-collection-errors",
        "-p",
        "no:randomly",
    ]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    environment["PYTHONPATH"] = os.pathsep.join([str(ROOT), str(ROOT / "adapter")])
    run = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    last = run.stdout.splitlines()[-20:]
    assert [line.partition(" - ")[0] for line in last if line.startswith("FAILED")] == [
        "FAILED test_a.py::test_it",
        "FAILED test_b.py",
    ], run.stdout
    assert f"KEPT transcripts and logs of what failed: {tmp_path / 'failures'}" in last
    folder = tmp_path / "failures"
    assert {one.name for one in folder.iterdir()} == {"test_a.py_test_it", "test_b.py"}
    assert "no_such_module" in (folder / "test_b.py" / "collect.txt").read_text()
    kept = {one.name: one.read_text() for one in (folder / "test_a.py_test_it").iterdir()}
    assert kept.keys() == {"call.txt", "session-1.log", "session-1.transcript.txt"}
    assert "== 7" in kept["call.txt"]
    assert '"command": "launch"' in kept["session-1.transcript.txt"]
    assert "from IDE: request" in kept["session-1.log"]
