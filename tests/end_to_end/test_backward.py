"""Breakpoints of mode ``backward`` stop when the gradient of a line's result exists, and change nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from dynamo_dap.protocol.connection import RequestFailed
from dynamo_dap.protocol.wire.types import SourceBreakpoint
from tests.client import Fixture, Session
from tests.end_to_end.test_cached_calls import program_of, untouched

TRAINING = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.norm = nn.BatchNorm1d(4)
        self.drop = nn.Dropout(0.5)

    def scaled(self, hidden, scale):
        hidden = hidden * scale  # @scaled
        return hidden.sigmoid()  # @squash

    def forward(self, x, scale):
        hidden = self.norm(self.linear(x))  # @first
        hidden = self.scaled(self.drop(hidden), scale)  # @call
        return hidden.sum()  # @sum

torch.manual_seed(0)
net = Net()
optimizer = torch.optim.SGD(net.parameters(), lr=0.001)
step = torch.compile(net, backend="aot_eager")
for number in range(5):
    optimizer.zero_grad()
    loss = step(torch.randn(8, 4), 2.0)
    kept = loss._backward_hooks
    (loss * (1.0 if number != 2 else 1000.0)).backward()  # @backward
    optimizer.step()  # @step
    print(number, loss.item(), kept, net.norm.running_mean.tolist(), net.linear.weight.grad.tolist())
print(torch.rand(1).item(), torch._dynamo.utils.counters["stats"]["unique_graphs"], len(net.linear.weight.grad))
print(sorted(name[:15] for name in globals()))
"""


@pytest.fixture
def training(tmp_path: Path) -> Fixture:
    return program_of(TRAINING, tmp_path)


def eager_gradients(line: str) -> list[torch.Tensor]:
    """Return the gradients of ``hidden`` in each step of the uncompiled program, after ``line``."""
    kept: list[torch.Tensor] = []
    text = TRAINING.replace(line, f"{line.partition('  #')[0]}; hidden.retain_grad(); keep(hidden)")
    program: dict[str, Any] = {"keep": kept.append, "print": lambda *_: None}
    exec(text.replace('torch.compile(net, backend="aot_eager")', "net"), program)
    return [each.grad for each in kept if each.grad is not None]


def shown(values: torch.Tensor) -> str:
    return str(values.tolist())


@pytest.mark.timeout(300)
def test_a_training_loop_stops_where_a_gradient_is_large(session: Session, training: Fixture) -> None:
    """It stops in the third step, with values, gradients and steps in the order of the backward pass."""
    with session.launching(training):
        line, condition = training.line("scaled"), "__grad__.norm() > 500"
        session.set_breakpoints(training, SourceBreakpoint(line=line, condition=condition, mode="backward"))
    stop = session.wait_for_stop("breakpoint", at="scaled")
    assert stop.description == "Backward pass of Net.forward [0/0]"
    assert [frame.marker for frame in stop.user_frames] == ["scaled", "call", "backward"]
    assert stop.frame_called("<module>").evaluate("number").text == "2"
    scaled = eager_gradients("hidden = hidden * scale  # @scaled")
    assert stop.frame.evaluate("__grad__.tolist()", "clipboard").text == shown(scaled[2])
    assert stop.frame.evaluate("(__grad__ == 0).sum().item()").text == str(int((scaled[2] == 0).sum()))
    hidden = stop.frame["Locals"]["hidden"]
    assert hidden["value"]["value"].text.startswith("Tensor f32[8, 4] cpu ")
    assert hidden["grad"]["grad"].text.startswith("Tensor f32[8, 4] cpu ")
    assert hidden["grad"]["grad"]["NaNs"]["NaNs"].text == "0"
    first = session.next(at="first")
    assert [frame.marker for frame in first.user_frames] == ["first", "backward"]
    normalized = eager_gradients("hidden = self.norm(self.linear(x))  # @first")
    assert first.frame.evaluate("__grad__.tolist()", "clipboard").text == shown(normalized[2])
    assert session.next(at="backward").frame.name == "<module>", "the backward pass is over"
    session.next(at="step")
    assert session.run_to_end() == 0
    assert session.output("stdout") == untouched(training)


@pytest.mark.timeout(300)
def test_steps_go_in_and_out(session: Session, training: Fixture) -> None:
    with session.launching(training):
        wanted = SourceBreakpoint(line=training.line("sum"), hit_condition="2", mode="backward")
        session.set_breakpoints(training, wanted)
    stop = session.wait_for_stop("breakpoint", at="sum")
    assert stop.frame.evaluate("__grad__.item()").text == "1.0"
    with pytest.raises(RequestFailed, match="set a breakpoint of mode 'backward'"):
        session.request("stepBack", {"threadId": stop.thread_id})
    assert session.next(at="call").frame.name == "Net.forward"
    assert session.step_in(at="squash").frame.name == "Net.scaled"
    assert session.next(at="scaled").frame.name == "Net.scaled"
    assert session.step_out(at="first").frame.name == "Net.forward"
    assert session.run_to_end() == 0
    assert session.output("stdout") == untouched(training)


