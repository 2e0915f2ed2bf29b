"""Stops after a graph break without a resume function, where the rest of the function runs as ordinary Python."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.client import Session

PROGRAM = """
import torch

def in_try(x):
    a = x.sin()
    b = a.cos()
    try:
        print("in try")  #@broken
        c = b + 1  #@inside
    except ValueError:
        c = b
    d = c * 2  #@after
    return d  #@returned

def in_loop(x):
    a = x.sin()
    for i in range(3):
        a = a + i  #@body
        print("in loop")
    return a * 2  #@looped

compiled_try = torch.compile(in_try, backend="eager")
compiled_loop = torch.compile(in_loop, backend="eager")
for _ in range(3):
    compiled_try(torch.ones(3))
for _ in range(2):
    compiled_loop(torch.ones(3))
"""


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "continued.py"
    path.write_text(PROGRAM, encoding="utf-8")
    return path


def test_each_call_stops_on_the_lines_that_run_as_python(session: Session, program: Path) -> None:
    """The line of the break was traced, and also stops once per call. A function with a break in a loop runs as Python.

    Its first call is traced until the break, and stops no more often than the second one.
    """
    session.launch(program, "broken", "inside", "after", "body", "looped")
    stop = session.wait_for_stop("breakpoint", at="broken")
    for call in range(3):
        if call:
            stop = session.continue_to_stop(at="broken")
        stop = session.continue_to_stop(at="inside")
        assert stop.frame.name == "in_try"
        assert stop.frame.evaluate("b.shape").text == "torch.Size([3])"
        session.continue_to_stop(at="after")
    for _ in range(2):
        for _ in range(3):
            assert session.continue_to_stop(at="body").frame.name == "in_loop"
        session.continue_to_stop(at="looped")
    assert session.run_to_end() == 0


def test_next_goes_line_by_line(session: Session, program: Path) -> None:
    """Steps lead from the trace, over the graph break, to the function's end."""
    session.launch(program, "broken")
    session.wait_for_stop("breakpoint", at="broken")
    for _ in range(2):
        assert [session.next().marker for _ in range(3)] == ["inside", "after", "returned"]
        session.continue_to_stop(at="broken")
    session.set_breakpoints(program)
    assert session.run_to_end() == 0


def test_breakpoints_of_mode_run_time_stop_once_a_line(session: Session, program: Path) -> None:
    with session.launching(program):
        session.set_breakpoints(program, "inside", "after", mode="run-time")
    stop = session.wait_for_stop("breakpoint", at="inside")
    for _ in range(2):
        session.continue_to_stop(at="after")
        stop = session.continue_to_stop(at="inside")
    assert stop.frame.name == "in_try"
    session.set_breakpoints(program)
    assert session.run_to_end() == 0


PROPERTY = """
import torch

class Scaled(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(3))

    @property
    def scaled(self):
        print("in property")  #@getter
        return self.weight * 2  #@rest

    def forward(self, x):
        a = x.sin()
        b = a * self.scaled  #@use
        c = b + 1  #@after
        return c  #@returned

def outer(model, x):
    y = x + 1
    z = y * model.scaled  #@multiplied
    return z * 3  #@tripled

model = Scaled()
compiled_model, compiled_outer = torch.compile(model, backend="eager"), torch.compile(outer, backend="eager")
for _ in range(3):
    compiled_model(torch.ones(3))
for _ in range(2):
    compiled_outer(model, torch.ones(3))
"""


def test_the_rest_of_a_function_after_a_break_in_a_property_stops_in_each_call(
    session: Session, tmp_path: Path
) -> None:
    program = tmp_path / "property.py"
    program.write_text(PROPERTY, encoding="utf-8")
    session.launch(program, "rest", "after", "returned", "tripled")
    stop = session.wait_for_stop("breakpoint", at="rest")
    for call in range(3):
        if call:
            session.continue_to_stop(at="rest")
        stop = session.continue_to_stop(at="after")
        assert stop.frame.evaluate("b.shape").text == "torch.Size([3])"
        session.continue_to_stop(at="returned")
    for _ in range(2):
        session.continue_to_stop(at="rest")
        session.continue_to_stop(at="tripled")
    assert session.run_to_end() == 0
