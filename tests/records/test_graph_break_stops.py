"""Stops at graph breaks: once each, at the user's line, with torch's text and the effect on the function."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.client import Session, Stop
from tests.client.fixtures import Fixture
from tests.client.session import launch_configuration
from tests.records.programs import BREAKS, IS_REFERENCE, Case, write


def launch(session: Session, program: Path, *filters: str, **conditions: str) -> None:
    """Launch with default options and exception filters; ``conditions`` are named by filter, with ``_`` for ``-``."""
    options = [{"filterId": name.replace("_", "-"), "condition": text} for name, text in conditions.items()]
    with session.configuring("launch", launch_configuration(program)):
        session.request("setExceptionBreakpoints", {"filters": list(filters), "filterOptions": options})


def info_of(session: Session, stop: Stop) -> dict[str, Any]:
    """Return the stop's ``exceptionInfo``."""
    return session.request("exceptionInfo", {"threadId": stop.thread_id})


@pytest.mark.timeout(240)
def test_every_break_stops_once_at_its_line(session: Session, tmp_path: Path) -> None:
    changed = () if IS_REFERENCE else ("identity", "numpy_seed")
    cases = [case for case in BREAKS if case.name not in changed]
    program = write(tmp_path, cases)
    launch(session, program, "graph-break")
    for case in cases:
        stop = session.wait_for_stop("exception")
        info = info_of(session, stop)
        assert stop.user_frames[0].marker == case.name, info
        assert stop.description == "Graph break"
        assert info["exceptionId"].startswith(f"{stop.description}: "), info
        assert stop.body["text"].startswith(f"{info['exceptionId']}\n{info['description']}")
        assert stop.body["text"].endswith(info["details"]["stackTrace"])
        assert "Then: " in info["description"], info
        session.resume()
    assert session.wait_for_exit() == 0


def test_the_symbolic_state_is_live(session: Session, tmp_path: Path) -> None:
    case = Case("branch", "y = x + 1\nif y.sum() > 0:  #@branch\n    return y + 1\nreturn y - 1")
    program = write(tmp_path, [case])
    launch(session, program, "graph-break")
    stop = session.wait_for_stop("exception", at="branch")
    info = info_of(session, stop)
    assert info["exceptionId"].startswith("Graph break: Data-dependent branching [GB")
    assert "Detected data-dependent branching" in info["description"]
    assert "Hint (not tried): Use `torch.cond` to express" in info["description"]
    assert f"resumes at line {Fixture(program).line('branch') + 1}" in info["description"]
    assert info["details"]["typeName"] == "Unsupported"
    assert stop.frame["Locals"]["y"].text.startswith("Tensor f32[3]")
    assert "sum" in " ".join(stop.frame["Graph"].texts())
    assert stop.frame.evaluate("y.shape[0]").text == "3"
    session.run_to_end()


def test_a_break_in_an_inlined_function_shows_both_frames(session: Session, tmp_path: Path) -> None:
    case = Case(
        "calling",
        "def inner(z):\n    torch._dynamo.graph_break()  #@inner\n    return z\nreturn inner(x + 1) + 1  #@call",
    )
    program = write(tmp_path, [case])
    launch(session, program, "graph-break")
    stop = session.wait_for_stop("exception", at="inner")
    assert [frame.marker for frame in stop.user_frames[:2]] == ["inner", "call"]
    assert stop.frame["Locals"]["z"].text.startswith("Tensor f32[3]")
    session.resume()
    # Dynamo then compiles the inner function separately, with the same break.
    again = session.wait_for_stop("exception", at="inner")
    assert len(again.user_frames) >= 1
    assert session.run_to_end() == 0


def test_conditions_choose_breaks(session: Session, tmp_path: Path) -> None:
    program = write(tmp_path, BREAKS[:4])
    launch(session, program, graph_break="'item' in __reason__ and y.shape[0] == 3")
    session.wait_for_stop("exception", at="item")
    assert session.run_to_end() == 0


def test_fullgraph_has_a_filter_of_its_own(session: Session, tmp_path: Path) -> None:
    case = Case(
        "whole", "y = x + 1\ntorch._dynamo.graph_break()  #@whole\nreturn y", options='backend="eager", fullgraph=True'
    )
    program = write(tmp_path, [case])
    session.expects_program_traceback = True
    launch(session, program, "graph-break", "unsupported")
    stop = session.wait_for_stop("exception", at="whole")
    assert "the program gets an exception" in info_of(session, stop)["description"]
    assert session.run_to_end() == 1


def test_a_step_continues_from_a_break(session: Session, tmp_path: Path) -> None:
    program = write(tmp_path, BREAKS[:1])
    launch(session, program, "graph-break")
    session.wait_for_stop("exception", at="asked")
    stop = session.next()
    assert stop.frame.line in (Fixture(program).line("asked"), Fixture(program).line("asked") + 1)
    assert session.run_to_end() == 0


def test_where_the_rest_resumes(session: Session, tmp_path: Path) -> None:
    """Behind a statement it is the next line. Inside one it is the rest of its line."""
    statement = Case("statement", "y = x + 1\nprint('here')  #@statement\nreturn y.sin()  #@next")
    inside = Case("inside", "y = (torch._dynamo.graph_break(), x.sin())  #@inside\nreturn y[1]")
    program = write(tmp_path, [statement, inside])
    launch(session, program, "graph-break")
    lines = Fixture(program)
    for marker, resumed in (
        ("statement", f"line {lines.line('next')}"),
        ("inside", f"the rest of line {lines.line('inside')}"),
    ):
        stop = session.wait_for_stop("exception", at=marker)
        assert f"it resumes at {resumed}." in info_of(session, stop)["description"]
        session.resume()
    assert session.wait_for_exit() == 0
