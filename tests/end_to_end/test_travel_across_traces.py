"""Time travel from one trace into another: back over a graph break, and to attempts that Dynamo abandoned."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path

import pytest

from tests.client import Fixture, Session, Stop
from tests.client.environments import alone

TORCH_VERSION = tuple(map(int, version("torch").split(".")[:2]))

BREAKING = """
import gc
import weakref

import torch

def doubled(value):
    grown = value * 2  #@grown
    return grown

@torch.compile(backend="eager")
def function(x, items):
    y = torch.nn.functional.dropout(x + 1)  #@first
    items.append(y)  #@append
    y = doubled(y)  #@call
    print("broken")  #@print
    z = y - len(items)  #@after
    x.add_(1)  #@write
    torch._dynamo.graph_break()  #@break
    z = z.relu()  #@relu
    return z * len(items)  #@end

torch.manual_seed(0)
for number in range(3):
    x = torch.ones(3) * number
    print(function(x, []))
    given = weakref.ref(x)
    del x
"""
LETTING_GO = """
    gc.collect()
    print(given() is None)
"""


@pytest.fixture
def breaking(tmp_path: Path) -> Fixture:
    path = tmp_path / "program.py"
    path.write_text(BREAKING)
    return Fixture(path)


def _finish(session: Session, fixture: Fixture) -> None:
    assert session.finish() == 0
    assert session.output("stdout") == alone(fixture.path).stdout


@pytest.mark.parametrize("call", [1, 2, 3])
def test_back_over_graph_breaks(session: Session, breaking: Fixture, call: int) -> None:
    """The calls are compiled, replayed, and shown from saved traces."""
    session.launch(breaking, "after", "end")
    stop = session.wait_for_stop("breakpoint", at="after")
    for _ in range(call - 1):
        session.continue_to_stop(at="end")
        stop = session.continue_to_stop(at="after")
    expected = stop.frame.evaluate("items[0].tolist()").text
    for place in ("print", "call", "append"):
        session.resume("stepBack")
        stop = session.wait_for_stop("step", at=place)
    # Random numbers as the call drew them, before the program went on.
    if call == 1 and TORCH_VERSION >= (2, 15):
        assert "no longer exists" in stop.frame.refusal("y.tolist()")  # see below
    else:
        assert stop.frame.evaluate("y.tolist()").text == expected
    session.continue_to_stop(at="after")
    session.set_breakpoints(breaking, "end")
    session.continue_to_stop(at="end")
    places = {"relu": 1, "break": 2, "write": 3, "after": 4, "print": 5, "call": 8, "append": 9, "first": 10}
    for place, number in places.items():
        session.resume("stepBack")
        stop = session.wait_for_stop("step", at=place)
        assert f"{number} statement" in (stop.description or "")
        if place == "after":
            assert stop.frame.evaluate("len(items)").text == "1"
            assert "z" not in stop.frame["Locals"]
        if place == "call":
            assert stop.frame.evaluate("len(items)").text == "1"
            assert stop.frame["Locals"]["y"].text.startswith("Tensor f32[3]")
    assert stop.frame.evaluate("len(items)").text == "0"
    # The program has changed the tensor in place since: its earlier content is unknown.
    refused = stop.frame.refusal("x.sum().item()")
    # Torch 2.15 drops the inputs of an abandoned attempt.
    assert "changed in place since" in refused or "no longer exists" in refused
    session.resume("stepBack")
    assert "beginning" in (session.wait_for_stop("step", at="first").description or "")
    for place in ("append", "call"):
        session.next(at=place)
    session.step_in(at="grown")
    session.resume("stepOut")
    session.wait_for_stop("step")
    for place in ("print", "after", "write", "break", "relu"):
        session.next(at=place)
    session.continue_to_stop(at="end")
    session.set_breakpoints(breaking, "append", "after", "end")
    for place in ("after", "append"):
        session.resume("reverseContinue")
        session.wait_for_stop("breakpoint", at=place)
    for place in ("after", "end"):
        session.continue_to_stop(at=place)
    _finish(session, breaking)


def _cached_call_has_a_timeline(session: Session, breaking: Fixture, stop: Stop) -> None:
    entries = session.request("dynamoTimeline", {"threadId": stop.thread_id, "count": 100})["entries"]
    lines = [breaking.marker_at(entry["line"]) for entry in entries]
    assert lines == ["first", "append", "call", "grown", None, "print", "after", "write", "break", "relu", "end"]
    marks = {breaking.marker_at(each["line"]): each["mark"] for each in entries if "mark" in each}
    assert marks == {"after": "after a graph break", "relu": "after a graph break"}
    session.request("dynamoGoTo", {"threadId": stop.thread_id, "snapshot": entries[1]["snapshot"]})
    stop = session.wait_for_stop("goto", at="append")
    assert (stop.description or "").startswith("Call ")
    reference = stop.frame["Locals"].variable.variables_reference
    refused = session.refusal("setVariable", {"variablesReference": reference, "name": "y", "value": "x"})
    assert "this trace has ended" in refused
    session.wait_for_stop("goto", at="append")
    session.continue_to_stop(at="end")


def test_the_timeline_has_breaks_and_attempts(session: Session, breaking: Fixture) -> None:
    """After steps back, no snapshot keeps the program's arguments alive."""
    breaking.path.write_text(BREAKING + LETTING_GO)
    session.launch(breaking, "end")
    stop = session.wait_for_stop("breakpoint", at="end")
    timeline = session.request("dynamoTimeline", {"threadId": stop.thread_id, "count": 100})
    lines = [breaking.marker_at(entry["line"]) for entry in timeline["entries"]]
    assert lines[:3] == ["first", "append", "call"]
    marks = {breaking.marker_at(each["line"]): each["mark"] for each in timeline["entries"] if "mark" in each}
    assert list(marks) == ["first", "after", "relu"]
    assert "abandoned" in marks["first"]
    assert marks["relu"].startswith("after a graph break: ")
    numbers = [entry["snapshot"] for entry in timeline["entries"]]
    assert numbers == sorted(set(numbers))
    for place in ("append", "write"):
        session.request("dynamoGoTo", {"threadId": stop.thread_id, "snapshot": numbers[lines.index(place)]})
        session.wait_for_stop("goto", at=place)
    session.continue_to_stop(at="end")
    for _ in range(2):
        _cached_call_has_a_timeline(session, breaking, session.continue_to_stop(at="end"))
    _finish(session, breaking)


