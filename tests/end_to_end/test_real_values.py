"""Real values at stops in a trace: in Variables, in watches and the console, in conditions and log messages."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from dynamo_dap.protocol.wire.types import SourceBreakpoint
from tests.client import Fixture, Session
from tests.client.environments import alone

TRAINING = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(4)
        self.drop = nn.Dropout(0.5)

    def forward(self, x, scale):
        x[0] = 7  # @written
        hidden = self.drop(self.norm(x))
        count = hidden.gt(0).sum().item()
        hidden[0] = float("nan")
        loss = (hidden * scale).sum()
        return loss, count  # @done

torch.manual_seed(0)
net = Net()
given = torch.arange(12.0).reshape(3, 4)
with torch._dynamo.config.patch(capture_scalar_outputs=True):
    loss, count = torch.compile(net, backend="eager")(given, 2.0)
print(loss.item(), count, given[0, 0].item(), net.norm.running_mean.tolist(), torch.rand(1).item())
"""


@pytest.fixture
def program(tmp_path: Path) -> Fixture:
    path = tmp_path / "training.py"
    path.write_text(TRAINING, encoding="utf-8")
    return Fixture(path)


def untouched(program: Fixture) -> str:
    """Return the program's output without a debugger."""
    run = alone(program.path)
    return run.stdout


def eager_values() -> dict[str, Any]:
    """Return the locals of ``forward`` as an eager call has them at its end."""
    torch.manual_seed(0)
    norm, drop = torch.nn.BatchNorm1d(4), torch.nn.Dropout(0.5)
    x = torch.arange(12.0).reshape(3, 4)
    with torch.no_grad():
        x[0] = 7
        hidden = drop(norm(x))
        count = hidden.gt(0).sum().item()
        hidden[0] = float("nan")
    return {"x": x, "hidden": hidden, "count": count}


def test_a_trace_has_the_values_of_its_call(session: Session, program: Fixture) -> None:
    with session.launching(program):
        session.set_breakpoints(
            program,
            SourceBreakpoint(line=program.line("written"), log_message="sum {x.sum().item()}"),
            SourceBreakpoint(line=program.line("done"), condition="hidden.isnan().any()"),
        )
    stop = session.wait_for_stop("breakpoint", at="done")
    frame = stop.frame
    expected = eager_values()
    hidden = frame["Locals"]["hidden"]
    assert hidden.text.startswith("Tensor f32[3, 4] cpu -")
    assert hidden.text.endswith("NaN, requires_grad"), "the data comes first"
    assert next(iter(hidden.texts())) == "value", "what it is comes before how it is stored"
    real = hidden["value"]["value"]
    assert real.text == hidden.text.removesuffix(", requires_grad")
    assert real["NaNs"]["NaNs"].text == str(int(expected["hidden"].isnan().sum()))
    shown = frame.evaluate("hidden[1].tolist()").text
    assert shown == str(expected["hidden"][1].tolist())
    assert frame.evaluate("x[0].tolist()").text == "[7.0, 7.0, 7.0, 7.0]"
    assert frame.evaluate("int(count)").text == str(expected["count"])
    assert frame.evaluate("hidden[1:].max().item() > 0.5").text == "True"
    caller = stop.frame_called("<module>")
    assert caller.evaluate("given[0, 0].item()").text == "0.0", "the program's own tensor is as it was"
    assert frame.evaluate("loss").text == "Tensor f32[] cpu = nan, requires_grad"
    assert frame.evaluate("loss.item()").text == "nan"
    assert frame.evaluate("x[0] + 1", context="repl").text == "Tensor f32[4] cpu = [8.0, 8.0, 8.0, 8.0]"
    assert frame.evaluate("x[0] + 1", context="watch").text == "Tensor f32[4] cpu", "a watch computes nothing unasked"
    assert "would change" in frame.refusal("x.fill_(loss.item())")
    assert session.run_to_end() == 0
    printed = session.output("stdout")
    assert printed == untouched(program)
    assert "sum 66.0" in session.output("console")


def test_limits_and_off(session: Session, program: Fixture) -> None:
    session.launch(program, "done", realValues={"timeLimit": 0.000001})
    assert "ask again" in session.wait_for_stop("breakpoint").frame["Locals"]["hidden"]["value"]["value"].text
    session.disconnect()


def test_off(session: Session, program: Fixture) -> None:
    session.launch(program, "done", realValues="off")
    frame = session.wait_for_stop("breakpoint").frame
    assert "turned off" in frame["Locals"]["hidden"]["value"]["value"].text
    assert "turned off" in frame.refusal("hidden.isnan().any().item()")
    assert session.run_to_end() == 0


COUNTING = """
import torch

calls = []

def noted(tensor):
    calls.append(1)
    return tensor + 1

@torch.compile(backend="eager")
def step(x):
    y = x * 2
    return y.sum()  # @here

print(step(torch.ones(2, 3)).item(), len(calls))
"""


def test_a_printed_part_shows_data_and_calls_of_the_program_run_once(session: Session, tmp_path: Path) -> None:
    path = tmp_path / "counting.py"
    path.write_text(COUNTING, encoding="utf-8")
    session.launch(Fixture(path), "here")
    frame = session.wait_for_stop("breakpoint", at="here").frame
    printed = {
        text: frame.evaluate(text, context="repl").text for text in ("y[0]", "torch.relu(y)[1, 1:]", "y.t() - 1")
    }
    assert printed == {
        "y[0]": "Tensor f32[3] cpu = [2.0, 2.0, 2.0]",
        "torch.relu(y)[1, 1:]": "Tensor f32[2] cpu = [2.0, 2.0]",
        "y.t() - 1": "Tensor f32[3, 2] cpu = [[1.0, 1.0], [1.0, 1.0], [1.0, 1.0]]",
    }
    assert frame.evaluate("noted(y)", context="repl").text == "Tensor f32[2, 3] cpu"
    assert frame.evaluate("len(calls)").text == "1"
    assert session.run_to_end() == 0


