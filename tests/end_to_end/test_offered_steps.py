"""Steps back are offered from the first stop with a history on, and not in a session of ordinary Python.

``initialize`` announces steps back. Before a stop, DAP's ``capabilities`` event says whether they are possible yet; VS
Code shows its buttons accordingly (``tests/vscode/time-travel.test.ts``).
"""

from __future__ import annotations

from pathlib import Path

from tests.client import Fixture, Session
from tests.client.environments import alone

CALLS = """
import torch

@torch.compile(backend="eager")
def function(x):
    doubled = x * 2  #@traced
    return doubled + 1

x = torch.ones(3)  #@before
for number in range(3):  #@loop
    y = function(x)  #@call
    print(number, y.sum().item())  #@after
"""


def _program(folder: Path, text: str) -> Fixture:
    path = folder / "program.py"
    path.write_text(text)
    return Fixture(path)


def _reported(session: Session) -> list[object]:
    """Return the client's events in order: stops, continuations, and changes of the offered steps."""
    reported: list[object] = []
    for event in session.timeline.events:
        if event["event"] == "capabilities":
            assert event["body"]["capabilities"].keys() == {"supportsStepBack"}
            reported.append(event["body"]["capabilities"]["supportsStepBack"])
        elif event["event"] == "stopped":
            reported.append("stopped")
    return reported


def test_offered_from_the_first_stop_in_a_trace_on(session: Session, tmp_path: Path) -> None:
    """They stay offered: buttons that come and go would move the others under the mouse."""
    fixture = _program(tmp_path, CALLS)
    session.launch(fixture, "before", "traced", "after")
    session.wait_for_stop("breakpoint", at="before")
    assert _reported(session) == [False, "stopped"], "ordinary Python has no history"
    session.next(at="loop")
    assert _reported(session) == [False, "stopped", "stopped"], "nothing is said again"
    session.continue_to_stop(at="traced")
    session.next()
    session.resume("stepBack")
    session.wait_for_stop("step", at="traced")
    stop = session.continue_to_stop(at="after")
    session.continue_to_stop(at="traced")
    assert _reported(session) == [False, "stopped", "stopped", True, *["stopped"] * 5]
    session.continue_to_stop(at="after")
    refused = session.refusal("stepBack", {"threadId": stop.thread_id})
    assert "has no history" in refused, "who asks there is told why not"
    session.set_breakpoints(fixture)
    assert session.run_to_end() == 0
    plain = alone(fixture.path)
    assert session.output("stdout") == plain.stdout


def test_nothing_is_sent_where_the_first_stop_has_a_history(session: Session, tmp_path: Path) -> None:
    session.launch(_program(tmp_path, CALLS), "traced", "after")
    session.wait_for_stop("breakpoint", at="traced")
    session.continue_to_stop(at="after")
    assert _reported(session) == ["stopped", "stopped"]
    session.disconnect(terminateDebuggee=True)


def test_not_offered_in_generated_code(session: Session, tmp_path: Path) -> None:
    fixture = _program(tmp_path, CALLS)
    with session.launching(fixture):
        session.set_breakpoints(fixture, "traced", mode="run-time")
    session.wait_for_stop("breakpoint")
    assert _reported(session) == [False, "stopped"]
    session.set_breakpoints(fixture)
    assert session.run_to_end() == 0


def test_offered_anew_after_a_restart(session: Session, tmp_path: Path) -> None:
    session.launch(_program(tmp_path, CALLS), "before", "traced")
    session.wait_for_stop("breakpoint", at="before")
    session.request("restart")
    session.wait_for_stop("breakpoint", at="before")
    assert _reported(session) == [False, "stopped", "stopped"]
    session.continue_to_stop(at="traced")
    assert _reported(session) == [False, "stopped", "stopped", True, "stopped"]
    session.disconnect(terminateDebuggee=True)