BRANCHING = """
import gc
import weakref

import torch

def raised(value):
    if value.max() > 100:  #@inner
        value = value * 0  #@zero
    return value * 2  #@raised

@torch.compile(backend="eager")
def function(x, items):
    y = torch.nn.functional.dropout(x + 3)  #@first
    items.append(y)  #@append
    if y.sum() > 0:  #@branch
        y = y + len(items)  #@then
        x.add_(1)  #@write
    else:
        y = y - len(items)  #@else
    if x.sum() > 0:  #@second
        y = y * 2  #@double
    y = raised(y)  #@call
    return y * len(items)  #@end

torch.manual_seed(0)
for number in (1, 2, -9, -9, 3):
    x = torch.ones(8) * number
    print(function(x, []))
    given = weakref.ref(x)
    del x
"""


@pytest.fixture
def branching(tmp_path: Path) -> Fixture:
    path = tmp_path / "program.py"
    path.write_text(BRANCHING)
    return Fixture(path)


@pytest.mark.parametrize("call", [1, 2])
def test_back_over_branches_on_data(session: Session, branching: Fixture, call: int) -> None:
    """Dynamo keeps no state of the trace before such a branch, so the compiled call is replayed."""
    session.launch(branching, "then", "double")
    stop = session.wait_for_stop("breakpoint", at="then")
    if call == 2:
        session.continue_to_stop(at="double")
        stop = session.continue_to_stop(at="then")
    drawn = stop.frame.evaluate("items[0].tolist()").text
    for place in ("branch", "append"):
        session.resume("stepBack")
        stop = session.wait_for_stop("step", at=place)
        # Random numbers as the call drew them, before the program went on.
        assert stop.frame.evaluate("y.tolist()").text == drawn
        assert stop.frame["Locals"]["y"].text.startswith("Tensor f32[8]")
        assert stop.frame.evaluate("len(items)").text == ("1" if place == "branch" else "0")
    if call == 1:
        assert (stop.description or "").startswith("Tracing function [0/0], 2 statements back")
    session.continue_to_stop(at="then")
    session.continue_to_stop(at="double")
    session.set_breakpoints(branching, "double")
    places = {"second": 1, "write": 2, "then": 3, "branch": 4, "append": 5, "first": 6}
    for place, number in places.items():
        session.resume("stepBack")
        stop = session.wait_for_stop("step", at=place)
        assert f", {number} statement" in (stop.description or "")
        if place == "write":
            assert stop.frame.evaluate("[each - 1 for each in y.tolist()]").text == drawn
    assert "y" not in stop.frame["Locals"]
    # The program has changed the tensor in place since.
    assert "changed in place since" in stop.frame.refusal("x.sum().item()")
    session.resume("stepBack")
    assert "the beginning of the trace" in (session.wait_for_stop("step", at="first").description or "")
    for place in ("append", "branch", "then", "write", "second"):
        session.next(at=place)
    session.continue_to_stop(at="double")
    session.set_breakpoints(branching, "append", "then", "double")
    for place in ("then", "append"):
        session.resume("reverseContinue")
        session.wait_for_stop("breakpoint", at=place)
    for place in ("then", "double"):
        session.continue_to_stop(at=place)
    _finish(session, branching)


