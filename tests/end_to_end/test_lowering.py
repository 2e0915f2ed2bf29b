"""Breakpoints of mode ``lowering``: the program is held where torch works on what came from a line."""

from __future__ import annotations

from pathlib import Path

import pytest

from dynamo_dap.protocol.types import SourceBreakpoint
from tests.client import Session
from tests.client.environments import need_inductor
from tests.end_to_end.test_cached_calls import program_of

PROGRAM = """
import torch

def scaled(x):
    return torch.softmax(torch.relu(x), 0) * 2  # @scaled

def f(x):
    y = x + 1
    return scaled(y).cos().sum()  # @call

x = torch.linspace(-1, 1, 8, requires_grad=True)
compiled = torch.compile(f)
loss = compiled(x)  # @first
loss.backward()  # @backward
gradient, x.grad = x.grad, None
f(x).backward()
print(torch.allclose(compiled(x), f(x)), torch.allclose(gradient, x.grad))  # @end
"""
ARMED = "hasattr(torch._inductor.graph.GraphLowering.run_node, '__wrapped__')"
STAGES = [
    "AOTAutograd traces",
    "A pass takes out",
    "Inductor lowers",
    "Inductor fuses",
    "Inductor writes code for",
]


@pytest.mark.timeout(300)
def test_the_program_is_held_at_each_stage_of_a_line(session: Session, tmp_path: Path) -> None:
    need_inductor("the mode lowering")
    program = program_of(PROGRAM, tmp_path)
    wanted = SourceBreakpoint(line=program.line("scaled"), mode="lowering")
    # Torch's own Python is stepped into.
    with session.launching(program, justMyCode=False):
        session.set_breakpoints(program, wanted, SourceBreakpoint(line=program.line("end")))
    stop = session.wait_for_stop("breakpoint")
    assert (stop.description, stop.frame.name) == (STAGES[0], f"{STAGES[0]} relu (relu)")
    assert [each.marker for each in stop.frames[1:3]] == ["scaled", "call"]
    assert stop.frames[-1].marker == "first"
    assert "Interpreter.run" in [each.name for each in stop.frames[3:]], "torch's functions are below"
    assert stop.frame.evaluate("node.name").text == "'relu'"
    assert stop.frame.evaluate(f"{ARMED}, torch.ones(2).sum().item()").text == "(True, 2.0)", "computed apart"

    session.resume("stepIn")
    inside = session.wait_for_stop().frame
    assert (inside.name, inside.path and inside.path.name) == (
        "PropagateUnbackedSymInts.run_node",
        "symbolic_shapes.py",
    )
    assert session.next().frame.line > inside.line, "by debugpy, in torch's own Python"

    seen, in_backward = [], set()
    while (stop := session.go_on()).marker != "end":
        assert stop.frames[1].marker == "scaled"
        seen.append(stop.description)
        in_backward |= {stop.description} if stop.frames[-1].marker == "backward" else set()
    assert list(dict.fromkeys([STAGES[0], *seen])) == STAGES
    assert in_backward >= {"Inductor lowers", "Inductor writes code for"}
    session.set_breakpoints(program)
    assert stop.frame.evaluate(ARMED).text == "False"
    assert session.run_to_end() == 0
    assert session.output("stdout") == "True True\n"
