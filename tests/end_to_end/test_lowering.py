"""Breakpoints of mode ``lowering`` hold the program where torch processes the operations of a line."""

from __future__ import annotations

from pathlib import Path

import pytest

from dynamo_dap.protocol.wire.types import SourceBreakpoint
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
SET = "hasattr(torch._inductor.graph.GraphLowering.run_node, '__wrapped__')"
STAGES = [
    "AOTAutograd traces",
    "A pass takes out",
    "A pass puts in",
    "Inductor lowers",
    "Inductor fuses",
    "Inductor writes code for",
]


@pytest.mark.timeout(300)
def test_the_program_is_held_at_each_stage_of_a_line(session: Session, tmp_path: Path) -> None:
    need_inductor("the mode lowering")
    program = program_of(PROGRAM, tmp_path)
    wanted = SourceBreakpoint(line=program.line("scaled"), mode="lowering")
    # A step goes into torch's own Python.
    with session.launching(program, justMyCode=False):
        session.set_breakpoints(program, wanted, SourceBreakpoint(line=program.line("end")))
    stop = session.wait_for_stop("breakpoint")
    assert (stop.description, stop.frame.name) == (STAGES[0], f"{STAGES[0]} relu (relu)")
    assert [each.marker for each in stop.frames[1:3]] == ["scaled", "call"]
    assert stop.frames[-1].marker == "first"
    assert "Interpreter.run" in [each.name for each in stop.frames[3:]], "torch's functions are below"
    assert stop.frame.evaluate("node.name").text == "'relu'"
    assert stop.frame.evaluate(f"{SET}, torch.ones(2).sum().item()").text == "(True, 2.0)", "computed apart"

    session.resume("stepIn")
    inside = session.wait_for_stop().frame
    assert (inside.name, inside.path and inside.path.name) == (
        "PropagateUnbackedSymInts.run_node",
        "symbolic_shapes.py",
    )
    assert session.next().frame.line > inside.line, "by debugpy, in torch's own Python"

    seen, in_backward = [], set()
    while (stop := session.continue_to_stop()).marker != "end":
        assert stop.frames[1].marker == "scaled"
        seen.append(stop.description)
        in_backward |= {stop.description} if stop.frames[-1].marker == "backward" else set()
    assert list(dict.fromkeys([STAGES[0], *seen])) == STAGES
    assert in_backward >= {"Inductor lowers", "Inductor writes code for"}
    session.set_breakpoints(program)
    assert stop.frame.evaluate(SET).text == "False"
    assert session.run_to_end() == 0
    assert session.output("stdout") == "True True\n"


PASSES = """
import torch
import torch._inductor.config

aten = torch.ops.aten

def rewrites(graph):
    for node in list(graph.nodes):
        if node.target is aten.sin.default:
            node.target = aten.cos.default
        elif node.target is aten.add.Tensor:
            node.args = (node.args[0], 3)
        elif node.target is aten.exp.default:
            with graph.inserting_after(node):
                made = graph.call_function(aten.neg.default, (node,))
            made.meta.update(node.meta)
            node.replace_all_uses_with(made, delete_user_cb=lambda user: user is not made)  # @pass

torch._inductor.config.post_grad_custom_pre_pass = rewrites

@torch.compile
def f(x):
    y = torch.sin(x)  # @function
    y = y + 2  # @constant
    return torch.exp(y) * 2  # @put_in

print(f(torch.zeros(2)))  # @first
"""


@pytest.mark.timeout(300)
def test_passes_that_put_operations_in_or_change_them(session: Session, tmp_path: Path) -> None:
    need_inductor("the mode lowering")
    program = program_of(PASSES, tmp_path)
    lines = [
        SourceBreakpoint(
            line=program.line(marker), mode="lowering", condition="'takes' not in stage and 'pass' in stage"
        )
        for marker in ("function", "constant", "put_in")
    ]
    with session.launching(program):
        session.set_breakpoints(program, *lines)
    stop = session.wait_for_stop("breakpoint")
    assert (stop.description, stop.frame.name) == ("A pass puts in", "a pass puts in neg_default (aten.neg.default)")
    assert [stop.frames[1].marker, stop.frames[-1].marker] == ["put_in", "first"]
    assert "pass" in [each.marker for each in stop.frames], "the pass that does it"
    stop = session.continue_to_stop()
    assert stop.frame.name == "a pass has changed sin (aten.cos.default)"
    assert stop.frames[1].marker == "function"
    stop = session.continue_to_stop()
    assert stop.frame.name == "a pass has changed add (aten.add.Tensor)"
    assert (stop.frames[1].marker, stop.frame.evaluate("node.args[1]").text) == ("constant", "3")
    assert session.run_to_end() == 0
    assert session.output("stdout") == "tensor([-109.1963, -109.1963])\n"