def test_back_from_a_branch_that_was_not_taken_before(session: Session, branching: Fixture) -> None:
    """The part before the branch is a cache hit, and the part after it is compiled; then both are cache hits."""
    branching.path.write_text(BRANCHING + LETTING_GO)
    session.launch(branching, "else")
    for call in (3, 4):
        stop = session.wait_for_stop("breakpoint", at="else") if call == 3 else session.continue_to_stop(at="else")
        for place in ("branch", "append", "first"):
            session.resume("stepBack")
            stop = session.wait_for_stop("step", at=place)
        assert stop.frame.evaluate("x.sum().item()").text == "-72.0"
        timeline = session.request("dynamoTimeline", {"threadId": stop.thread_id, "count": 100})["entries"]
        assert [branching.marker_at(entry["line"]) for entry in timeline][:4] == ["first", "append", "branch", "else"]
        marks = {branching.marker_at(each["line"]): each["mark"] for each in timeline if "mark" in each}
        assert marks == {"else": "after a graph break"}
        session.request("dynamoGoTo", {"threadId": stop.thread_id, "snapshot": timeline[1]["snapshot"]})
        session.wait_for_stop("goto", at="append")
        session.next(at="branch")
        if call == 3:
            session.continue_to_stop(at="else")
    # Continue from an earlier state, after the breakpoints were removed: the thread stops nowhere.
    session.set_breakpoints(branching)
    _finish(session, branching)


def test_back_over_a_break_before_a_branch_on_data(session: Session, branching: Fixture) -> None:
    """The attempt that ended at the first break is kept; nothing is kept of the part before the branch."""
    text = BRANCHING.replace("    items.append(y)", "    print('broken')  #@print\n    items.append(y)", 1)
    branching.path.write_text(text + LETTING_GO)
    session.launch(branching, "double")
    for call in (1, 2):
        stop = session.wait_for_stop("breakpoint", at="double") if call == 1 else session.continue_to_stop(at="double")
        for place in ("second", "write", "then", "branch", "append", "print", "first"):
            session.resume("stepBack")
            stop = session.wait_for_stop("step", at=place)
        timeline = session.request("dynamoTimeline", {"threadId": stop.thread_id, "count": 100})["entries"]
        places = ["first", "print", "append", "branch", "then", "write", "second", "double"]
        assert [branching.marker_at(entry["line"]) for entry in timeline][: len(places)] == places
        marks = [branching.marker_at(each["line"]) for each in timeline if "after" in each.get("mark", "")]
        assert marks == ["append", "then", "double"]
        for place in places[1:-1]:
            session.next(at=place)
        session.continue_to_stop(at="double")
    _finish(session, branching)


def test_a_branch_on_data_in_an_inlined_function(session: Session, branching: Fixture) -> None:
    """Dynamo breaks the graph at the call and compiles the called function separately: its history begins there."""
    session.launch(branching, "raised", "end")
    session.wait_for_stop("breakpoint", at="raised")
    session.resume("stepBack")
    session.wait_for_stop("step", at="inner")
    session.resume("stepBack")
    stop = session.wait_for_stop("step", at="inner")
    assert (stop.description or "").endswith("the beginning of the trace")
    session.continue_to_stop(at="raised")
    session.continue_to_stop(at="end")
    for place in ("call", "double", "second", "write", "then", "branch", "append", "first"):
        session.resume("stepBack")
        session.wait_for_stop("step", at=place)
    session.continue_to_stop(at="end")
    _finish(session, branching)
