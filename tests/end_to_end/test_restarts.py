"""Graph breaks: Dynamo restarts its analysis, and a resume function runs the rest."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dynamo_dap.protocol.wire.types import SourceBreakpoint
from tests.client import Fixture, Session


def test_a_breakpoint_is_hit_once_and_the_rest_is_a_frame_of_its_own(session: Session) -> None:
    session.launch("graph_break", "in_loop", "after_break")
    seen = []
    for _ in range(3):
        stop = session.wait_for_stop("breakpoint", at="in_loop")
        seen.append(stop.frame["Locals"]["index"].text)
        session.resume()
    assert seen == ["0", "1", "2"]
    stop = session.wait_for_stop("breakpoint", at="after_break")
    assert stop.frame.name.startswith("train_step (resumed at line ")
    assert stop.frame["Locals"]["scaled"].text.startswith("Tensor f32[2, 3]")
    assert not [name for name in stop.frame["Locals"].children if name.startswith("___")]
    assert [frame.name for frame in stop.frames][-2:] == ["main", "<module>"]
    assert "torch_dynamo_resume" not in " ".join(frame.name for frame in stop.frames)
    assert session.run_to_end() == 0
    assert session.output("stdout") == "sum 42.0\n"


LOOPING = """
import torch

def helper(x, n):
    y = x + n
    z = y * 2  #@helped
    torch._dynamo.graph_break()
    return z

class Block(torch.nn.Module):
    def forward(self, x):
        x = x + 1
        return helper(x, 1)  #@block

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = torch.nn.ModuleList([Block(), Block()])

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return x

model = torch.compile(Model(), backend="eager")
for call in range(3):
    model(torch.full((2,), call + 1.0))
"""


def looping(folder: Path) -> Fixture:
    program = Fixture(folder / "looping.py")
    program.path.write_text(LOOPING, encoding="utf-8")
    return program


def test_a_line_stops_once_per_execution_if_dynamo_skips_the_outer_function(session: Session, tmp_path: Path) -> None:
    """Dynamo skips ``Model.forward`` because of a break in its loop, after it has inlined the helper."""
    session.launch(looping(tmp_path), "helped")
    values = []
    for number in range(6):
        stop = (
            session.wait_for_stop("breakpoint", at="helped") if number == 0 else session.continue_to_stop(at="helped")
        )
        values.append(stop.frame.evaluate("y[0].item()").text)
    assert values == ["3.0", "8.0", "4.0", "10.0", "5.0", "12.0"]
    assert session.run_to_end() == 0


def test_log_messages_and_hit_counts_count_each_execution_once(session: Session, tmp_path: Path) -> None:
    """Each execution counts once, as with stops."""
    program = looping(tmp_path)
    with session.launching(program):
        session.set_breakpoints(
            program,
            SourceBreakpoint(line=program.line("block"), log_message="x is {x[0].item()}"),
            SourceBreakpoint(line=program.line("helped"), hit_condition="3"),
        )
    stop = session.wait_for_stop("breakpoint", at="helped")
    assert stop.frame.evaluate("y[0].item()").text == "4.0"
    assert session.run_to_end() == 0
    lines = [line for line in session.output("console").splitlines() if line.startswith("x is")]
    assert lines == [f"x is {value}.0" for value in (2, 7, 3, 9, 4, 11)]


SKIPPED = """
import torch

def scaled(x, n):
    y = x * n  #@scaled
    for _ in range(2):
        torch._dynamo.graph_break()
        y = y + 1  #@added
    return y

def outer(x):
    a = x + 1  #@first
    for number in (2, 3):
        a = scaled(a, number)  #@called
        print("number", number)
    return a

compiled = torch.compile(outer, backend="eager")
for call in range(2):
    compiled(torch.full((2,), call + 1.0))
