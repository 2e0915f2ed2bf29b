"""Time travel: every kind of step goes back in a held trace, which then continues as if nobody had looked."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from pathlib import Path
from typing import TypeGuard

import pytest

from tests.client import Fixture, Session, Stop
from tests.client.environments import alone
from tests.compile_time.samples import sample

_COMPARED = ("Locals", "Value Stack", "Graph", "Guards", "Side Effects")


def _state(stop: Stop) -> dict[str, object]:
    """Return the scopes of the trace, to depth 2, and its position."""
    state: dict[str, object] = {"frames": [(frame.name, frame.line) for frame in stop.frames]}
    for name, scope in stop.frame.scopes.items():
        if name in _COMPARED:
            state[name] = {child: (tree.text, tree.texts()) for child, tree in scope.children.items()}
    return state


def _lines(fixture: Fixture) -> list[int]:
    """Return the lines that begin a statement in the program's functions except ``main``."""
    return sorted(
        {node.lineno for function in _functions(fixture) for node in ast.walk(function) if _is_statement(node)}
    )


def _is_statement(node: ast.AST) -> TypeGuard[ast.stmt]:
    return isinstance(node, ast.stmt) and not isinstance(node, ast.FunctionDef)


def _functions(fixture: Fixture) -> list[ast.FunctionDef]:
    tree = ast.parse(fixture.path.read_text())
    return [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name != "main"]


def _end(fixture: Fixture, function: str) -> int:
    """Return the last line of a function."""
    return next(node.body[-1].lineno for node in _functions(fixture) if node.name == function)


WALKED = (
    ("basic", "compute"),
    ("control_flow", "generators"),
    ("control_flow", "blocks"),
    ("control_flow", "functions"),
    ("loops", "accumulate"),
    ("closures", "increment"),
    ("containers", "gather"),
    ("side_effects", "record"),
    ("dynamic_shapes", "normalize"),
)


def _source(program: str, name: str) -> str:
    """Return the module's top-level statement that contains the function and its surroundings."""
    text = Fixture(program).path.read_text()
    line = next(each.lineno for each in _functions(Fixture(program)) if each.name == name)
    around = [each for each in ast.parse(text).body if each.lineno <= line]
    return ast.get_source_segment(text, around[-1]) or ""


_SAMPLE = sample({" ".join(each): _source(*each) for each in WALKED})


@pytest.mark.parametrize(("program", "function"), [each for each in WALKED if " ".join(each) in _SAMPLE])
def test_back_to_every_line_and_forward_again(session: Session, program: str, function: str) -> None:
    """The state at each position is the same as at its first visit, and looking has no effect.

    The functions together have every construct; ``make walks`` runs all functions.
    """
    fixture = Fixture(program)
    end = _end(fixture, function)
    with session.launching(fixture):
        session.set_breakpoints(fixture, *_lines(fixture), mode="compile-time")
    visited: list[dict[str, object]] = []
    stop, trace = session.wait_for_stop("breakpoint"), ""
    while True:
        if stop.description != trace:
            visited, trace = [], stop.description
        visited.append(_state(stop))
        if stop.frame.line == end:
            break
        stop = session.continue_to_stop()
    assert len(visited) > 1
    for number, expected in reversed(list(enumerate(visited[:-1]))):
        session.resume("reverseContinue")
        _compare(number, expected, _state(session.wait_for_stop("breakpoint")))
    for number, expected in list(enumerate(visited))[1:]:
        session.resume("continue")
        _compare(number, expected, _state(session.wait_for_stop("breakpoint")))
    session.set_breakpoints(fixture)
    assert session.run_to_end() == 0
    assert session.output("stdout") == alone(fixture.path).stdout


def _compare(number: int, expected: Mapping[str, object], found: Mapping[str, object]) -> None:
    for name, value in expected.items():
        assert found[name] == value, f"{name} at stop {number}"


@pytest.mark.parametrize("call", [1, 2])
def test_forward_from_an_earlier_snapshot_continues_over_the_present(session: Session, call: int) -> None:
    """A step over a call stops after it, and continue at the next breakpoint, not where the thread was held."""
    session.launch("basic", "call")
    session.wait_for_stop("breakpoint", at="call")
    if call == 2:
        session.continue_to_stop(at="call")
    session.step_in(at="in_helper")
    session.resume("stepBack")
    session.wait_for_stop("step", at="call")
    session.next(at="after_call")
    session.resume("stepBack")
    session.wait_for_stop("step", at="call")
    session.set_breakpoints("basic")
    assert session.run_to_end() == 0


