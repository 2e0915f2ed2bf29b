"""The quick fix of a branch on a tensor while the program is stopped there, also in a function that is called."""

from __future__ import annotations

from pathlib import Path

import pytest
from lsprotocol import types

from dynamo_dap.protocol.requests.contract import RECORDS_VARIABLE
from tests.client import Fixture, Session
from tests.client.environments import alone
from tests.language_server.editor import Editor

PROGRAM = """\
import torch


def damped(x):
    if x.norm() > 3:  #@called
        return x / 2
    return x


@torch.compile(backend="eager")
def step(x):
    y = damped(x)
    return y + 1


@torch.compile(backend="eager")
def gate(x):
    scale = x * 2 if x.mean() > 0 else x  #@own
    return scale.cos()


for x in (torch.ones(4), torch.full((4,), 9.0), -torch.ones(4)):
    print(FUNCTION(x).sum().item())
"""


@pytest.mark.parametrize(("function", "marker"), [("step", "called"), ("gate", "own")])
def test_a_branch_on_a_tensor_becomes_a_cond_at_its_stop(
    session: Session, tmp_path: Path, function: str, marker: str
) -> None:
    program, records = tmp_path / "branches.py", tmp_path / "records"
    program.write_text(PROGRAM.replace("FUNCTION", function), encoding="utf-8")
    plain = alone(program).stdout
    line = Fixture(program).line(marker)
    with Editor(tmp_path, records) as editor:
        with session.launching(Fixture(program), cwd=str(tmp_path), env={RECORDS_VARIABLE: str(records)}):
            session.request("setExceptionBreakpoints", {"filters": ["graph-break"]})
        session.wait_for_stop("exception", at=marker)
        editor.wait("the break", lambda: bool(editor.at(program, line)))
        actions = editor.actions(program, editor.at(program, line)[0])
        (action,) = [each for title, each in actions.items() if "torch.cond" in title]
        assert action.command is not None, "a fix that may not help is tried first"
        editor.answers = True
        editor.execute(action.command)
        editor.wait("the change", lambda: bool(editor.applied))
        session.request("setExceptionBreakpoints", {"filters": []})
        session.resume()
        assert session.wait_for_exit() == 0
        editor.apply(types.CodeAction("", edit=editor.applied[0]))
    text = program.read_text(encoding="utf-8")
    assert "torch.cond(" in text
    program.write_text(text.replace('backend="eager"', 'backend="eager", fullgraph=True'), encoding="utf-8")
    assert alone(program).stdout == plain