TRANSFORMS = """
import torch

def cubes(v):
    return (v ** 3).sum()

def function(x):
    rows = torch.func.jacrev(cubes)(x)
    slopes = torch.func.grad(cubes)(x)
    norm = slopes.norm()
    doubled = torch.vmap(lambda each: each * 2)(x)
    total = rows + slopes
    return total + norm + doubled  # @last

compiled = torch.compile(function, backend="eager")
for _ in range(3):
    compiled(torch.tensor([1.0, 2.0]))
"""


def test_what_transforms_return_has_its_values(session: Session, tmp_path: Path) -> None:
    """Transforms also differentiate when the values are computed; their results are ordinary tensors."""
    path = tmp_path / "transforms.py"
    path.write_text(TRANSFORMS, encoding="utf-8")
    session.launch(Fixture(path), "last")
    for call in (1, 2, 3):
        stop = session.wait_for_stop("breakpoint", at="last") if call == 1 else session.continue_to_stop(at="last")
        found = {text: stop.frame.evaluate(text).text for text in ("rows.tolist()", "slopes.sum()", "doubled.sum()")}
        assert found["rows.tolist()"] == "[3.0, 12.0]"
        assert found["slopes.sum()"].endswith("= 15.0")
        assert found["doubled.sum()"].endswith("= 6.0")
        assert stop.frame.evaluate("norm.item()").text == str(torch.tensor([3.0, 12.0]).norm().item())
        assert stop.frame.evaluate("total.isnan().any()").text.endswith("= False")
    assert session.finish() == 0


JAGGED = """
import torch

def function(nested):
    doubled = nested * 2
    return doubled + 1  # @last

compiled = torch.compile(function, backend="eager")
for _ in range(4):
    rows = [torch.ones(2, 3), torch.ones(4, 3)]
    results = {"result": torch.tensor(14.0)}  # @caller
    compiled(torch.nested.nested_tensor(rows, layout=torch.jagged))
    print(results)  # @after
"""


def test_calls_with_jagged_tensors_stop_each_time(session: Session, tmp_path: Path) -> None:
    path = tmp_path / "jagged.py"
    path.write_text(JAGGED, encoding="utf-8")
    session.launch(Fixture(path), "last")
    session.wait_for_stop("breakpoint", at="last")
    for _ in range(3):
        stop = session.continue_to_stop(at="last")
    caller = stop.frame_called("<module>")
    # Small tensors also show their data inside containers.
    assert caller.evaluate("results").text == "{'result': Tensor f32[] cpu = 14.0}"
    assert session.finish() == 0


SHARED = """
import torch

class Scaled(torch.Tensor):
    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        result = super().__torch_function__(function, types, args, kwargs or {})
        return result * 4 if function is torch.mul else result

def overlapping(x, y):
    x.mul_(2)
    z = y + 1  # @overlap
    return z

def overridden(x):
    y = torch.mul(x, 2)
    return y + 1  # @override

shared = torch.compile(overlapping, backend="eager")
overrides = torch.compile(overridden, backend="eager")
for _ in range(3):
    memory = torch.arange(4.0)
    print(shared(memory[:3], memory[1:]).tolist())
    print(overrides(torch.ones(2).as_subclass(Scaled)).tolist())
"""


def test_overlapping_arguments_and_overrides(session: Session, tmp_path: Path) -> None:
    path = tmp_path / "shared.py"
    path.write_text(SHARED, encoding="utf-8")
    program = Fixture(path)
    session.launch(program, "overlap", "override")
    for call in (1, 2, 3):
        stop = (
            session.wait_for_stop("breakpoint", at="overlap") if call == 1 else session.continue_to_stop(at="overlap")
        )
        assert stop.frame.evaluate("y.tolist()").text == "[2.0, 4.0, 3.0]"
        assert "[1.0" not in stop.frame["Locals"]["y"].text
        # The graph contains the override's operations: it does not run again for the value.
        assert session.continue_to_stop(at="override").frame.evaluate("y.tolist()").text == "[8.0, 8.0]"
    assert session.finish() == 0
    assert session.output("stdout") == untouched(program)


VANISHING = """
import torch

@torch.compile(backend="aot_eager")
def broken(x, scale):
    kept = x + 1
    total = kept.sum()
    sizes = [1, 2]
    again = 1
    gone = 5
    del gone
    print("broken")
    again = kept * 2
    return again * scale  #@last

for n in range(3):
    broken(torch.full((2,), float(n)), 3)
"""


def test_locals_from_before_a_graph_break_are_shown_as_such(session: Session, tmp_path: Path) -> None:
    """The resume function does not use them, so Dynamo does not pass them to it."""
    path = tmp_path / "vanishing.py"
    path.write_text(VANISHING, encoding="utf-8")
    session.launch(Fixture(path), "last")
    for call in range(3):
        stop = session.wait_for_stop("breakpoint", at="last") if call == 0 else session.continue_to_stop(at="last")
        shown = stop.frame["Locals"]
        assert list(shown.children) == ["scale", "kept", "again", "x", "total", "sizes", "of Dynamo"]
        for name in ("x", "total", "sizes"):
            assert shown[name].text.endswith("(before the graph break)")
            assert shown[name].variable.presentation_hint.attributes == ["readOnly"]
        assert f"= {2 * call + 2}.0" in shown["total"].text
        assert stop.frame.evaluate("total").text == shown["total"].text
        assert "before" not in shown["again"].text
    assert session.finish() == 0
