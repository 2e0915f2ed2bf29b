"""``python -m dynamo_dap`` imports nothing from the folder that it is started in."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.client.timeline import DEADLINE


def test_modules_of_the_workspace_are_not_imported(tmp_path: Path) -> None:
    """A workspace from another user can hold a module with the name of a library that the debugger uses."""
    for name in ("msgspec", "argparse"):
        (tmp_path / f"{name}.py").write_text("import pathlib\npathlib.Path('ran').touch()\n")
    command = [sys.executable, "-m", "dynamo_dap", "--help"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=DEADLINE, check=False)
    assert done.returncode == 0, done.stderr
    assert not (tmp_path / "ran").exists()
