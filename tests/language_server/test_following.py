"""Which record is followed while programs make new ones."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from dynamo_dap.language_server.following import RecordFollower
from dynamo_dap.protocol.requests.contract import RECORDS_VARIABLE
from dynamo_dap.records.events import VERSION, Started
from dynamo_dap.records.file import RecordWriter
from dynamo_dap.records.folders import new_name

OLD, NEW = "20260101-000000-000000001-1.jsonl", "20260101-000000-000000002-1.jsonl"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the records of programs that ran in ``tmp_path``."""
    monkeypatch.setenv(RECORDS_VARIABLE, str(tmp_path / "records"))
    return tmp_path / "records" / "program"


def write(path: Path, root: Path) -> None:
    RecordWriter(path).write(Started(VERSION, 1.0, 1, ["program.py"], str(root), "3.11"))


def test_a_record_that_is_being_written_is_followed_later(folder: Path, tmp_path: Path) -> None:
    follower = RecordFollower(lambda: [tmp_path])
    write(folder / OLD, tmp_path)
    text = (folder / OLD).read_bytes()
    for written in (b"", text[:10]):
        (folder / NEW).write_bytes(written)
        follower.poll()
        assert follower.path == folder / OLD
    (folder / NEW).write_bytes(text)
    follower.poll()
    assert follower.path == folder / NEW


def test_a_record_made_within_the_resolution_of_the_folders_time_is_found(folder: Path, tmp_path: Path) -> None:
    follower = RecordFollower(lambda: [tmp_path])
    write(folder / OLD, tmp_path)
    listed = folder.stat()
    follower.poll()
    write(folder / NEW, tmp_path)
    os.utime(folder, ns=(listed.st_atime_ns, listed.st_mtime_ns))
    follower.poll()
    assert follower.path == folder / NEW


def test_names_sort_by_time_where_a_second_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = 1_800_000_000
    names = []
    for now in (seconds * 10**9 - 1, seconds * 10**9):
        monkeypatch.setattr(time, "time_ns", lambda now=now: now)
        names.append(new_name())
    assert names == sorted(names)
    assert [name.split("-")[2] for name in names] == ["999999999", "000000000"]
