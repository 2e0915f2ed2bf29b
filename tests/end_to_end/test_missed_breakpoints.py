"""Why breakpoints have not stopped a program, as reported when it ends."""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec
import pytest

from dynamo_dap.protocol.contract import MISSED_EVENT
from dynamo_dap.protocol.types import SourceBreakpoint
from tests.client import Fixture, Session
from tests.client.session import INITIALIZE

PROGRAM = """
import sys
import threading
import torch
import told

def backend(graph, inputs):
    chosen = graph.forward  #@in_backend
    return chosen

def inlined(x):
    if x.shape[0] > 5:
        return x.sin()  #@inlined_branch
    return x * 2  #@inlined

@torch.compile(backend=backend)
def step(x, big):
    if big:
        x = x + 1  #@compiled_branch
    return inlined(x)

def never_called(x):
    return x + 1  #@never_called

class Layer:
    def method(self, x):
        return x + 1  #@method

def looped(limit):
    total = 0
    for each in range(limit):
        total += each  #@looped
    if total < 0:
        return None  #@looped_branch
    return total

def in_thread():
    if len(sys.argv) > 5:
        print("no")  #@thread_branch

print(step(torch.ones(3), False).sum().item(), step(torch.ones(3), False).sum().item(), looped(4))
thread = threading.Thread(target=in_thread)
thread.start()
thread.join()
if looped(1):
    print("no")  #@module_branch
"""


@pytest.fixture
def program(tmp_path: Path) -> Fixture:
    (tmp_path / "told.py").write_text("def told():\n    return 1\n")
    (tmp_path / "untold.py").write_text("VALUE = 1\ndef untold():\n    return 1\n")
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    return Fixture(path)


def launched(
    session: Session, program: Fixture, breakpoints: dict[str, list[str | int | SourceBreakpoint]]
) -> dict[tuple[str, int], str]:
    """Run ``program`` to its end, and return the reasons by file name and line."""
    session.initialize(msgspec.structs.replace(INITIALIZE, client_id="vscode"))
    with session.launching(program):
        for name, lines in breakpoints.items():
            session.set_breakpoints(Fixture(program.path.parent / name), *lines)
    return reasons(session)


def reasons(session: Session) -> dict[tuple[str, int], str]:
    assert session.wait_for_exit() == 0
    events = [event["body"] for event in session.timeline.events if event["event"] == MISSED_EVENT]
    reported = [one for event in events for one in event["breakpoints"]]
    return {(Path(one["path"]).name, one["line"]): one["reason"] for one in reported}


def test_functions_and_files_that_did_not_run_are_named(session: Session, program: Fixture) -> None:
    markers = [
        "never_called",
        "in_backend",
        "method",
        "inlined_branch",
        "compiled_branch",
        "looped_branch",
        "thread_branch",
    ]
    found = launched(session, program, {"program.py": [*markers, "module_branch"], "told.py": [2], "untold.py": [1, 3]})
    never = "was neither compiled nor seen to run outside of compiles"
    expected = {
        "never_called": f"never_called {never}",
        "in_backend": f"backend {never}",
        "method": f"Layer.method {never}",
        "inlined_branch": "inlined ran, but was not seen",
        "compiled_branch": "step ran, but was not seen",
        "looped_branch": "looped ran, but was not seen",
        "thread_branch": "in_thread ran, but was not seen",
    }
    for marker, reason in expected.items():
        assert reason in found.pop(("program.py", program.line(marker)))
    assert found == {
        ("told.py", 2): f"told {never}",
        ("untold.py", 1): "untold.py was not imported",
        ("untold.py", 3): "untold.py was not imported",
    }, "and nothing about a branch of a module"


def test_conditions_that_were_never_true(session: Session, program: Fixture) -> None:
    conditions = {"inlined": "x.shape[0] == 7", "looped": "each == 9"}
    lines = {marker: program.line(marker) for marker in conditions}
    breakpoints = [SourceBreakpoint(line=lines[marker], condition=text) for marker, text in conditions.items()]
    found = launched(session, program, {"program.py": [*breakpoints]})
    assert found.keys() == {("program.py", line) for line in lines.values()}
    assert all("its condition was never true" in reason for reason in found.values())


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="there, debugpy does not need the trace function")
def test_what_may_have_run_unseen_is_not_called_missed(session: Session, program: Fixture) -> None:
    text = program.path.read_text().replace("import told", "import told\nsys.settrace(lambda *event: None)")
    program.path.write_text(text)
    assert launched(session, program, {"program.py": ["never_called"], "untold.py": [1]}) == {}


def test_a_breakpoint_that_was_set_late_has_no_reason(session: Session, program: Fixture) -> None:
    session.initialize(msgspec.structs.replace(INITIALIZE, client_id="vscode"))
    with session.launching(program):
        session.set_breakpoints(Fixture(program.path), "inlined")
    session.wait_for_stop("breakpoint")
    session.set_breakpoints(Fixture(program.path), "never_called")
    session.resume()
    assert reasons(session) == {}
