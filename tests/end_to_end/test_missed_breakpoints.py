"""The reasons why breakpoints did not stop a program, reported at its end."""

from __future__ import annotations

import sys
from pathlib import Path
from unittest.mock import Mock

import msgspec
import pytest

from dynamo_dap.debuggee.agent import missed_breakpoints
from dynamo_dap.debuggee.agent.breakpoints import BreakpointTable
from dynamo_dap.debuggee.launch.starting import launch
from dynamo_dap.debuggee.torch_api.features import FeatureMissing
from dynamo_dap.protocol.requests.contract import ENDING_EVENT, MISSED_EVENT
from dynamo_dap.protocol.requests.options import AgentOptions
from dynamo_dap.protocol.wire.types import SourceBreakpoint
from tests.client import Fixture, Session
from tests.client.session import INITIALIZE
from tests.compile_time.travelling import Traveller, travelling

PROGRAM = """
import sys
import threading
import torch
import told

def backend(graph, inputs):
    return graph.forward

def inlined(x):
    if x.shape[0] > 5:
        return x.sin()  #@inlined_branch
    return x * 2  #@inlined

@torch.compile(backend=backend)
def step(x, big):
    if big:  #@begins
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
    session: Session, program: Fixture, breakpoints: dict[str, list[str | int | SourceBreakpoint]], **options: str
) -> dict[tuple[str, int], str]:
    """Run ``program`` to its end, and return the reasons by file name and line."""
    session.initialize(msgspec.structs.replace(INITIALIZE, client_id="vscode"))
    with session.launching(program, **options):
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
        "method",
        "inlined_branch",
        "compiled_branch",
        "looped_branch",
        "thread_branch",
    ]
    found = launched(session, program, {"program.py": [*markers, "module_branch"], "told.py": [2], "untold.py": [1, 3]})
    never = "was neither traced by Dynamo nor seen to run as ordinary Python"
    expected = {
        "never_called": f"never_called {never}",
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


@pytest.mark.parametrize(
    ("option", "mode", "judged"),
    [({}, None, ["inlined", "looped"]), ({"cachedCalls": "generated"}, None, ["looped"]), ({}, "compile-time", [])],
    ids=["default", "cached calls do not look at it", "only traces look at it"],
)
def test_conditions_that_were_never_true(
    session: Session, program: Fixture, option: dict[str, str], mode: str | None, judged: list[str]
) -> None:
    conditions = {"inlined": "x.shape[0] == 7", "looped": "each == 9"}
    breakpoints = [
        SourceBreakpoint(line=program.line(marker), condition=text, mode=mode) for marker, text in conditions.items()
    ]
    found = launched(session, program, {"program.py": [*breakpoints]}, **option)
    assert found.keys() == {("program.py", program.line(marker)) for marker in judged}
    assert all("its condition was never true" in reason for reason in found.values())


def test_a_condition_that_a_silent_trace_passed_has_no_reason(session: Session, program: Fixture) -> None:
    """After a change at a stop, the program's own compile continues without stops."""
    session.initialize(msgspec.structs.replace(INITIALIZE, client_id="vscode"))
    with session.launching(program):
        later = SourceBreakpoint(line=program.line("inlined"), condition="x.shape[0] == 7")
        session.set_breakpoints(program, "begins", later)
    stop = session.wait_for_stop("breakpoint", at="begins")
    reference = stop.frame["Locals"].variable.variables_reference
    session.request("setVariable", {"variablesReference": reference, "name": "big", "value": "True"})
    session.wait_for_stop("changed", at="begins")
    session.resume()
    session.wait_for_stop("breakpoint", at="begins")
    session.resume()
    assert reasons(session) == {}


def test_a_call_that_cannot_be_traced_again_judges_no_condition() -> None:
    host = Traveller(lambda stop: None)
    host.breakpoints.precedes_program = True
    lines = [SourceBreakpoint(line=line) for line in (1, 2)]
    reached, other = host.breakpoints.set_lines(__file__, lines, host.options)
    reached.seen = True
    call = Mock(code=reasons.__code__, arguments={})
    host.tracing.cached_calls._report_failure(call, FeatureMissing("why"))
    assert (reached.unjudged, other.unjudged) == (True, False)


def test_what_concerns_many_breakpoints_is_found_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[None] = []
    monkeypatch.setattr(missed_breakpoints, "loaded_files", lambda: asked.append(None) or [])
    table = BreakpointTable()
    table.precedes_program = True
    made = table.set_lines("/x/a.py", [SourceBreakpoint(line=line) for line in (1, 2)], AgentOptions())
    assert len(list(missed_breakpoints.missed(made, [], {}))) == 2
    assert len(asked) == 1


def test_an_engine_gives_a_copy_of_its_notes() -> None:
    """A thread that outlives the main program still adds notes."""
    with travelling(lambda stop: None, {}) as host:
        assert host.tracing.functions_traced() is not host.tracing.functions_traced()


def test_a_report_that_fails_does_not_hide_the_end() -> None:
    agent = Mock()
    agent.report_missed_breakpoints.side_effect = RuntimeError("Set changed size during iteration")
    launch._detach_client(agent)
    agent.send_event.assert_called_once_with(ENDING_EVENT)
    agent.detach_client.assert_called_once_with()


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
