"""What if: a held trace continues with a change, while the program itself continues unchanged."""

from __future__ import annotations

import ast
import math
from pathlib import Path

import pytest

from tests.client import Fixture, Session, Stop
from tests.client.environments import alone

PROGRAM = """
import torch

def scaled(value, factor):
    grown = value * factor  # @grown
    return grown  # @leave

@torch.compile(backend="eager")
def function(x, items, factor):
    total = x + 1  # @total
    rate = 2  # @rate
    if rate > 3:  # @branch
        total = total.sin()  # @sine
    else:
        total = total.cos()  # @cosine
    for item in items:  # @loop
        total = total + item  # @add
    larger = scaled(total, factor)  # @call
    return larger * rate  # @end

for number in range(3):
    result = function(torch.ones(3) * number, [1, 2], 3)
    print([round(each, 3) for each in result.tolist()])
print("done")
"""


@pytest.fixture(scope="module")
def printed(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the program's output without a debugger."""
    path = tmp_path_factory.mktemp("plain") / "program.py"
    path.write_text(PROGRAM)
    return alone(path).stdout


@pytest.fixture
def program(tmp_path: Path) -> Fixture:
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    return Fixture(path)


def _reach(session: Session, program: Fixture, at: str, call: int) -> Stop:
    """Stop in a call: the compiled one, the replayed one, or one with a saved trace."""
    session.launch(program, at)
    stop = session.wait_for_stop("breakpoint", at=at)
    for _ in range(call - 1):
        stop = session.continue_to_stop(at=at)
    return stop


def _set(session: Session, stop: Stop, name: str, value: str) -> str:
    reference = stop.frame["Locals"].variable.variables_reference
    body = session.request("setVariable", {"variablesReference": reference, "name": name, "value": value})
    text: str = body["value"]
    return text


@pytest.mark.parametrize("call", [1, 2, 3])
def test_another_constant_takes_another_branch(session: Session, program: Fixture, printed: str, call: int) -> None:
    stop = _reach(session, program, "branch", call)
    assert _set(session, stop, "rate", "5") == "5"
    stop = session.wait_for_stop("changed", at="branch")
    assert (stop.description or "").endswith("function [0/0], changed by the debugger")
    assert stop.frame.evaluate("rate").text == "5"
    session.next(at="sine")
    session.set_breakpoints(program)
    assert session.finish() == 0
    assert session.output("stdout") == printed


def _number(stop: Stop, expression: str) -> float:
    return float(stop.frame.evaluate(expression).text)


def _goto(session: Session, stop: Stop, line: int) -> None:
    source = {"path": str(stop.frame.path)}
    [target] = session.request("gotoTargets", {"source": source, "line": line})["targets"]
    session.request("goto", {"threadId": stop.thread_id, "targetId": target["id"]})


@pytest.mark.parametrize("call", [1, 2, 3])
def test_what_was_is_changed_and_gone_back_in(session: Session, program: Fixture, printed: str, call: int) -> None:
    """The test changes a value after a step back, steps back in the changed trace, and changes it again."""
    stop = _reach(session, program, "cosine", call)
    session.resume("stepBack")
    session.wait_for_stop("step", at="branch")
    session.resume("stepBack")
    stop = session.wait_for_stop("step", at="rate")
    _set(session, stop, "total", "x * 0 + 7")
    stop = session.wait_for_stop("changed", at="rate")
    assert _number(stop, "total.max().item()") == 7
    session.continue_to_stop(at="cosine")
    stop = session.next(at="loop")
    assert _number(stop, "total.max().item()") == pytest.approx(math.cos(7))
    session.resume("stepBack")
    stop = session.wait_for_stop("step", at="cosine")
    assert (stop.description or "").endswith("changed by the debugger, 1 statement back")
    assert _number(stop, "total.max().item()") == 7
    session.resume("stepBack")
    stop = session.wait_for_stop("step", at="branch")
    _set(session, stop, "rate", "4")
    session.wait_for_stop("changed", at="branch")
    session.next(at="sine")
    stop = session.next(at="loop")
    assert _number(stop, "total.max().item()") == pytest.approx(math.sin(7))
    for later in range(call, 3):
        # The call itself continues without stops; the next call stops.
        stop = session.continue_to_stop(at="cosine")
        assert _number(stop, "total.max().item()") == later + 1
    assert session.finish() == 0
    assert session.output("stdout") == printed


@pytest.mark.parametrize("call", [1, 2, 3])
def test_goto(session: Session, program: Fixture, printed: str, call: int) -> None:
    """Go to the other branch and back to an earlier line; going into a block is refused."""
    stop = _reach(session, program, "cosine", call)
    _goto(session, stop, program.line("sine"))
    stop = session.wait_for_stop("goto", at="sine")
    assert (stop.description or "").endswith("changed by the debugger")
    stop = session.next(at="loop")
    first = 1.0 * (call - 1) + 1
    assert _number(stop, "total.max().item()") == pytest.approx(math.sin(first))
    _goto(session, stop, program.line("total"))
    stop = session.wait_for_stop("goto", at="total")
    source = {"path": str(program.path)}
    for place, why in (("add", "another block"), ("grown", "no line of function")):
        refused = session.refusal("gotoTargets", {"source": source, "line": program.line(place)})
        assert why in refused
    stop = session.next(at="rate")
    assert _number(stop, "total.max().item()") == first
    assert session.finish() == 0
    assert session.output("stdout") == printed


@pytest.mark.parametrize("call", [1, 2, 3])
def test_what_cannot_be_changed(session: Session, program: Fixture, printed: str, call: int) -> None:
    """The thread stays at its place, with the earlier changes."""
    stop = _reach(session, program, "call", call)
    for value, why in (("missing + 1", "missing"), ("1 +", "not valid Python"), ("dynamic(1)", "no symbols")):
        reference = stop.frame["Locals"].variable.variables_reference
        refused = session.refusal("setVariable", {"variablesReference": reference, "name": "rate", "value": value})
        assert why in refused
        if why != "not valid Python":
            stop = session.wait_for_stop("breakpoint", at="call")
    assert stop.frame.evaluate("rate").text == "2"
    _set(session, stop, "rate", "6")
    stop = session.wait_for_stop("changed", at="call")
    reference = stop.frame["Locals"].variable.variables_reference
    session.refusal("setVariable", {"variablesReference": reference, "name": "total", "value": "print(1)"})
    stop = session.wait_for_stop("changed", at="call")
    assert stop.frame.evaluate("rate").text == "6"
    assert session.finish() == 0
    assert session.output("stdout") == printed


@pytest.mark.parametrize("call", [1, 2, 3])
def test_by_expressions_and_in_callers(session: Session, program: Fixture, printed: str, call: int) -> None:
    stop = _reach(session, program, "leave", call)
    caller = stop.frame_called("function")
    session.request("evaluate", {"expression": "rate = 10", "frameId": caller.data.id, "context": "repl"})
    stop = session.wait_for_stop("changed", at="leave")
    assert stop.frame_called("function").evaluate("rate").text == "10"
    before = _number(stop, "grown.max().item()")
    body = session.request(
        "setExpression", {"frameId": stop.frame.data.id, "expression": "grown", "value": "grown - 1"}
    )
    assert "Tensor" in body["value"]
    stop = session.wait_for_stop("changed", at="leave")
    assert _number(stop, "grown.max().item()") == pytest.approx(before - 1)
    assert "# <changed by the debugger>:2: grown = grown - 1\n" in session.request("dynamoWhatIf")["graph"]
    session.next(at="call")
    stop = session.next(at="end")
    assert _number(stop, "(larger * rate).max().item()") == pytest.approx(10 * (before - 1))
    assert session.finish() == 0
    assert session.output("stdout") == printed


@pytest.mark.parametrize("call", [1, 2, 3])
def test_graphs_are_compared(session: Session, program: Fixture, printed: str, call: int) -> None:
    stop = _reach(session, program, "branch", call)
    assert "no trace was changed" in session.refusal("dynamoWhatIf")
    _set(session, stop, "rate", "5")
    session.wait_for_stop("changed", at="branch")
    session.next(at="sine")
    stop = session.next(at="loop")
    held = session.request("dynamoWhatIf")
    assert not held["isOver"]
    assert held["changes"] == [f"rate = 5 at {program.path}:{program.line('branch')}"]
    assert ".sin(" in held["graph"]
    assert ("programGraph" in held) == (call > 1)
    session.set_breakpoints(program)
    # The program ends, and what there is to say has been said.
    assert session.run_to_end() == 0
    reported = session.output()
    assert "runs the program's own graph" in reported
    differing = [
        line
        for line in reported.splitlines()
        if line.startswith(("-    total_1", "+    total_1", "-    mul", "+    mul"))
    ]
    assert [line.partition("  #")[0].replace(" ", "") for line in differing] == [
        "-total_1=total.cos()",
        "+total_1=total.sin()",
        "-mul_1=grown*2",
        "+mul_1=grown*5",
    ]
    assert session.output("stdout") == printed


AFTER_RESET = """
import torch

@torch.compile(backend="eager")
def first(x):
    return x.tan().tan()

@torch.compile(backend="eager")
def second(x):
    y = x + 1
    return y.cos()  # @end

first(torch.ones(2))
torch._dynamo.reset()
for _ in range(2):
    second(torch.ones(2))
"""


@pytest.mark.parametrize("call", [1, 2])
def test_graphs_are_compared_after_a_reset(session: Session, tmp_path: Path, call: int) -> None:
    """Torch uses the id 0/0 again; the graph of the earlier function with this id must not be used."""
    path = tmp_path / "program.py"
    path.write_text(AFTER_RESET)
    program = Fixture(path)
    stop = _reach(session, program, "end", call)
    _set(session, stop, "y", "x * 7")
    session.wait_for_stop("changed", at="end")
    session.set_breakpoints(program)
    session.resume()
    session.wait_for_output("the changed trace of", "important")
    assert session.wait_for_exit() == 0
    assert "tan" not in session.output("important")


@pytest.mark.parametrize("call", [1, 2, 3])
def test_kept_for_one_call(session: Session, program: Fixture, printed: str, call: int) -> None:
    """The call, compiled or cached, runs the changed graph; other calls run the program's own code."""
    stop = _reach(session, program, "branch", call)
    assert "this trace was not changed" in session.refusal("dynamoKeep", {"threadId": stop.thread_id})
    _set(session, stop, "rate", "5")
    stop = session.wait_for_stop("changed", at="branch")
    session.request("dynamoKeep", {"threadId": stop.thread_id})
    if call < 3:
        stop = session.continue_to_stop(at="branch")
        assert (stop.description or "").startswith(f"Call {call + 1} of")
        assert session.request("dynamoWhatIf")["kept"]
    assert session.finish() == 0
    assert "the graph of the changed trace" in session.output()
    lines, others = session.output("stdout").splitlines(), printed.splitlines()
    assert ast.literal_eval(lines.pop(call - 1)) == [round((math.sin(call) + 3) * 3 * 5, 3)] * 3
    del others[call - 1]
    assert lines == others


AROUND = """
import torch

@torch.compile(backend="eager")
def function(x, items, factor):
    number = 2
    items.append(number)  # @append
    total = x * number  # @total
    print("break")
    return total * factor  # @end

for number in range(3):
    items = []
    print(function(torch.ones(2), items, 3).tolist(), items)
"""


def test_keeping_what_the_cache_entry_cannot_run(session: Session, tmp_path: Path) -> None:
    """A cached call's code is running already, so only its graph can be replaced, before and after a graph break."""
    (tmp_path / "program.py").write_text(AROUND)
    fixture = Fixture(tmp_path / "program.py")
    session.launch(fixture, "append", "total", "end")
    for call in range(3):
        stop = session.wait_for_stop("breakpoint", at="append")
        if call == 2:
            _set(session, stop, "number", "7")
            stop = session.wait_for_stop("changed", at="append")
            session.request("dynamoKeep", {"threadId": stop.thread_id})
            stop = session.continue_to_stop(at="total")
            stop = session.continue_to_stop(at="end")
            reported = session.request("dynamoWhatIf")
            assert not reported.get("kept")
        else:
            stop = session.continue_to_stop(at="total")
        if call == 1:
            _set(session, stop, "number", "7")
            stop = session.wait_for_stop("changed", at="total")
            session.request("dynamoKeep", {"threadId": stop.thread_id})
        if call < 2:
            stop = session.continue_to_stop(at="end")
        if call:
            _set(session, stop, "factor", "10")
            stop = session.wait_for_stop("changed", at="end")
            session.request("dynamoKeep", {"threadId": stop.thread_id})
        session.resume()
    assert session.wait_for_exit() == 0
    assert session.output("stdout").splitlines() == [
        "break",
        "[6.0, 6.0] [2]",
        "break",
        "[70.0, 70.0] [2]",
        "break",
        "[20.0, 20.0] [2]",
    ]
    assert "the changes are not applied: " in session.output()


@pytest.mark.parametrize("call", [1, 2, 3])
def test_sizes(session: Session, program: Fixture, printed: str, call: int) -> None:
    """A number becomes a symbol, and the symbol a number."""
    stop = _reach(session, program, "branch", call)
    assert _set(session, stop, "rate", "dynamic(rate + 6)").endswith("(8 in this call)")
    stop = session.wait_for_stop("changed", at="branch")
    assert "SymNodeVariable" in stop.frame["Locals"]["rate"].texts().values()
    session.next(at="sine")
    session.next(at="loop")
    stop = session.request("dynamoWhatIf")
    assert "dynamic" in stop["graph"]
    assert session.finish() == 0
    assert session.output("stdout") == printed


SHAPED = """
import torch
from torch._dynamo import pgo
from torch._dynamo.eval_frame import _debug_get_cache_entry_list

graphs = []

def backend(module, inputs):
    graphs.append(module.code)
    return module.forward

@torch.compile(backend=backend)
def function(x, y):
    ones = x.new_ones(x.shape[0]) * y.sum()
    total = x * x.shape[0]
    return (total + ones).sum() * y.shape[1]  # @end

for size in (3, 4, 5, 6):
    print(function(torch.ones(size), torch.ones(2, 3)).item())
print(len(graphs), graphs)
print([str(entry.compile_id) for entry in _debug_get_cache_entry_list(function.__wrapped__.__code__)])
print(pgo.get_code_state())
"""


@pytest.mark.parametrize("call", [1, 2, 3, 4])
def test_sizes_of_tensors(session: Session, tmp_path: Path, call: int) -> None:
    """A size is static in the first call and a symbol in the recompile; each can be changed into the other."""
    path = tmp_path / "program.py"
    path.write_text(SHAPED)
    fixture = Fixture(path)
    stop = _reach(session, fixture, "end", call)
    was, wanted = ("3", "symbolic") if call == 1 else ("s77", "static")
    assert was in stop.frame["Locals"]["x"]["shape"].text
    for dimension, value, why in ((0, "7", "in this call"), (1, wanted, "1 dimensions"), (0, "other", "it can be")):
        arguments = {"frameId": stop.frame.data.id, "expression": f"x.shape[{dimension}] = {value}", "context": "repl"}
        assert why in session.refusal("evaluate", arguments)
        stop = session.wait_for_stop("breakpoint", at="end")
    reference = stop.frame["Locals"]["x"].variable.variables_reference
    refused = session.refusal("setVariable", {"variablesReference": reference, "name": "dtype", "value": "1"})
    assert "assign another tensor" in refused
    session.request("setVariable", {"variablesReference": reference, "name": "shape", "value": wanted})
    stop = session.wait_for_stop("changed", at="end")
    shown = stop.frame["Locals"]["total"]["shape"].text
    assert ("s" in shown) == (call == 1)
    assert _number(stop, "total.sum().item()") == (call + 2) ** 2
    graph = session.request("dynamoWhatIf")["graph"]
    assert ("s77" in graph) == (call == 1)
    # A size of the other tensor can be set as well, by assignment.
    arguments = {"frameId": stop.frame.data.id, "expression": "y.shape[1] = symbolic", "context": "repl"}
    session.request("evaluate", arguments)
    stop = session.wait_for_stop("changed", at="end")
    assert "[2, s" in stop.frame["Locals"]["y"].text
    assert ("s" in stop.frame["Locals"]["total"]["shape"].text) == (call == 1)
    arguments = {"frameId": stop.frame.data.id, "expression": "ones.shape[0] = 17", "context": "repl"}
    assert "in this call" in session.refusal("evaluate", arguments)
    session.wait_for_stop("changed", at="end")
    assert session.finish() == 0
    assert session.output("stdout") == _plain(fixture)


OBSERVED = """
import random
import re

import torch
from torch._dynamo import bytecode_transformation, pgo
from torch._dynamo.eval_frame import _debug_get_cache_entry_list
from torch._dynamo.utils import CleanupManager, counters

graphs = []

def backend(module, inputs):
    graphs.append(module.code)
    return module.forward

@torch.compile(backend=backend)
def broken(x, items, scale):
    y = x * scale  # @before_break
    items.append(scale)
    torch._dynamo.graph_break()
    z = y + scale  # @after_break
    return z.relu()

@torch.compile(backend=backend)
def shaped(x):
    size = x.shape[0]
    total = x * size  # @sized
    if size > 3:
        total = total + 1
    return total  # @shaped_end

def scaled(x, factor):
    return x * factor  # @helper

@torch.compile(backend=backend)
def random_part(x, factor):
    with torch.no_grad():
        kept = torch.nn.functional.dropout(x, 0.5)  # @quiet
        kept = scaled(kept, factor)
    return kept + torch.rand(3) * random.random()  # @drawn

torch.manual_seed(0)
random.seed(0)
names = set(globals())
for number in range(3):
    items = []
    print([round(each, 4) for each in broken(torch.ones(3), items, 2).tolist()], items)
for size in (3, 4, 5, 6):
    print(shaped(torch.ones(size)).tolist())
for number in range(2):
    print([round(each, 4) for each in random_part(torch.ones(3, requires_grad=True), 2).tolist()])
print(torch.is_grad_enabled(), torch.rand(1).item(), random.random())
guards = [
    str(entry.guard_manager)
    for function in (broken, shaped, random_part)
    for entry in _debug_get_cache_entry_list(function.__wrapped__.__code__)
]
told = [*graphs, *guards, repr({group: dict(each) for group, each in counters.items()})]
told += [repr(bytecode_transformation._unique_id_counter), str(CleanupManager.count)]
told += [repr(pgo.get_code_state()), repr(sorted(set(globals()) - names))]
for text in told:
    text = re.sub(r"0x[0-9a-f]+|\\\\b\\\\d{9,}\\\\b|__compiled_fn_\\\\w+|0.00\\\\d+", "?", text)
    print(text)
"""


@pytest.fixture
def observed(tmp_path: Path) -> Fixture:
    path = tmp_path / "program.py"
    path.write_text(OBSERVED.replace("\\\\", "\\"))
    return Fixture(path)


def _plain(fixture: Fixture) -> str:
    return alone(fixture.path).stdout


@pytest.mark.parametrize(
    ("place", "name", "value"),
    [
        ("before_break", "scale", "5"),
        ("after_break", "y", "y - 1"),
        ("sized", "size", "2"),
        ("sized", "size", "dynamic(7)"),
        ("shaped_end", "total", "torch.zeros_like(total)"),
        ("quiet", "x", "x * 3"),
        ("helper", "factor", "4"),
        ("drawn", "kept", "torch.rand(3)"),
    ],
)
def test_it_has_no_effect(session: Session, observed: Fixture, place: str, name: str, value: str) -> None:
    """With changes in every call, results, graphs, guards, counters, random numbers and globals stay the same."""
    session.launch(observed, place)
    stop = session.wait_for_stop("breakpoint", at=place)
    is_over = False
    while not is_over:
        _set(session, stop, name, value)
        stop = session.wait_for_stop("changed", at=place)
        assert "changed by the debugger" in (stop.description or "")
        before = len(session.timeline.events)
        session.resume("continue")
        session.timeline.wait_until(
            lambda before=before: any(
                event["event"] in ("stopped", "terminated") for event in session.timeline.events[before:]
            ),
            "the next stop, or the end",
        )
        is_over = any(event["event"] == "terminated" for event in session.timeline.events[before:])
        if not is_over:
            stop = session.wait_for_stop("breakpoint", at=place)
    assert session.wait_for_exit() == 0
    assert session.output("stdout") == _plain(observed)


BREAKS = """
import torch

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = 2

    def forward(self, x, values):
        total = x + 1  # @total
        count = 2
        def grow(by):
            nonlocal count
            count += by
        grow(1)
        total = total * count  # @counted
        total = total * self.scale * values[0]  # @scaled
        print("break")
        return total + count  # @after

model = torch.compile(Model(), backend="eager")
for number in range(2):
    print(model(torch.ones(3), [1.5]).tolist())
"""


@pytest.mark.parametrize("call", [1, 2])
def test_attributes_cells_items_and_restarts(session: Session, tmp_path: Path, call: int) -> None:
    """The graph break restarts the analysis with the changes; no line stops twice."""
    path = tmp_path / "program.py"
    path.write_text(BREAKS)
    fixture = Fixture(path)
    session.launch(fixture, "total", "counted", "after")
    for _ in range(call):
        stop = session.wait_for_stop("breakpoint", at="total")
        stop = session.continue_to_stop(at="counted")
        if _ + 1 < call:
            session.continue_to_stop(at="after")
            session.resume("continue")
    for expression, value in (("count", "10"), ("self.scale", "3"), ("values[0]", "7")):
        arguments = {"expression": f"{expression} = {value}", "frameId": stop.frame.data.id, "context": "repl"}
        session.request("evaluate", arguments)
        stop = session.wait_for_stop("changed", at="counted")
        assert stop.frame.evaluate(expression).text == value
    assert "cannot be deleted" in session.refusal(
        "evaluate", {"expression": "del total", "frameId": stop.frame.data.id, "context": "repl"}
    )
    stop = session.wait_for_stop("changed", at="counted")
    session.next(at="scaled")
    # The program's own trace continues; its resume function is another trace.
    stop = session.continue_to_stop(at="after")
    assert "changed" not in (stop.description or "")
    assert "total_1 = total * 10" in session.request("dynamoWhatIf")["graph"]
    session.set_breakpoints(fixture)
    assert session.run_to_end() == 0
    assert session.output("stdout") == _plain(fixture)
