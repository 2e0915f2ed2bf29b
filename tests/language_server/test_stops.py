"""Fixes in the editor while the program is stopped at what they are for."""

from __future__ import annotations

from pathlib import Path

from dynamo_dap.protocol.requests.contract import RECORDS_VARIABLE
from tests.client import Fixture, Session
from tests.language_server.editor import Editor, run

PROGRAM = """\
import torch


@torch.compile(backend="eager")
def total(x):
    return (x * 2).sum()  #@read


for size in (3, 5):
    print(total(torch.ones(size)).item())
"""


def test_a_size_can_be_marked_at_the_stop_of_its_recompile(session: Session, tmp_path: Path) -> None:
    """The trace that would show which sizes vary together has not begun: the mark is offered, and helps."""
    program, records = tmp_path / "sizes.py", tmp_path / "records"
    program.write_text(PROGRAM, encoding="utf-8")
    line = Fixture(program).line("read")
    with Editor(tmp_path, records) as editor:
        with session.launching(Fixture(program), cwd=str(tmp_path), env={RECORDS_VARIABLE: str(records)}):
            session.request("setExceptionBreakpoints", {"filters": ["recompile"]})
        session.wait_for_stop("exception")
        editor.wait("the recompile", lambda: bool(editor.at(program, line, "recompile")))
        actions = editor.actions(program, editor.at(program, line, "recompile")[0])
        action = actions["Mark size 0 of x as dynamic before the call (maybe_mark_dynamic) (not tried)"]
        assert session.run_to_end() == 0
        editor.apply(action)
        run(program, records)
        editor.wait("the recompile to go", lambda: not editor.at(program, line, "recompile"))
    assert session.output("stdout") == "6.0\n10.0\n"