@pytest.mark.parametrize("call", [1, 2])
def test_continue_after_steps_back_stops_at_each_breakpoint_on_the_way(session: Session, call: int) -> None:
    session.launch("basic", "first", "total")
    session.wait_for_stop("breakpoint", at="first")
    session.continue_to_stop(at="total")
    if call == 2:
        session.continue_to_stop(at="first")
        session.continue_to_stop(at="total")
    session.resume("stepBack")
    session.wait_for_stop("step", at="after_call")
    session.continue_to_stop(at="total")
    session.resume("reverseContinue")
    session.wait_for_stop("breakpoint", at="first")
    session.set_breakpoints("basic", "after_call")
    session.continue_to_stop(at="after_call")
    if call == 1:
        session.continue_to_stop(at="after_call")
    assert session.run_to_end() == 0


ORIGINS = """
import torch

def scaled(value, factor):
    grown = value * factor  # @grown
    return grown  # @leave

@torch.compile(backend="eager")
def function(x, items):
    total = x.sum()  # @total
    broken = total / 0 - total / 0  # @broken
    items.append(total)  # @append
    larger = scaled(total, 2)  # @call
    passed = broken + larger  # @passed
    return passed + len(items)  # @end

for number in range(3):
    function(torch.ones(3) * (number + 1), [1])
print("done")
"""


@pytest.fixture
def origins(tmp_path: Path) -> Fixture:
    path = tmp_path / "program.py"
    path.write_text(ORIGINS.replace("# @", "#@"))
    return Fixture(path)


def _run_back(session: Session, stop: Stop, name: str, to: str) -> Stop:
    session.request("dynamoRunBack", {"frameId": stop.frame.data.id, "name": name, "to": to})
    return session.wait_for_stop("goto")


@pytest.mark.parametrize("call", [1, 2, 3])
def test_where_something_came_from(session: Session, origins: Fixture, call: int) -> None:
    """The calls are compiled, replayed, and shown from a saved trace."""
    session.launch(origins, "end")
    stop = session.wait_for_stop("breakpoint", at="end")
    for _ in range(call - 1):
        stop = session.continue_to_stop(at="end")
    for name, to, place in (
        ("total", "bound", "total"),
        ("items", "mutated", "append"),
        ("passed", "nan", "broken"),
        ("larger", "bound", "call"),
        ("x", "guarded", "total"),
    ):
        there = _run_back(session, stop, name, to)
        assert there.marker == place, (name, to)
        stop = session.continue_to_stop(at="end")
    refused = session.refusal("dynamoRunBack", {"frameId": stop.frame.data.id, "name": "x", "to": "bound"})
    assert "came with the call" in refused
    session.set_breakpoints(origins)
    assert session.run_to_end() == 0
    assert session.output("stdout") == "done\n"


@pytest.mark.parametrize("call", [1, 3])
def test_steps_back_and_forward(session: Session, origins: Fixture, call: int) -> None:
    session.launch(origins, "leave")
    stop = session.wait_for_stop("breakpoint", at="leave")
    for _ in range(call - 1):
        stop = session.continue_to_stop(at="leave")
    factor = float(call * 3)
    assert stop.frame.evaluate("grown.item()").text == str(factor * 2)
    for number, place in enumerate(("grown", "call", "append", "broken", "total"), 1):
        session.resume("stepBack")
        stop = session.wait_for_stop("step", at=place)
        assert f", {number} statement" in (stop.description or "")
        if place == "append":
            assert stop.frame.evaluate("len(items)").text == "1"
            assert stop.frame.evaluate("total.item()").text == str(factor)
    session.resume("stepBack")
    assert "beginning" in (session.wait_for_stop("step", at="total").description or "")
    for place in ("broken", "append", "call"):
        session.next(at=place)
    stop = session.step_in(at="grown")
    session.request("restartFrame", {"frameId": stop.frames[1].data.id})
    session.wait_for_stop("restart", at="total")
    timeline = session.request("dynamoTimeline", {"threadId": stop.thread_id})
    lines = [origins.marker_at(entry["line"]) for entry in timeline["entries"]]
    expected = ["total", "broken", "append", "call", "grown", "leave"]
    # A call that is known from an earlier one is known to its end.
    assert lines == (expected if call == 1 else [*expected, "passed", "end"])
    assert timeline["current"] == timeline["entries"][0]["snapshot"]
    page = session.request("dynamoTimeline", {"threadId": stop.thread_id, "start": 1, "count": 2})
    assert (page["start"], page["entries"]) == (1, timeline["entries"][1:3])
    session.request("dynamoGoTo", {"threadId": stop.thread_id, "snapshot": timeline["entries"][2]["snapshot"]})
    session.wait_for_stop("goto", at="append")
    around = session.request("dynamoTimeline", {"threadId": stop.thread_id, "count": 2})
    assert (around["start"], around["current"]) == (2, timeline["entries"][2]["snapshot"])
    assert around["entries"] == timeline["entries"][2:4]
    session.continue_to_stop(at="leave")
    assert session.finish() == 0
    assert session.output("stdout") == "done\n"