"""


def skipped(folder: Path) -> Fixture:
    program = Fixture(folder / "skipped.py")
    program.path.write_text(SKIPPED, encoding="utf-8")
    return program


def test_a_skipped_function_stops_once_per_execution(session: Session, tmp_path: Path) -> None:
    """Dynamo traces a part of the function; then it and its helpers run as ordinary Python."""
    session.launch(skipped(tmp_path), "first", "called", "scaled", "added")
    expected = ["first", *["called", "scaled", "added", "added"] * 2] * 2
    stops = [session.wait_for_stop("breakpoint").marker]
    stops += [session.continue_to_stop().marker for _ in expected[1:]]
    assert stops == expected
    assert session.run_to_end() == 0
    assert session.output("stdout") == "number 2\nnumber 3\n" * 2


def test_messages_and_hit_counts_of_a_skipped_function(session: Session, tmp_path: Path) -> None:
    """Each execution counts once, as with stops; a function breakpoint on a helper counts each call."""
    program = skipped(tmp_path)
    with session.launching(program):
        session.set_breakpoints(
            program,
            SourceBreakpoint(line=program.line("called"), log_message="a is {a[0].item()}", hit_condition=">0"),
            SourceBreakpoint(line=program.line("added"), hit_condition="3"),
        )
    stop = session.wait_for_stop("breakpoint", at="added")
    assert stop.frame.evaluate("y[0].item()").text == "18.0"
    assert session.run_to_end() == 0
    lines = [line for line in session.output().splitlines() if line.startswith("a is")]
    assert lines == [f"a is {value}.0" for value in (2, 6, 3, 8)]


BOTH_WAYS = """
import torch

def helper(x, n):
    y = x * n  #@helper
    return y  #@returned

