"""Token files: found by their own user for the program they belong to, and by nobody else."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from dynamo_dap.protocol.access.access_tokens import read_token_file, write_token_file
from tests.client.timeline import DEADLINE


@pytest.fixture(autouse=True)
def own_directories(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep to directories of the test."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "runtime"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))


def test_a_token_is_found_by_address() -> None:
    path = write_token_file("127.0.0.1", 5678, "secret")
    assert read_token_file("127.0.0.1", 5678) == "secret"
    assert read_token_file("localhost", 5678) == "secret"
    assert read_token_file("127.0.0.1", 5679) is None
    assert Path(path).stat().st_mode & 0o777 == 0o600
    assert Path(path).parent.stat().st_mode & 0o777 == 0o700


def test_a_token_is_never_sent_to_another_machine() -> None:
    write_token_file("0.0.0.0", 5678, "secret")
    assert read_token_file("127.0.0.1", 5678) == "secret"
    assert read_token_file("192.0.2.1", 5678) is None
    assert read_token_file("example.org", 5678) is None


def test_files_that_others_can_read_or_that_are_links_are_not_believed(tmp_path: Path) -> None:
    path = Path(write_token_file("127.0.0.1", 5678, "secret"))
    path.chmod(0o644)
    assert read_token_file("127.0.0.1", 5678) is None
    path.chmod(0o600)
    elsewhere = tmp_path / "elsewhere.json"
    path.rename(elsewhere)
    path.symlink_to(elsewhere)
    assert read_token_file("127.0.0.1", 5678) is None


def test_a_directory_that_others_can_write_to_is_not_used() -> None:
    first = Path(write_token_file("127.0.0.1", 5678, "secret"))
    first.parent.chmod(0o777)
    assert read_token_file("127.0.0.1", 5678) is None
    second = Path(write_token_file("127.0.0.1", 5678, "other"))
    assert second.parent != first.parent
    assert read_token_file("127.0.0.1", 5678) == "other"


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a file away")
def test_files_of_other_users_are_not_believed() -> None:
    path = Path(write_token_file("127.0.0.1", 5678, "secret"))
    os.chown(path, 65534, 65534)
    assert read_token_file("127.0.0.1", 5678) is None


def test_the_file_of_a_program_that_is_gone_is_removed() -> None:
    write = (
        "from dynamo_dap.protocol.access.access_tokens import write_token_file; "
        "print(write_token_file('127.0.0.1', 5, 't'))"
    )
    ran = subprocess.run([sys.executable, "-c", write], capture_output=True, text=True, timeout=DEADLINE, check=True)
    path = Path(ran.stdout.strip())
    assert path.exists()
    assert read_token_file("127.0.0.1", 5) is None
    assert not path.exists()


def test_the_file_of_another_machine_that_shares_the_home_is_kept() -> None:
    path = Path(write_token_file("127.0.0.1", 5678, "secret"))
    content = json.loads(path.read_text())
    path.write_text(json.dumps({**content, "machine": "another", "pid": 2**22 + 1}))
    read_token_file("127.0.0.1", 5678)
    assert path.exists()


@pytest.mark.parametrize("content", ["", "no json", "[]", '{"token": 5}', "{}"])
def test_a_broken_file_is_no_trouble(content: str) -> None:
    path = Path(write_token_file("127.0.0.1", 5678, "secret"))
    path.write_text(content)
    assert read_token_file("127.0.0.1", 5678) is None
