"""Line breakpoints of mode ``run-time``: where they stop, and which become unverified. Default launch options."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dynamo_dap.protocol.wire.types import Breakpoint
from tests.client import Fixture, Session

DEFAULTS: dict[str, Any] = {"eager": True, "mode": "both"}

PROGRAM = """
import torch

def helper(x):
    n = 3  #@constant_in_helper
    return x * n  #@in_helper

def f(x, flag):
    y = x + 1  #@in_graph
    z = helper(y)  #@call
    k = 5  #@constant
    if flag:  #@guard
        print("break")  #@statement
    w = z - k  #@after_break
    return w  #@return

def never_called(x):
    return x + 1  #@never_called

compiled = torch.compile(f, backend="eager")
for number in range(3):
    result = compiled(torch.ones(3), True)  #@loop
print(result)  #@end
"""


@pytest.fixture
def program(tmp_path: Path) -> Fixture:
    fixture = Fixture(tmp_path / "program.py")
    fixture.path.write_text(PROGRAM, encoding="utf-8")
    return fixture


def stop_at(session: Session, program: Fixture, marker: str) -> str:
    """Continue to the next stop, which must be the breakpoint at ``marker``; return the stop's text."""
    stop = session.wait_for_stop("breakpoint")
    user = stop.frames[1]
    assert (user.path, user.marker) == (program.path, marker)
    session.resume()
    return str(stop.body["text"])


def now(session: Session, answer: Breakpoint) -> dict[str, Any] | None:
    """The last event about a breakpoint since it was set."""
    bodies = [one["body"]["breakpoint"] for one in session.timeline.events if one["event"] == "breakpoint"]
    return next((body for body in reversed(bodies) if body["id"] == answer.id), None)


def test_a_line_in_the_graph_stops_where_the_graph_is_called(session: Session, program: Fixture) -> None:
    with session.launching(program, **DEFAULTS):
        answers = session.set_breakpoints(program, "in_graph", "in_helper", "after_break", "return", mode="run-time")
        assert all(answer.verified for answer in answers)
    for _ in range(3):
        # The first graph computes both lines, so there is one stop.
        printed = stop_at(session, program, "in_graph")
        assert "call compiled graph" in printed
        assert f"which computes line {program.line('in_graph')}" in printed
        assert "which computes line" in stop_at(session, program, "after_break")
        stop_at(session, program, "return")
    assert session.wait_for_exit() == 0
    for answer, marker in zip(answers[:3], ("in_graph", "in_helper", "after_break"), strict=True):
        reported = now(session, answer)
        assert reported is not None
        assert reported["verified"]
        assert reported["message"].startswith("stops where f (")
        assert reported["message"].endswith(f"which computes line {program.line(marker)}")
    assert now(session, answers[3]) is None, "a line that returns stops there: nothing to tell"


def test_a_line_that_nothing_computes_is_not_verified(session: Session, program: Fixture) -> None:
    markers = ("constant", "guard", "constant_in_helper", "never_called", "statement")
    with session.launching(program, **DEFAULTS):
        answers = session.set_breakpoints(program, *markers, mode="run-time")
        assert all(answer.verified for answer in answers), "nothing is known before it is compiled"
        session.set_breakpoints(program, *markers, mode="run-time")
    stop_at(session, program, "statement")
    # In the second call it is verified, because the resume function has been compiled.
    session.wait_for_stop("breakpoint")
    for answer, marker in zip(answers[:3], markers, strict=False):
        reported = now(session, answer)
        assert reported is not None, marker
        assert not reported["verified"]
        assert reported["message"].startswith("no graph and no instruction of")
        assert f"generated code computes line {answer.line}" in reported["message"]
    assert now(session, answers[3]) is None
    assert now(session, answers[4]) is None
    again = session.set_breakpoints(program, "constant", "in_graph", mode="run-time")
    assert [answer.verified for answer in again] == [False, True], "at once, where it is known already"
    assert "calls compiled graph" in (again[1].message or "")
    session.resume()
    assert "which computes line" in stop_at(session, program, "in_graph")
    assert session.wait_for_exit() == 0