def test_ordinary_python_has_no_history(session: Session, origins: Fixture) -> None:
    session.launch(origins, ORIGINS.splitlines().index('print("done")') + 1)
    stop = session.wait_for_stop("breakpoint")
    for command in ("stepBack", "reverseContinue", "dynamoTimeline"):
        assert "no history" in session.refusal(command, {"threadId": stop.thread_id})
    assert session.finish() == 0


LONG = """
import torch

@torch.compile(backend="eager")
def function(x):
    for number in range(1500):
        one = number + 1
        two = one + 1
        three = two + 1
    return x + three  #@end

function(torch.ones(3))
"""


def test_the_timeline_of_a_long_loop(session: Session, tmp_path: Path) -> None:
    """The answer comes before the client's timeout: the work is linear in the length of the loop, not quadratic.

    The option `evaluationTimeout` does not limit it, as it runs nothing of the program. So the test sets a tiny one.
    """
    (tmp_path / "program.py").write_text(LONG)
    fixture = Fixture(tmp_path / "program.py")
    session.launch(fixture, "end", evaluationTimeout=0.02)
    stop = session.wait_for_stop("breakpoint", at="end")
    timeline = session.request("dynamoTimeline", {"threadId": stop.thread_id, "count": 400})
    assert (timeline["total"], timeline["start"]) == (6002, 5602)
    assert timeline["entries"][-1]["snapshot"] == timeline["current"]
    session.resume("stepBack")
    assert "1 statement back" in (session.wait_for_stop("step").description or "")
    session.continue_to_stop(at="end")
    assert session.finish() == 0


BY_INSTRUCTION = """
import torch

def scaled(value, factor=None):
    return value if factor is None or factor.real is None else value * factor

@torch.compile(backend="eager")
def function(x, items):
    def shifted(value, by):
        return value + by + total
    total = x.sum()  #@total
    if total is not None and items is not None and len(items) > 0:
        x = x + 1
    for item in items:
        x = shifted(x, item)
    with torch.no_grad():
        x = scaled(x, 2)
    parts = [x * k for k in range(2)]
    return parts  #@end

for number in range(3):
    function(torch.ones(3), [1, 2])
print("done")
"""


def _instruction(stop: Stop) -> dict[str, str]:
    """Return the part of the state that two calls share at an instruction."""
    state = {**_state(stop), "instruction": stop.frame.data.instruction_pointer_reference}
    del state["Guards"]  # guards contain names that Dynamo makes for each trace
    return {name: repr(value) for name, value in state.items()}


@pytest.mark.parametrize(("forward_in", "back_in"), [(2, 1), (1, 2), (1, 3)])
def test_by_instruction(session: Session, tmp_path: Path, forward_in: int, back_in: int) -> None:
    """Steps back stop at the same instructions as steps forward, in a call that was not stepped through."""
    (tmp_path / "program.py").write_text(BY_INSTRUCTION)
    fixture = Fixture(tmp_path / "program.py")
    session.launch(fixture, "total", "end")
    forward: list[dict[str, str]] = []
    back: list[dict[str, str]] = []
    for call in range(1, 4):
        stop = session.wait_for_stop("breakpoint", at="total")
        while call == forward_in and stop.marker != "end":
            forward.append(_instruction(stop))
            session.resume("next", granularity="instruction")
            stop = session.wait_for_stop()
        if call != forward_in:
            session.continue_to_stop(at="end")
        while call == back_in and "beginning" not in (stop.description or ""):
            session.resume("stepBack", granularity="instruction")
            stop = session.wait_for_stop("step")
            back.append(_instruction(stop))
        if call == back_in:
            session.continue_to_stop(at="total")
            session.continue_to_stop(at="end")
        if call < 3:
            session.resume()
    assert len(forward) > 60
    for number, expected in enumerate(reversed(forward)):
        _compare(number, expected, back[number])
    before = [ast.literal_eval(each["frames"])[0][1] for each in back[len(forward) :]]
    assert before == sorted(before, reverse=True), "back to the function's first instruction"
    assert before[0] == fixture.line("total") - 2
    assert session.run_to_end() == 0
    assert session.output("stdout") == "done\n"
