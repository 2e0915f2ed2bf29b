"""Time travel from one trace into another: back over a graph break, and to attempts that Dynamo gave up."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from tests.client import Fixture, Session, Stop

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
    plain = subprocess.run([sys.executable, str(fixture.path)], capture_output=True, text=True, check=True)
    assert session.output("stdout") == plain.stdout


@pytest.mark.parametrize("call", [1, 2, 3])
def test_back_over_graph_breaks(session: Session, breaking: Fixture, call: int) -> None:
    """In the call that Dynamo traces, in the one that is traced again, and in one that its traces are kept for."""
    session.launch(breaking, "after", "end")
    stop = session.wait_for_stop("breakpoint", at="after")
    for _ in range(call - 1):
        session.go_on(at="end")
        stop = session.go_on(at="after")
    expected = stop.frame.evaluate("items[0].tolist()").text
    for place in ("print", "call", "append"):
        session.resume("stepBack")
        stop = session.wait_for_stop("step", at=place)
    # Random numbers as the call drew them, before the program went on.
    if call == 1 and TORCH_VERSION >= (2, 15):
        assert "not there any more" in stop.frame.refusal("y.tolist()")  # see below
    else:
        assert stop.frame.evaluate("y.tolist()").text == expected
    session.go_on(at="after")
    session.set_breakpoints(breaking, "end")
    session.go_on(at="end")
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
    # The program has written to the tensor since: what it held then is not known any more.
    refused = stop.frame.refusal("x.sum().item()")
    # Torch 2.15 lets go of the inputs of what it gave up.
    assert "changed in place since" in refused or "not there any more" in refused
    session.resume("stepBack")
    assert "beginning" in (session.wait_for_stop("step", at="first").description or "")
    for place in ("append", "call"):
        session.next(at=place)
    session.step_in(at="grown")
    session.resume("stepOut")
    session.wait_for_stop("step")
    for place in ("print", "after", "write", "break", "relu"):
        session.next(at=place)
    session.go_on(at="end")
    session.set_breakpoints(breaking, "append", "after", "end")
    for place in ("after", "append"):
        session.resume("reverseContinue")
        session.wait_for_stop("breakpoint", at=place)
    for place in ("after", "end"):
        session.go_on(at=place)
    _finish(session, breaking)


def _cached_call_has_a_timeline(session: Session, breaking: Fixture, stop: Stop) -> None:
    entries = session.request("dynamoTimeline", {"threadId": stop.thread_id, "count": 100})["entries"]
    lines = [breaking.marker_at(entry["line"]) for entry in entries]
    assert lines == ["first", "append", "call", "grown", None, "print", "after", "write", "break", "relu", "end"]
    marks = {breaking.marker_at(each["line"]): each["mark"] for each in entries if "mark" in each}
    assert marks == {"after": "after a graph break", "relu": "after a graph break"}
    session.request("dynamoGoTo", {"threadId": stop.thread_id, "moment": entries[1]["moment"]})
    stop = session.wait_for_stop("goto", at="append")
    assert (stop.description or "").startswith("Call ")
    reference = stop.frame["Locals"].variable.variables_reference
    refused = session.refusal("setVariable", {"variablesReference": reference, "name": "y", "value": "x"})
    assert "this trace is over" in refused
    session.wait_for_stop("goto", at="append")
    session.go_on(at="end")


def test_the_timeline_has_breaks_and_attempts(session: Session, breaking: Fixture) -> None:
    """And nothing that was gone back to holds what the program was given."""
    breaking.path.write_text(BREAKING + LETTING_GO)
    session.launch(breaking, "end")
    stop = session.wait_for_stop("breakpoint", at="end")
    timeline = session.request("dynamoTimeline", {"threadId": stop.thread_id, "count": 100})
    lines = [breaking.marker_at(entry["line"]) for entry in timeline["entries"]]
    assert lines[:3] == ["first", "append", "call"]
    marks = {breaking.marker_at(each["line"]): each["mark"] for each in timeline["entries"] if "mark" in each}
    assert list(marks) == ["first", "after", "relu"]
    assert "given up" in marks["first"]
    assert marks["relu"].startswith("after a graph break: ")
    numbers = [entry["moment"] for entry in timeline["entries"]]
    assert numbers == sorted(set(numbers))
    for place in ("append", "write"):
        session.request("dynamoGoTo", {"threadId": stop.thread_id, "moment": numbers[lines.index(place)]})
        session.wait_for_stop("goto", at=place)
    session.go_on(at="end")
    for _ in range(2):
        _cached_call_has_a_timeline(session, breaking, session.go_on(at="end"))
    _finish(session, breaking)


BRANCHING = """
import torch

@torch.compile(backend="eager")
def function(x):
    y = x * 2  #@first
    if y.sum() > 0:  #@branch
        y = y + 1  #@then
    return y  #@end

for number in range(1, 3):
    print(function(torch.ones(3) * number))
"""


def test_back_over_a_branch_on_data(session: Session, tmp_path: Path) -> None:
    """Nothing is kept of the trace before one in the call that is compiled, which is said; a cached call is traced."""
    (tmp_path / "program.py").write_text(BRANCHING)
    fixture = Fixture(tmp_path / "program.py")
    session.launch(fixture, "then")
    session.wait_for_stop("breakpoint", at="then")
    session.resume("stepBack")
    stop = session.wait_for_stop("step", at="then")
    remark = "the beginning of what comes after the graph break; what was before is not known"
    assert stop.description.endswith(remark)
    session.resume()
    session.wait_for_stop("breakpoint", at="then")
    session.resume("stepBack")
    session.wait_for_stop("step", at="branch")
    session.resume("stepBack")
    session.wait_for_stop("step", at="first")
    session.resume()
    session.wait_for_stop("breakpoint", at="then")
    _finish(session, fixture)
