"""``dynamo-dap diff --revisions`` runs one command with the files of two git revisions."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from dynamo_dap.commands.diff import main
from tests.client.zygote import python

HELPER = "def helper(x):\n    return x.relu() + 1\n"
PROGRAM = """\
import torch
from helpers import helper

@torch.compile(backend="eager")
def f(x):
    return helper(x)

print(f(torch.ones(3)).sum().item())
"""


def _git(folder: Path, *arguments: str) -> str:
    identity = ["-c", "user.name=A", "-c", "user.email=a@example.com"]
    ran = subprocess.run(["git", *identity, *arguments], cwd=folder, capture_output=True, check=True, text=True)
    return ran.stdout


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder below the top of a repository, with two revisions and a change that is not committed."""
    _git(tmp_path, "init", "-q")
    folder = tmp_path / "job"
    folder.mkdir()
    (folder / "train.py").write_text(PROGRAM)
    for text in (HELPER, HELPER.replace("+ 1", "+ 2")):
        (folder / "helpers.py").write_text(text)
        _git(tmp_path, "add", "-A")
        _git(tmp_path, "commit", "-qm", "a")
    (folder / "helpers.py").write_text("an edit that nobody may lose")
    monkeypatch.chdir(folder)
    return folder


def test_the_line_that_a_commit_changed_is_found(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = _git(folder, "status", "--porcelain"), _git(folder, "worktree", "list")
    assert main(["--revisions", "HEAD~1", "HEAD", "--python", *python(), "train.py"]) == 1
    printed = capsys.readouterr().out
    assert "First difference: the graph of f" in printed
    assert "helpers.py:2  return x.relu() + 1\n" in printed
    assert "helpers.py:2  return x.relu() + 2\n" in printed
    assert (_git(folder, "status", "--porcelain"), _git(folder, "worktree", "list")) == before


@pytest.mark.usefixtures("folder")
def test_one_revision_is_equal_to_itself(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--revisions", "HEAD", "HEAD", "--python", *python(), "train.py"]) == 0
    assert capsys.readouterr().out.startswith("No difference")


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("revisions", "program", "says"),
    [
        (["HEAD", "nothing"], "train.py", "Needed a single revision"),
        (["HEAD", "HEAD~1"], "other.py", "the file does not exist"),
        (["HEAD", "HEAD~1"], "/train.py", "the same file in both revisions"),
    ],
)
def test_what_cannot_be_run_is_refused(
    revisions: list[str], program: str, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--revisions", *revisions, program]) == 2
    assert says in capsys.readouterr().err
