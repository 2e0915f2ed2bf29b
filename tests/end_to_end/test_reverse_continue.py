"""Reverse continue: every kind of breakpoint stops backwards where it stops forwards."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.client import Fixture, Session, Stop

WATCHED = """
import torch

def append(values):
    values.append(3)  #@appended
    return 1

@torch.compile(backend="eager")
def function(x, items):
    y = x + 1  #@first
    y = y * 2  #@second
    append(items)  #@call
    y.add_(1)  #@in_place
    if len(items) > 1:
        y = y - 1  #@third
    return y  #@end

for number in range(3):
    print(function(torch.ones(3) * number, [1]))
"""


@pytest.fixture
def watched(tmp_path: Path) -> Fixture:
    path = tmp_path / "program.py"
    path.write_text(WATCHED)
    return Fixture(path)


def _watch(session: Session, stop: Stop, *names: str) -> None:
    """Set data breakpoints on variables of the innermost frame."""
    scopes = session.request("scopes", {"frameId": stop.frame.data.id})["scopes"]
    (reference,) = [scope["variablesReference"] for scope in scopes if scope["name"] == "Locals"]
    asked = [session.request("dataBreakpointInfo", {"variablesReference": reference, "name": name}) for name in names]
    session.request(
        "setDataBreakpoints", {"breakpoints": [{"dataId": each["dataId"], "accessType": "write"} for each in asked]}
    )


def _reported(session: Session, stop: Stop) -> tuple[str | None, str]:
    info: dict[str, Any] = session.request("exceptionInfo", {"threadId": stop.thread_id})
    return stop.marker, info["exceptionId"].partition(":")[0].partition(" = ")[0]


BACK = [
    ("third", "y was rebound"),
    ("in_place", "y was mutated"),
    ("appended", "items was mutated"),
    ("second", "y was rebound"),
    ("first", "y was bound to Tensor f32[3] cpu"),
]


@pytest.mark.parametrize("call", [1, 2, 3])
def test_to_the_change_before(session: Session, watched: Fixture, call: int) -> None:
    """The variables are watched only at the end: reverse continue finds their earlier changes."""
    session.launch(watched, "end")
    stop = session.wait_for_stop("breakpoint", at="end")
    for _ in range(call - 1):
        stop = session.continue_to_stop(at="end")
    session.request("dynamoRunBack", {"frameId": stop.frame.data.id, "name": "y", "to": "bound"})
    before = session.wait_for_stop("goto", at="third")
    session.request("dynamoRunBack", {"frameId": before.frame.data.id, "name": "y", "to": "mutated"})
    session.wait_for_stop("goto", at="in_place")
    stop = session.continue_to_stop(at="end")
    _watch(session, stop, "y", "items")
    for expected in BACK:
        session.resume("reverseContinue")
        stop = session.wait_for_stop("data breakpoint")
        assert _reported(session, stop) == expected
        assert stop.frame.path == watched.path
    session.resume("reverseContinue")
    assert "beginning" in (session.wait_for_stop("step", at="first").description or "")
    for expected in reversed(BACK):
        session.resume()
        stop = session.wait_for_stop("data breakpoint")
        assert _reported(session, stop) == expected
        if expected[0] == "appended":
            assert stop.frames[1].evaluate("len(items)").text == "2"
            session.resume("stepBack")
            stop = session.wait_for_stop("step", at="appended")
            assert stop.frames[1].evaluate("len(items)").text == "1"
            session.resume()
            session.wait_for_stop("data breakpoint", at="appended")
    session.continue_to_stop(at="end")
    session.request("setDataBreakpoints", {"breakpoints": []})
    assert session.finish() == 0


def test_changes_in_kept_traces(session: Session, watched: Fixture) -> None:
    """Data breakpoints stop in each call: a compiled one, a replayed one, and one with a saved trace."""
    session.launch(watched, "second")
    stop = session.wait_for_stop("breakpoint", at="second")
    _watch(session, stop, "y", "items")
    session.set_breakpoints(watched, "end")
    for call in range(3):
        for expected in list(reversed(BACK))[1 if call == 0 else 0 :]:
            session.resume()
            stop = session.wait_for_stop("data breakpoint")
            assert _reported(session, stop) == expected, f"call {call + 1}"
        session.continue_to_stop(at="end")
    session.request("setDataBreakpoints", {"breakpoints": []})
    assert session.finish() == 0


RAISING = """
import torch

@torch.compile(backend="eager")
def function(x, table):
    x = x + 1  #@first
    try:
        x = x + table["missing"]  #@raises
    except KeyError:
        x = x * 2  #@handler
    for number in range(4):
        x = x + number  #@loop
    return x  #@end

for number in range(2):
    print(function(torch.ones(3), {}))
"""


@pytest.mark.parametrize("call", [1, 2, 3])
def test_hit_counts_and_messages(session: Session, tmp_path: Path, call: int) -> None:
    """A breakpoint with a hit count stops at the same hit; no message is logged twice."""
    (tmp_path / "program.py").write_text(RAISING.replace("range(2)", "range(3)"))
    fixture = Fixture(tmp_path / "program.py")
    with session.launching(fixture):
        lines = {"first": {}, "handler": {"logMessage": "handled"}, "loop": {"hitCondition": "% 2"}, "end": {}}
        session.request(
            "setBreakpoints",
            {
                "source": {"path": str(fixture.path)},
                "breakpoints": [{"line": fixture.line(name), **more} for name, more in lines.items()],
            },
        )
    for _ in range(call - 1):
        for name in ("first", "loop", "loop", "end"):
            session.wait_for_stop("breakpoint", at=name)
            session.resume()
    for name in ("first", "loop", "loop", "end"):
        stop = session.wait_for_stop("breakpoint", at=name)
        if name != "end":
            session.resume()
    for number in ("3", "1"):
        session.resume("reverseContinue")
        stop = session.wait_for_stop("breakpoint", at="loop")
        assert stop.frame.evaluate("number").text == number
    session.resume("reverseContinue")
    session.wait_for_stop("breakpoint", at="first")
    for name in ("loop", "loop", "end"):
        session.continue_to_stop(at=name)
    session.request("setBreakpoints", {"source": {"path": str(fixture.path)}, "breakpoints": []})
    assert session.run_to_end() == 0
    assert session.output().count("handled\n") == call


def test_to_the_exception_before(session: Session, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(RAISING)
    fixture = Fixture(tmp_path / "program.py")
    with session.launching(fixture):
        session.set_breakpoints(fixture, "first", "end")
        session.request("setExceptionBreakpoints", {"filters": ["raised"]})
    session.wait_for_stop("breakpoint", at="first")
    session.resume()
    stop = session.wait_for_stop("exception", at="raises")
    reported = _reported(session, stop)
    session.continue_to_stop(at="end")
    session.resume("reverseContinue")
    stop = session.wait_for_stop("exception", at="raises")
    assert _reported(session, stop) == reported
    session.resume("reverseContinue")
    session.wait_for_stop("breakpoint", at="first")
    session.resume()
    session.wait_for_stop("exception", at="raises")
    session.resume("stepBack")
    session.wait_for_stop("step", at="raises")
    session.request("setExceptionBreakpoints", {"filters": []})
    session.continue_to_stop(at="end")
    session.resume("reverseContinue")
    session.wait_for_stop("breakpoint", at="first")
    session.continue_to_stop(at="end")
    assert session.finish() == 0
