"""Temporary folders: private, and cleared away after servers that could not do it themselves."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from dynamo_dap.server.launching.own_folder import make_folder


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return tmp_path


def a_dead_process() -> int:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def folder(path: Path, *, hours: float) -> Path:
    path.mkdir()
    (path / "cell").touch()
    when = path.stat().st_mtime - hours * 3600
    os.utime(path, (when, when))
    return path


def test_a_folder_is_the_users_alone(temporary: Path) -> None:
    made = make_folder()
    assert made.parent == temporary
    assert made.stat().st_mode & 0o077 == 0


def test_folders_of_dead_servers_are_removed(temporary: Path) -> None:
    dead = a_dead_process()
    old = folder(temporary / f"dynamo-dap-{dead}-abc", hours=2)
    fresh = folder(temporary / f"dynamo-dap-{dead}-def", hours=0)
    alive = folder(temporary / f"dynamo-dap-{os.getpid()}-abc", hours=2)
    foreign = folder(temporary / "dynamo-dap-notes", hours=2)
    make_folder()
    assert [path.exists() for path in (old, fresh, alive, foreign)] == [False, True, True, True]
