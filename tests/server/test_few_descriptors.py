"""A debugger that may open few files says so, in one line, wherever it runs short."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.client.timeline import DEADLINE
from tests.server.programs import write

DEBUG = [sys.executable, "-m", "dynamo_dap", "debug"]


@pytest.mark.parametrize("limit", [6, 8, 9, 10, 12, 16, 64])
def test_a_shortage_of_descriptors_is_reported(tmp_path: Path, limit: int) -> None:
    """The command runs short at 6 and 8, the server at 9 and 10, the start of the program up to 16."""
    program = write(tmp_path, "value = 1\nprint('ran', value)\n")
    command = [*DEBUG, str(program), "--break", f"{program}:2", "--command", "continue"]
    ran = subprocess.run(
        ["sh", "-c", f'ulimit -n {limit}; exec "$@"', "sh", *command],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
    )
    reported = ran.stdout + ran.stderr
    if limit == 64:
        assert (ran.returncode, "ran 1" in reported) == (0, True), reported
        return
    assert ran.returncode != 0
    (line,) = reported.strip().splitlines()
    assert "Too many open files" in line
    assert line.endswith("raise the limit with 'ulimit -n'")
