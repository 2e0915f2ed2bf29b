"""A fix is tried on a copy: the program runs without and with it, what became another is told; then it is applied."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from dynamo_dap.protocol.contract import RECORDS_VARIABLE
from tests.client.fixtures import Fixture
from tests.language_server.editor import Editor, run

MODEL = """\
import torch


@torch.compile(backend="eager")
def fn(x, steps):
    y = x + 1
    steps.append(1)
    torch._dynamo.graph_break()  #@broken
    return y * 2


@torch.compile(backend="eager")
def other(x):
    return x * 2  #@sized
"""
PROGRAM = """\
import torch
from model import fn, other

steps = []
total = fn(torch.ones(3), steps)
for n in (3, 5):
    rows = torch.ones(n, 2)
    other(rows)
print("total", total.sum().item(), "steps", len(steps))
"""


@pytest.fixture
def program(tmp_path: Path) -> Path:
    """A program whose compiled functions are in a module beside it."""
    (tmp_path / "model.py").write_text(MODEL, encoding="utf-8")
    path = tmp_path / "program.py"
    path.write_text(PROGRAM, encoding="utf-8")
    run(path, tmp_path / "records")
    return path


def _fix(program: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "dynamo_dap", "fix", *arguments],
        env={**os.environ, RECORDS_VARIABLE: str(program.parent / "records")},
        cwd=program.parent,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )


def _row(output: str, name: str) -> list[str]:
    return next(line for line in output.splitlines() if line.strip().startswith(name)).split()[-2:]


def test_a_fix_is_tried_on_a_copy_and_applied_when_it_is_proven(program: Path) -> None:
    model = program.with_name("model.py")
    place = f"model.py:{Fixture(model).line('broken')}"
    tried = _fix(program, place)
    assert tried.returncode == 0, tried.stderr + tried.stdout
    assert "Remove torch._dynamo.graph_break()" in tried.stdout
    assert _row(tried.stdout, "graph breaks") == ["1", "0"]
    assert _row(tried.stdout, "exit status") == ["0", "0"]
    assert "It helps, and the result is the same." in tried.stdout
    assert model.read_text(encoding="utf-8") == MODEL, "the file is the user's until the fix is applied"
    assert not list(program.parent.glob("__pycache__/*.broken*"))

    applied = _fix(program, place, "--apply")
    assert f"Edited {model}" in applied.stdout
    assert "graph_break" not in model.read_text(encoding="utf-8")
    # What was tried left no bytecode behind that would be taken for the file's.
    again = subprocess.run(
        [sys.executable, program.name], cwd=program.parent, capture_output=True, text=True, check=True
    )
    assert "total 12.0 steps 1" in again.stdout


def test_an_edit_of_the_caller_takes_the_recompile_away(program: Path) -> None:
    tried = _fix(program, f"model.py:{Fixture(program.with_name('model.py')).line('sized')}")
    assert tried.returncode == 0, tried.stderr + tried.stdout
    assert _row(tried.stdout, "recompiles") == ["1", "0"]
    assert "+    torch._dynamo.maybe_mark_dynamic(rows, 0)" in tried.stdout


def test_another_result_is_told_and_nothing_is_applied(program: Path) -> None:
    """A program that looks at its own source gives another result when it is edited."""
    told = "\nprint('lines', len(__import__('inspect').getsource(__import__('model')).splitlines()))\n"
    program.write_text(PROGRAM + told, encoding="utf-8")
    run(program, program.parent / "records")
    model = program.with_name("model.py")
    tried = _fix(program, f"model.py:{Fixture(model).line('broken')}", "--apply")
    assert tried.returncode == 1
    count = len(MODEL.splitlines())
    assert f"it prints 'lines {count - 1}' instead of 'lines {count}'" in tried.stdout, tried.stdout
    assert "Nothing was edited" in tried.stdout
    assert model.read_text(encoding="utf-8") == MODEL


def test_what_cannot_be_tried_says_why(program: Path) -> None:
    for arguments, text in (
        (("model.py:1",), "nothing is known to do at"),
        (("model.py",), "give a place as FILE:LINE"),
        (("nowhere.py:3",), "there is no file nowhere.py"),
    ):
        told = _fix(program, *arguments)
        assert told.returncode == 2
        assert text in told.stderr


def test_an_editor_tries_a_fix_and_prefers_it_then(program: Path) -> None:
    model = program.with_name("model.py")
    line = Fixture(model).line("broken")
    with Editor(program.parent, program.parent / "records") as editor:
        editor.open(model)
        editor.wait("the break", lambda: bool(editor.at(model, line, "GB0025")))
        (diagnostic,) = editor.at(model, line, "GB0025")
        actions = editor.actions(model, diagnostic)
        title = "Remove torch._dynamo.graph_break()"
        assert not actions[title].is_preferred
        command = actions[f"Try this fix: {title}"].command
        assert command is not None
        editor.execute(command)
        editor.wait("the trial", lambda: bool(editor.actions(model, diagnostic)[title].is_preferred))
    assert model.read_text(encoding="utf-8") == MODEL