@pytest.mark.timeout(300)
def test_messages_and_expressions_with_other_names(session: Session, training: Fixture) -> None:
    """A condition may use the variables at the line, where it is evaluated."""
    with session.launching(training):
        session.set_breakpoints(
            training,
            SourceBreakpoint(
                line=training.line("squash"), log_message="zeros {(__grad__ == 0).sum().item()}", mode="backward"
            ),
            SourceBreakpoint(
                line=training.line("call"),
                condition="__grad__.shape == hidden.shape and hidden.isnan().any()",
                mode="backward",
            ),
        )
    assert session.wait_for_exit() == 0
    assert session.output("console").splitlines()[-5:] == ["zeros 0"] * 5
    assert session.output("stdout") == untouched(training)


@pytest.mark.timeout(300)
def test_a_nan_of_the_backward_pass_alone(session: Session) -> None:
    """The outputs are finite: the filter ``nan`` stops at the line whose gradient is NaN."""
    program = Fixture("distances")
    with session.launching(program):
        session.request("setExceptionBreakpoints", {"filters": ["nan"]})
    stop = session.wait_for_stop("exception", at="root")
    assert [frame.marker for frame in stop.user_frames[:3]] == ["root", "call", "backward"]
    assert next(frame for frame in stop.frames if frame.name == "main").evaluate("number").text == "2"
    reported = session.request("exceptionInfo", {"threadId": stop.thread_id})
    first = reported["description"].splitlines()[0]
    assert "Distances.forward [0/0] makes Inf." in first
    assert "gradient from sqrt: " in first
    assert "1 of 6 elements is Inf, first [0]" in first
    assert "self.project.weight, self.project.bias have it too" in reported["description"]
    assert stop.frame.evaluate("__grad__.isfinite().all().item()").text == "True"
    assert stop.frame.evaluate("difference[0].tolist()").text == "[0.0, 0.0, 0.0, 0.0]"
    assert session.next(at="difference").frame.evaluate("__grad__.isnan().any().item()").text == "True"
    session.request("setExceptionBreakpoints", {"filters": []})
    assert session.run_to_end() == 0
    assert session.output("stdout") == untouched(program)


WITHOUT = """
import torch

def split(x, weight):
    seen = x * 2  # @data
    side = weight * 3  # @side
    kept = weight * seen
    return kept.sum(), side.sum()

weight = torch.ones(3, requires_grad=True)
step = torch.compile(split, backend="aot_eager")
for number in range(2):
    loss, side = step(torch.ones(3), weight)
    loss.backward()
print(weight.grad.tolist())
"""


@pytest.mark.timeout(300)
def test_a_line_without_a_gradient_says_why(session: Session, tmp_path: Path) -> None:
    """The reason is reported once, after the backward pass."""
    program = program_of(WITHOUT, tmp_path)
    with session.launching(program):
        wanted = [SourceBreakpoint(line=program.line(marker), mode="backward") for marker in ("data", "side")]
        session.set_breakpoints(program, *wanted)
    assert session.wait_for_exit() == 0
    message = "dynamo-dap: the backward pass of split [0/0] is over, and program.py:{} has no gradient: {}\n"
    needs_none = message.format(program.line("data"), "its result needs no gradient")
    is_beside = message.format(program.line("side"), "the differentiated outputs do not depend on it")
    assert sorted(session.output("important").splitlines(True)) == sorted([needs_none, is_beside])
    assert session.output("stdout") == untouched(program)


IN_A_FUNCTION_OF_AUTOGRAD = """
import torch

class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        y = x.sin()  # @inside
        return y * 2

    @staticmethod
    def backward(ctx, gradient):
        return gradient * 2

x = torch.ones(3, requires_grad=True)
torch.compile(lambda x: Doubled.apply(x * 3).sum(), backend="aot_eager")(x).backward()
print(x.grad.tolist())
"""


@pytest.mark.timeout(300)
def test_a_line_whose_gradient_autograd_does_not_compute(session: Session, tmp_path: Path) -> None:
    """The gradient of an operation in a ``Function.forward`` is unknown: only the user's ``backward`` runs."""
    program = program_of(IN_A_FUNCTION_OF_AUTOGRAD, tmp_path)
    with session.launching(program):
        session.set_breakpoints(program, SourceBreakpoint(line=program.line("inside"), mode="backward"))
    assert session.wait_for_exit() == 0
    (reported,) = session.output("important").splitlines()
    assert f"program.py:{program.line('inside')} has no gradient" in reported
    assert reported.endswith("its own gradient is not known")
    assert session.output("stdout") == untouched(program)


INSIDE = """
import torch
from torch.utils.checkpoint import checkpoint

def block(x):
    y = x * 2
    return y * 3  # @last_of_block

def helper(x):
    return x * 5  # @last_of_helper

def work(x):
    t = helper(x).sin()
    t[0].mul_(7)  # @view
    for _ in range(2):
        t = checkpoint(block, t, use_reentrant=False)
    return t.sum()

x = torch.zeros(2, requires_grad=True)
torch.compile(work, backend="aot_eager")(x).backward()
print(x.grad.tolist())
"""