compiled = torch.compile(helper, backend="eager", dynamic=False)
for call in range(4):
    helper(torch.ones(2), call)
    compiled(torch.ones(2 + call // 2), -1)
"""


def test_a_hit_count_has_the_hits_of_ordinary_python_and_of_traces(session: Session, tmp_path: Path) -> None:
    """Calls of a function alternate between ordinary Python and compiled code: traced, cached, recompiled."""
    program = Fixture(tmp_path / "both_ways.py")
    program.path.write_text(BOTH_WAYS, encoding="utf-8")
    with session.launching(program):
        session.set_breakpoints(
            program,
            SourceBreakpoint(line=program.line("helper"), hit_condition="% 3"),
            SourceBreakpoint(line=program.line("returned"), condition="n != 0", hit_condition="3"),
        )
    stop = session.wait_for_stop("breakpoint")
    found = [(stop.marker, stop.frame.evaluate("n").text)]
    for _ in range(2):
        stop = session.continue_to_stop()
        found.append((stop.marker, stop.frame.evaluate("n").text))
    assert found == [("helper", "1"), ("returned", "-1"), ("helper", "-1")]
    assert session.run_to_end() == 0


ENDING = """
import torch

@torch.compile(backend="eager")
def shown(x):
    y = x + 1
    print(y.sum().item())  #@shown
    return y

for call in range(3):
    shown(torch.full((2,), call + 0.0))
"""


def test_the_line_of_a_break_stops_once_if_the_rest_runs_as_ordinary_python(session: Session, tmp_path: Path) -> None:
    """The resume function begins in the middle of the line, under debugpy, since it has no operations to compile."""
    program = Fixture(tmp_path / "ending.py")
    program.path.write_text(ENDING, encoding="utf-8")
    session.launch(program, "shown")
    for call in range(3):
        stop = session.wait_for_stop("breakpoint", at="shown") if call == 0 else session.continue_to_stop(at="shown")
        assert stop.frame.evaluate("y[0].item()").text == f"{call + 1}.0"
    assert session.run_to_end() == 0
    assert session.output("stdout") == "2.0\n4.0\n6.0\n"


REST = """
import torch

def text(value):
    return str(value)  # torch 2.15 cannot trace ``f"{value:.1f}"``

@torch.compile(backend="eager")
def shown(x):
    y = x + 1  #@first
    print(text(y.sum().item()))  #@broken
    names = ["a"]  #@names
    print(names)  #@printed
    return y  #@last

for call in range(3):
    shown(torch.full((2,), call + 0.0))  #@call
"""


def test_next_over_breaks_of_a_cached_call_goes_to_each_line(session: Session, tmp_path: Path) -> None:
    """After the second break the function runs as ordinary Python. The step goes over the helper on a break's line."""
    program = Fixture(tmp_path / "rest.py")
    program.path.write_text(REST, encoding="utf-8")
    session.launch(program, "first")
    session.wait_for_stop("breakpoint", at="first")
    for _ in range(2):
        session.continue_to_stop(at="first")
        for marker in ("broken", "names", "printed", "last", "call"):
            session.next(at=marker)
    assert session.run_to_end() == 0


def test_step_out_before_a_break_goes_to_the_caller(session: Session, tmp_path: Path) -> None:
    """The step does not end in the resume function of the function that it leaves."""
    program = Fixture(tmp_path / "rest.py")
    program.path.write_text(REST, encoding="utf-8")
    session.launch(program, "first")
    session.wait_for_stop("breakpoint", at="first")
    session.continue_to_stop(at="first")
    session.resume("stepOut")
    session.wait_for_stop("step", at="call")
    session.continue_to_stop(at="first")
    assert session.run_to_end() == 0


@pytest.mark.parametrize(
    ("options", "expected"),
    [({}, ["1.0", "2.0", "3.0"]), ({"condition": "y[0] > 1"}, ["2.0", "3.0"]), ({"hit_condition": "2"}, ["2.0"])],
)
def test_a_log_message_at_the_line_of_a_break_is_printed_once(
    session: Session, tmp_path: Path, options: dict[str, Any], expected: list[str]
) -> None:
    """This also holds for a message with a condition or a hit count."""
    program = Fixture(tmp_path / "ending.py")
    program.path.write_text(ENDING, encoding="utf-8")
    line = program.line("shown")
    with session.launching(program):
        session.set_breakpoints(program, SourceBreakpoint(line=line, log_message="y is {y[0].item()}", **options))
    assert session.wait_for_exit() == 0
    lines = [text for text in session.output().splitlines() if text.startswith("y is")]
    assert lines == [f"y is {value}" for value in expected]


def test_a_step_over_a_graph_break_says_which_attempt_it_is(session: Session) -> None:
    session.launch("graph_break", "before_break")
    stop = session.wait_for_stop("breakpoint", at="before_break")
    assert "attempt" not in stop.description
    session.next(at="break")
    stop = session.next()
    if stop.marker == "break":
        assert "attempt 2" in stop.description
        stop = session.next()
    assert stop.marker == "after_break"
    assert stop.frame.name.startswith("train_step (resumed at line ")
    session.next(at="return")
    assert session.run_to_end() == 0


def test_pause_on_restart_hits_again(session: Session) -> None:
    session.launch("graph_break", "in_loop", pauseOnRestart=True)
    attempts = []
    for _ in range(6):
        stop = session.wait_for_stop("breakpoint", at="in_loop")
        attempts.append("attempt 2" in stop.description)
        session.resume()
    assert attempts == [False] * 3 + [True] * 3
    assert session.wait_for_exit() == 0


def test_recompiles_are_new_compiles(session: Session) -> None:
    """Each recompile hits the breakpoint with a new compile id; a cached call hits it with the id of its entry."""
    session.launch("recompiles", "mode")
    identities = []
    modes = []
    for _ in range(5):
        stop = session.wait_for_stop("breakpoint", at="mode")
        identities.append(stop.frame["Compile"].texts())
        modes.append(stop.frame["Locals"]["mode"].text)
        session.resume()
    assert session.wait_for_stop("breakpoint", at="mode").description == "Call 6 of select [0/0]"
    assert session.run_to_end() == 0
    assert [mode.split()[0] for mode in modes] == ["'double'", "5", "'other'", "'other'", "'double'"]
    ids = [next(text for name, text in one.items() if "id" in name.lower()) for one in identities]
    assert len(set(ids)) == 5, ids
