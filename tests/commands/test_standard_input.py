"""Programs read the command's standard input under every command; with several runs, each run reads all of it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.client.environments import python_option
from tests.client.timeline import DEADLINE

PROGRAM = """\
import sys
import torch

@torch.compile(backend="eager")
def fn(x):
    return x * 2

sizes = [int(size) for size in input().split()]
with open("read", "a") as file:
    file.write(f"{sizes} {sys.stdin.read()}\\n")
for size in sizes:
    print(fn(torch.ones(size)).sum())
"""
INPUT = "3 5\nthe rest"
READ = "[3, 5] the rest"


def _ran(folder: Path, command: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-m", "dynamo_dap", command, *python_option(folder / "program.py"), *arguments]
    return subprocess.run(
        words,
        cwd=folder,
        env={**os.environ, "DYNAMO_DAP_RECORDS": str(folder / "records")},
        input=INPUT,
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
    )


def _what_was_read(folder: Path) -> list[str]:
    return (folder / "read").read_text(encoding="utf-8").splitlines()


@pytest.mark.parametrize(
    ("command", "arguments", "status", "runs"),
    [
        ("run", (), 0, 1),
        ("explore", (), 0, 1),
        ("entries", (), 0, 1),
        ("forecast", ("--no-verify",), 0, 1),
        ("forecast", ("--range", "1:20"), 0, 3),
        ("profile", (), 0, 1),
        ("check", ("--max-recompiles", "1"), 0, 1),
        ("compare", (), 0, 1),
        ("record-call", ("--folder", "saved"), 0, 1),
        ("diff", (), 0, 2),
        ("diff", ("--caches",), 2, 2),
    ],
)
def test_every_run_of_a_program_reads_the_commands_input(
    tmp_path: Path, command: str, arguments: tuple[str, ...], status: int, runs: int
) -> None:
    (tmp_path / "program.py").write_text(PROGRAM, encoding="utf-8")
    ran = _ran(tmp_path, command, *arguments, "program.py")
    assert ran.returncode == status, ran.stderr
    assert _what_was_read(tmp_path) == [READ] * runs
    assert "the program ended with status" not in ran.stdout


def test_the_runs_of_two_revisions_read_the_same_input(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM.replace('"read"', repr(str(tmp_path / "read"))), encoding="utf-8")
    for words in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "a"]):
        subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@b", *words], cwd=tmp_path, check=True)
    ran = _ran(tmp_path, "diff", "--revisions", "HEAD", "HEAD", "program.py")
    assert ran.returncode == 0, ran.stderr
    assert _what_was_read(tmp_path) == [READ] * 2