SPLIT = """
import torch

def work(x):
    y = x.sin() if x.sum() > 0 else x * 2  # @split
    return (y * 3).sum()

x = torch.ones(2, requires_grad=True)
torch.compile(work, backend="aot_eager")(x).backward()
print(x.grad.tolist())
"""


@pytest.mark.timeout(300)
def test_a_line_that_a_branch_on_data_splits(session: Session, tmp_path: Path) -> None:
    """The second half of the line is in a resume function."""
    program = program_of(SPLIT, tmp_path)
    with session.launching(program):
        session.set_breakpoints(program, SourceBreakpoint(line=program.line("split"), mode="backward"))
    stop = session.wait_for_stop("breakpoint", at="split")
    assert stop.frame.evaluate("__grad__.tolist()").text == "[3.0, 3.0]"
    assert stop.frame.name == "work (resumed at line 5)"
    session.resume()
    assert session.wait_for_exit() == 0
    assert session.output("stdout") == untouched(program)


@pytest.mark.timeout(300)
def test_gradients_inside_of_bodies_calls_and_views(session: Session, tmp_path: Path) -> None:
    """A line has the gradient of its own result, not of what its caller computes with it."""
    program = program_of(INSIDE, tmp_path)
    with session.launching(program):
        places = ("last_of_block", "last_of_helper", "view")
        session.set_breakpoints(
            program, *(SourceBreakpoint(line=program.line(each), mode="backward") for each in places)
        )
    for marker, expected in (
        ("last_of_block", [1.0, 1.0]),
        ("last_of_block", [6.0, 6.0]),
        ("view", [36.0, 36.0]),
        ("last_of_helper", [252.0, 36.0]),
    ):
        stop = session.wait_for_stop("breakpoint", at=marker)
        assert stop.frame.evaluate("__grad__.tolist()").text == str(expected)
        session.resume()
    assert session.wait_for_exit() == 0
    assert session.output("stdout") == untouched(program)


@pytest.mark.timeout(300)
def test_a_whole_train_step_that_is_compiled(session: Session) -> None:
    """The backward pass runs while Dynamo is active; Dynamo must not compile the debugger's hooks."""
    program = Fixture("train_step")
    with session.launching(program):
        wanted = SourceBreakpoint(line=program.line("squash"), mode="backward")
        session.set_breakpoints(program, wanted)
    for number in range(3):
        stop = session.wait_for_stop("breakpoint", at="squash")
        assert [frame.marker for frame in stop.user_frames][:2] == ["squash", "loss"], number
        assert stop.frame.evaluate("__grad__.tolist()", "clipboard").text == str([[1.0] * 4] * 2)
        session.resume()
    assert session.wait_for_exit() == 0
    assert_same_output_and_frames(session, program)


TRAIN_STEP = ("zero", "loss", "squash", "backward", "step", "return")


@pytest.mark.timeout(300)
def test_each_line_of_a_compiled_train_step_stops_in_each_call(session: Session) -> None:
    program = Fixture("train_step")
    session.launch(program, *TRAIN_STEP)
    for number in range(3):
        for marker in TRAIN_STEP:
            stop = session.wait_for_stop("breakpoint")
            assert stop.marker == marker, number
            session.resume()
    assert session.wait_for_exit() == 0
    assert_same_output_and_frames(session, program)


@pytest.mark.timeout(300)
def test_steps_go_through_a_compiled_train_step(session: Session) -> None:
    program = Fixture("train_step")
    session.launch(program, "zero")
    for number in range(3):
        passed = [session.wait_for_stop("breakpoint", at="zero").marker]
        while passed[-1] != "return":
            stop = session.next()
            # At a graph break Dynamo restarts, and the step is back at its line.
            assert stop.marker != passed[-1] or (number == 0 and ", attempt 2" in (stop.description or ""))
            passed += [stop.marker] if stop.marker != passed[-1] else []
        assert passed == [each for each in TRAIN_STEP if each != "squash"], number
        session.resume()
    assert session.wait_for_exit() == 0
    assert_same_output_and_frames(session, program)


@pytest.mark.timeout(300)
def test_the_filter_nan_leaves_a_compiled_train_step_as_it_is(session: Session) -> None:
    """Dynamo compiles no function of the debugger."""
    program = Fixture("train_step")
    with session.launching(program):
        session.request("setExceptionBreakpoints", {"filters": ["nan"]})
    assert session.wait_for_exit() == 0
    assert_same_output_and_frames(session, program)


def assert_same_output_and_frames(session: Session, program: Fixture) -> None:
    """Compare the program's output, which ends with the number of frames that Dynamo has seen.

    A few of these frames are functions of the standard library that torch calls only once: under a debugger, torch may
    have called them before.
    """
    *lines, frames = session.output("stdout").splitlines()
    *expected, expected_frames = untouched(program).splitlines()
    assert lines == expected
    assert 0 < int(frames) <= int(expected_frames)
