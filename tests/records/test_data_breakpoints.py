"""Data breakpoints in a trace: a variable is guarded, rebound or mutated."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.client import Session, Stop
from tests.records.test_graph_break_stops import info_of

PROGRAM = """\
import torch


def append(values):
    values.append(3)  #@appended
    return 1


@torch.compile(backend="eager")
def fn(x, items, mode):
    y = x + 1  #@first
    y = y * 2  #@second
    append(items)  #@call
    y.add_(1)  #@in_place
    if mode == "a":  #@branch
        y = y - 1  #@third
    return y + len(items)


fn(torch.ones(3), [1], "a")
fn(torch.ones(3), [1], "b")
"""


@pytest.fixture
def stopped(session: Session, tmp_path: Path) -> Stop:
    """Stop a session in the trace where ``y`` is bound."""
    program = tmp_path / "program.py"
    program.write_text(PROGRAM, encoding="utf-8")
    session.launch(program, "second")
    stop = session.wait_for_stop("breakpoint", at="second")
    session.set_breakpoints(program)
    return stop


def info(session: Session, stop: Stop, name: str) -> dict[str, Any]:
    """Return the answer of ``dataBreakpointInfo`` about a local variable."""
    scopes = session.request("scopes", {"frameId": stop.frame.data.id})["scopes"]
    (reference,) = [scope["variablesReference"] for scope in scopes if scope["name"] == "Locals"]
    return session.request("dataBreakpointInfo", {"variablesReference": reference, "name": name})


def watch(session: Session, *breakpoints: dict[str, Any]) -> list[dict[str, Any]]:
    """Set data breakpoints."""
    return session.request("setDataBreakpoints", {"breakpoints": list(breakpoints)})["breakpoints"]


def test_a_variable_that_is_rebound_or_mutated_stops(session: Session, stopped: Stop) -> None:
    reported = info(session, stopped, "y")
    assert reported["accessTypes"] == ["read", "write", "readWrite"]
    (set_one,) = watch(session, {"dataId": reported["dataId"], "accessType": "write"})
    assert set_one["verified"]
    session.resume()
    stop = session.wait_for_stop("data breakpoint", at="second")
    assert info_of(session, stop)["exceptionId"].startswith("y was rebound: Tensor f32[3]")
    assert stop.body["hitBreakpointIds"] == [set_one["id"]]
    session.resume()
    stop = session.wait_for_stop("data breakpoint", at="in_place")
    assert info_of(session, stop)["exceptionId"].startswith("y was mutated")
    session.resume()
    session.wait_for_stop("data breakpoint", at="third")
    watch(session)
    assert session.run_to_end() == 0


def test_a_change_in_a_called_function_stops_there(session: Session, stopped: Stop) -> None:
    watch(session, {"dataId": info(session, stopped, "items")["dataId"], "accessType": "write"})
    session.resume()
    stop = session.wait_for_stop("data breakpoint", at="appended")
    assert info_of(session, stop)["exceptionId"] == "items was mutated: [1] before, [1, 3] now"
    assert [frame.name for frame in stop.user_frames[:2]] == ["append", "fn"]
    watch(session)
    assert session.run_to_end() == 0


def test_a_guard_on_a_variable_stops(session: Session, stopped: Stop) -> None:
    watch(session, {"dataId": info(session, stopped, "mode")["dataId"], "accessType": "read"})
    session.resume()
    stop = session.wait_for_stop("data breakpoint", at="branch")
    assert "mode" in info_of(session, stop)["exceptionId"]
    # The breakpoint is for the function's variable in every call. The second call is a recompile.
    session.resume()
    session.wait_for_stop("data breakpoint", at="branch")
    watch(session)
    assert session.run_to_end() == 0


def test_conditions_and_what_cannot_be_watched(session: Session, stopped: Stop) -> None:
    assert info(session, stopped, "no_such_name")["dataId"] is None
    condition = {"dataId": info(session, stopped, "y")["dataId"], "accessType": "write", "condition": "mode == 'b'"}
    wrong = {"dataId": "made up"}
    first, second = watch(session, condition, wrong)
    assert first["verified"]
    assert not second["verified"]
    assert "watched" in second["message"]
    session.resume()
    stop = session.wait_for_stop("data breakpoint", at="first")
    assert stop.frame.evaluate("mode").text.startswith("'b'")
    watch(session)
    assert session.run_to_end() == 0
