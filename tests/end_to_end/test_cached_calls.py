"""Cached calls have breakpoints, steps and values as the first call has, without other effects."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from dynamo_dap.protocol.wire.types import FunctionBreakpoint, SourceBreakpoint
from tests.client import Fixture, Session
from tests.client.environments import alone
from tests.client.free_program import FreeProgram

TRAINING = """
import torch
import torch._inductor.config
from torch import nn

torch._inductor.config.fallback_random = True  # dropout draws what eager code would: the loss can be compared

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.norm = nn.BatchNorm1d(4)
        self.drop = nn.Dropout(0.5)
        self.last = None

    def scaled(self, hidden, scale):
        hidden = hidden * scale  # @scaled
        return hidden.relu()

    def forward(self, x, scale):
        hidden = self.norm(self.linear(x))  # @first
        hidden = self.scaled(self.drop(hidden), scale)  # @call
        self.last = scale
        return hidden.sum()  # @sum

torch.manual_seed(0)
net = Net()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
step = torch.compile(net)
for number in range(4):
    given = torch.randn(8, 4)
    optimizer.zero_grad()
    loss = step(given, 2.0)  # @caller
    loss.backward()
    optimizer.step()
    print(number, loss.item(), net.last, net.norm.running_mean.tolist(), net.linear.weight.grad.sum().item())
print(torch.rand(1).item(), torch._dynamo.utils.counters["stats"]["unique_graphs"])
print(sorted(name[:15] for name in globals()))
"""

BREAKING = """
import torch

def helper(h):
    h = h + 1  # @helper
    return h

def broken(x, results):
    h = x * 2  # @first
    print("break")  # @break
    results["h"] = h  # @effect
    h = helper(h)  # @call
    return h.sum()  # @last

compiled = torch.compile(broken, backend="eager")
results = {"h": torch.zeros(3)}
for number in range(3):
    total = compiled(torch.ones(3) * number, results)  # @caller
    print(number, total.item(), results["h"].tolist())  # @after
"""


def program_of(text: str, folder: Path) -> Fixture:
    path = folder / "program.py"
    path.write_text(text, encoding="utf-8")
    return Fixture(path)


@pytest.fixture
def training(tmp_path: Path) -> Fixture:
    return program_of(TRAINING, tmp_path)


@pytest.fixture
def breaking(tmp_path: Path) -> Fixture:
    return program_of(BREAKING, tmp_path)


def untouched(program: Fixture) -> str:
    """Return the program's output without a debugger."""
    return alone(program.path).stdout


def _resumed(breaking: Fixture) -> str:
    """Return the name of the resume function in ``breaking``."""
    return f"broken (resumed at line {breaking.line('break')})"


def shown(values: Any) -> str:
    """Return a list of numbers as the debugger shows it."""
    return str(values)


@pytest.mark.timeout(300)
def test_every_call_stops_with_its_values_and_nothing_changes(session: Session, training: Fixture) -> None:
    """With Inductor, in training: dropout, running statistics, gradients and the module's attributes stay the same."""
    session.launch(training, "scaled", "sum")
    torch.manual_seed(0)
    for number in range(4):
        at_scaled = session.wait_for_stop("breakpoint", at="scaled")
        assert [frame.marker for frame in at_scaled.user_frames[:3]] == ["scaled", "call", "caller"]
        hidden = at_scaled.frame.evaluate("hidden.sum().item()").text
        assert at_scaled.frame["Locals"]["hidden"]["value"]["value"].text.startswith("Tensor f32[8, 4] cpu ")
        if number > 0:
            assert at_scaled.description == f"Call {number + 1} of Net.forward [0/0]"
            text = f"Paused on breakpoint in call {number + 1} of Net.forward, which uses cache entry 0/0"
            assert at_scaled.body["text"] == text
        caller = at_scaled.frame_called("<module>")
        assert caller.evaluate("number").text == str(number)
        assert at_scaled.frame.evaluate("hidden.sum().item()").text == hidden
        session.resume()
        at_sum = session.wait_for_stop("breakpoint", at="sum")
        loss = at_sum.frame.evaluate("hidden.sum().item()").text
        session.resume()
        session.wait_for_output(f"{number} {loss[:6]}", "stdout")
    assert session.wait_for_exit() == 0
    assert session.output("stdout") == untouched(training)


def test_steps_go_through_a_cached_call(session: Session, breaking: Fixture) -> None:
    """Step in from the caller, over the graph break into the resume function, into a helper, and out to the caller."""
    session.launch(breaking, "caller")
    session.wait_for_stop("breakpoint", at="caller")
    session.resume()
    session.wait_for_stop("breakpoint", at="caller")
    first = session.step_in(at="first")
    assert first.description == "A cached call of broken [0/0]"
    assert [frame.marker for frame in first.user_frames] == ["first", "caller"]
    assert session.next(at="break").frame.evaluate("h.tolist()").text == "[2.0, 2.0, 2.0]"
    effect = session.next(at="effect")
    resumed = _resumed(breaking)
    assert effect.frame.name == resumed
    session.next(at="call")
    helper = session.step_in(at="helper")
    assert helper.frame.evaluate("h.tolist()").text == "[2.0, 2.0, 2.0]"
    assert session.step_out(at="call").frame.name == resumed
    last = session.next(at="last")
    assert last.frame.evaluate("h.tolist()").text == "[3.0, 3.0, 3.0]"
    assert last.frame.evaluate("results['h'].tolist()").text == "[2.0, 2.0, 2.0]"
    stop = session.next()
    while stop.marker == "caller":
        stop = session.next()
    assert stop.marker == "after"
    session.set_breakpoints(breaking)
    assert session.run_to_end() == 0
    assert session.output("stdout") == untouched(breaking)


def test_conditions_hit_counts_and_messages_see_every_call(session: Session, training: Fixture) -> None:
    line = training.line
    with session.launching(training):
        session.set_breakpoints(
            training,
            SourceBreakpoint(line=line("first"), condition="scale == 2.0 and self.last is not None", hit_condition="2"),
            SourceBreakpoint(line=line("sum"), log_message="sum {hidden.sum().item()}"),
            SourceBreakpoint(line=line("scaled"), condition="hidden.sum().item() > 1e9"),
        )
    stop = session.wait_for_stop("breakpoint", at="first")
    assert stop.description == "Call 3 of Net.forward [0/0]"
    assert session.run_to_end() == 0
    logged = [text for text in session.output("console").splitlines() if text.startswith("sum ")]
    printed = session.output("stdout")
    losses = [text.split()[1] for text in printed.splitlines()[:4]]
    assert [text.removeprefix("sum ")[:5] for text in logged] == [loss[:5] for loss in losses]
    assert printed == untouched(training)


def test_function_breakpoints_stop_in_every_call(session: Session, breaking: Fixture) -> None:
    with session.launching(breaking):
        session.request("setFunctionBreakpoints", {"breakpoints": [FunctionBreakpoint(name="helper")]})
    for number in range(3):
        stop = session.wait_for_stop("function breakpoint", at="helper")
        assert stop.frame.evaluate("h.tolist()").text == shown([2.0 * number] * 3)
        session.resume()
    assert session.wait_for_exit() == 0


def test_a_breakpoint_set_later_stops_in_the_next_call(session: Session, breaking: Fixture) -> None:
    session.launch(breaking, "after")
    session.wait_for_stop("breakpoint", at="after")
    session.set_breakpoints(breaking, "helper")
    session.resume()
    stop = session.wait_for_stop("breakpoint", at="helper")
    assert stop.description == f"A cached call of {_resumed(breaking)} [1/0]"
    session.set_breakpoints(breaking)
    assert session.run_to_end() == 0
    assert session.output("stdout") == untouched(breaking)


def test_generated_code_alone(session: Session, breaking: Fixture) -> None:
    """With the tested option, cached calls are not replayed, and a step in stops in the generated code."""
    session.launch(breaking, "caller", "helper", cachedCalls="generated")
    session.wait_for_stop("breakpoint", at="caller")
    session.resume()
    session.wait_for_stop("breakpoint", at="helper")
    while (stop := session.continue_to_stop()).marker != "caller":
        assert stop.frame.name.endswith("generated #1)")
    assert session.step_in().frame.name == "broken (generated #0)"
    session.resume()
    session.wait_for_stop("breakpoint", at="caller")
    assert session.run_to_end() == 0


def test_as_ordinary_python(session: Session, breaking: Fixture) -> None:
    """With the tested option, debugpy stops in the function after the first call, until it has no breakpoint."""
    session.launch(breaking, "helper", cachedCalls="eager")
    session.wait_for_stop("breakpoint", at="helper")
    second = session.continue_to_stop(at="helper")
    assert second.frame["Locals"]["h"].text.startswith("Tensor f32[3]"), "a real tensor"
    resumed = _resumed(breaking)
    assert [frame.name for frame in second.user_frames][:2] == ["helper", resumed]
    assert f"{resumed} runs as ordinary Python" in session.output("important")
    session.set_breakpoints(breaking)
    assert session.run_to_end() == 0
    assert session.output("stdout") == untouched(breaking)


DISABLED = """
import torch

@torch.compiler.disable
def hidden(x):
    return x + 1  # @hidden

@torch.compile(backend="eager")
def function(x):
    return hidden(x * 2)  # @body

function(torch.ones(3))
"""


@pytest.mark.parametrize(
    ("option", "reason"),
    [
        ({}, "and in cached calls"),
        ({"cachedCalls": "eager"}, "and then as ordinary Python:"),
        ({"cachedCalls": "generated"}, "and in the code that Dynamo generated"),
    ],
    ids=["replay", "eager", "generated"],
)
def test_a_breakpoint_says_when_it_stops(session: Session, tmp_path: Path, option: dict[str, str], reason: str) -> None:
    """The test is about the option."""
    program = program_of(DISABLED, tmp_path)
    with session.launching(program, **option):
        body, hidden = session.set_breakpoints(program, "body", "hidden")
        session.set_breakpoints(program)
    assert (body.verified, hidden.verified) == (True, True)
    assert body.message is not None
    assert body.message.startswith(f"stops while Dynamo traces the line, {reason}")
    assert body.message.endswith("where it runs as ordinary Python")
    assert hidden.message is not None
    assert hidden.message.startswith("stops in ordinary Python only")
    assert "'hidden' is under @torch.compiler.disable" in hidden.message
    assert session.wait_for_exit() == 0


STEPS = """
import torch

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.epoch = 0

    def forward(self, x, step):
        y = x * 2  # @double
        return y.sum() + step  # @sum

model = Model()
compiled = torch.compile(model, backend="eager", dynamic=True)
number = 0
for number in range(40):
    compiled(torch.ones(3) * number, number + 10)
print("done")
"""


def test_conditions_on_plain_values_stop_in_their_calls_alone(session: Session, tmp_path: Path) -> None:
    program = program_of(STEPS, tmp_path)
    line = program.line
    with session.launching(program):
        session.set_breakpoints(
            program,
            SourceBreakpoint(line=line("double"), condition="step == 40 and self.training"),
            SourceBreakpoint(line=line("sum"), condition="number > 35"),
        )
    stop = session.wait_for_stop("breakpoint", at="double")
    assert stop.frame.evaluate("int(step)").text == "40"
    assert stop.frame.evaluate("x.tolist()").text == shown([30.0] * 3)
    for number in range(36, 40):
        assert session.continue_to_stop(at="sum").frame.evaluate("x[0].item()").text == f"{number}.0"
    assert session.run_to_end() == 0


ATTACHED_LATE = """
import dynamo_dap
import torch

def inner(x):
    y = x * 3  # @inner
    return y

def outer(x):
    return inner(x).sum()  # @outer

compiled = torch.compile(outer, backend="eager")
compiled(torch.ones(3))
host, port = dynamo_dap.listen(("127.0.0.1", 0))
print(f"listening on {host}:{port}", flush=True)
dynamo_dap.wait_for_client()
for number in range(3):
    compiled(torch.ones(3) * number)
print("done", flush=True)
"""


def test_what_was_compiled_before_the_session_is_stopped_in(session: Session, tmp_path: Path) -> None:
    """The debugger does not know its traced lines until its first call."""
    program = program_of(ATTACHED_LATE, tmp_path)
    listening = FreeProgram(program.path)
    try:
        host, port = listening.address()
        with session.configuring("attach", {"connect": {"host": host, "port": port}}):
            session.set_breakpoints(program, "inner")
        for number in range(3):
            stop = session.wait_for_stop("breakpoint", at="inner")
            assert stop.description == "A cached call of outer [0/0]"
            assert stop.frame.evaluate("x.tolist()").text == shown([float(number)] * 3)
            session.resume()
        assert listening.wait_for_line("done")
    finally:
        listening.end()


TWO_ENTRIES = """
import torch

@torch.compile(backend="eager")
def chosen(x, flag):
    if flag:
        return x + 1
    return x + 2  # @other

x = torch.ones(2)
for flag in (True, False, True, True, True, False):
    chosen(x, flag)
print("done")
"""


def test_calls_of_all_cache_entries_are_counted(session: Session, tmp_path: Path) -> None:
    """This includes calls that reach no breakpoint, which the debugger soon no longer inspects."""
    session.launch(program_of(TWO_ENTRIES, tmp_path), "other")
    assert session.wait_for_stop("breakpoint", at="other").description == "Tracing chosen [0/1]"
    assert session.continue_to_stop(at="other").description == "Call 6 of chosen [0/1]"
    assert session.run_to_end() == 0


SET_ELSEWHERE = """
import torch

@torch.compile(backend="eager")
def other(x):
    return x - 1  # @other

@torch.compile(backend="eager")
def step(x):
    return x + 1  # @step

x = torch.ones(2)
for number in range(8):
    step(x)
    print(number)  # @printed
"""


def test_calls_that_no_breakpoint_was_set_for_are_counted_and_later_ones_stopped_in(
    session: Session, tmp_path: Path
) -> None:
    program = program_of(SET_ELSEWHERE, tmp_path)
    printed = SourceBreakpoint(line=program.line("printed"), condition="number == 4")
    with session.launching(program):
        session.set_breakpoints(program, "other", printed)
    session.wait_for_stop("breakpoint", at="printed")
    session.set_breakpoints(program, "other", "step")
    assert session.continue_to_stop(at="step").description == "Call 6 of step [0/0]"
    session.set_breakpoints(program, "other")
    assert session.run_to_end() == 0


NOTHING_SET = """
import torch

@torch.compile(backend="eager")
def function(x):
    return x + 1  # @body

x = torch.ones(2)
function(x)
breakpoint()
function(x)  # @second
print("done")
"""


def test_a_step_goes_into_a_call_that_was_compiled_unwatched(session: Session, tmp_path: Path) -> None:
    """No breakpoint was set when the first call was compiled and ran."""
    program = program_of(NOTHING_SET, tmp_path)
    session.launch(program)
    stop = session.wait_for_stop()
    while stop.marker != "second":
        stop = session.next()
    assert session.step_in(at="body").description == "A cached call of function [0/0]"
    assert session.run_to_end() == 0


LEFT = """
import time
import dynamo_dap
import torch

ran = 0

def backend(graph, inputs):
    def run(*arguments):
        global ran
        ran += 1
        return graph.forward(*arguments)
    return run

def inner(x):
    return x + 1  # @inner

@torch.compile(backend=backend)
def outer(x):
    return inner(x) * 2

outer(torch.ones(3))
host, port = dynamo_dap.listen(("127.0.0.1", 0))
print(f"listening on {host}:{port}", flush=True)
dynamo_dap.wait_for_client()
before = ran
deadline = time.monotonic() + 600
while ran < before + 3 and time.monotonic() < deadline:
    outer(torch.ones(3))
    time.sleep(0.05)
print("compiled code ran again", ran == before + 3, len(torch._dynamo.utils.counters["frames"]), flush=True)
"""


def test_what_ran_as_python_is_as_before_when_the_client_has_gone(session: Session, tmp_path: Path) -> None:
    program = program_of(LEFT, tmp_path)
    listening = FreeProgram(program.path)
    try:
        host, port = listening.address()
        # The test is about the option.
        with session.configuring("attach", {"connect": {"host": host, "port": port}, "cachedCalls": "eager"}):
            session.set_breakpoints(program, "inner")
        assert session.wait_for_stop("breakpoint", at="inner").frame["Locals"]["x"].text.startswith("Tensor f32[3]")
        assert "outer runs as ordinary Python" in session.output("important")
        session.disconnect()
        assert listening.wait_for_line("compiled code ran again").startswith("compiled code ran again True")
    finally:
        listening.end()


MEMORY = """
import gc
import weakref
import torch

def compute(x, w):
    y = x * w  # @held
    z = y.sin()  # @next
    return z.sum()

gc.disable()
step = torch.compile(compute, backend="aot_eager")
w = torch.ones(4, requires_grad=True)
for number in range(4):
    x = torch.ones(4)
    loss = step(x, w)  # @caller
    loss.backward()
    seen = weakref.ref(x), weakref.ref(loss)
    del x, loss
    print(number, [each() is None for each in seen])
"""


def test_a_held_call_is_let_go_of_when_it_is_over(session: Session, tmp_path: Path) -> None:
    """Its memory is free as soon as the program releases it, without garbage collection.

    The test checks a replayed call and the next call, which uses the saved trace, after steps, opened values, an
    expression that fails, and a step back.
    """
    program = program_of(MEMORY, tmp_path)
    session.launch(program, "held")
    for number in range(4):
        stop = session.wait_for_stop("breakpoint", at="held")
        stop.frame["Locals"]["x"].open(2)
        assert stop.frame_called("<module>").evaluate("number").text == str(number)
        assert "no_such_name" in stop.frame.refusal("no_such_name")
        session.next(at="next")
        if number > 1:
            session.request("stepBack", {"threadId": stop.thread_id})
            session.wait_for_stop("step", at="held")
            session.next(at="next")
        session.resume()
    assert session.wait_for_exit() == 0
    reported = session.output("stdout").splitlines()
    # The first call is compiled: Dynamo's own objects for that form reference cycles.
    assert reported[1:] == [f"{number} [True, True]" for number in (1, 2, 3)]


STALE = """
import torch

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.flag = False

    def forward(self, x):
        y = x + 1
        if self.flag:
            y = y * 3
        return y  # @last

def without_constants(guards):
    return [each.guard_type not in ("CONSTANT_MATCH", "EQUALS_MATCH") for each in guards]

model = Model()
compiled = torch.compile(model, backend="eager", options={"guard_filter_fn": without_constants})
for flag in (False, True, False):
    model.flag = flag
    print(compiled(torch.zeros(2)).tolist())
"""


ENTRY = "graph of the cache entry"
"""A child of the scope *Graph*."""


def test_a_compile_that_is_not_valid_for_a_call_is_reported(session: Session, tmp_path: Path) -> None:
    """The replay's value differs from the program's: it is refused, and the console names the unguarded value."""
    program = program_of(STALE, tmp_path)
    session.launch(program, "last")
    stop = session.wait_for_stop("breakpoint", at="last")
    assert "not valid" not in session.output("important")
    assert ENTRY not in stop.frame["Graph"].texts()
    stop = session.continue_to_stop(at="last")
    session.wait_for_output("self.flag was False when it was compiled and is True now", "important")
    assert "not valid for it" in stop.frame.refusal("y.sum().item()")
    graph = stop.frame["Graph"]
    assert "y * 3" in "".join(graph.texts().values()), "what this call traces"
    assert "self.flag was False" in graph.texts()[ENTRY]
    (operation,) = graph[ENTRY].texts().values()
    assert "add" in operation
    assert f"line {program.line('last') - 3}" in operation
    stop = session.continue_to_stop(at="last")
    assert stop.frame.evaluate("y.sum().item()").text == "2.0"
    assert session.finish() == 0
    assert session.output("stdout").splitlines() == ["[1.0, 1.0]"] * 3


HELPERS = """
import torch

def helper(x):
    y = x * 2  #@logged
    y = y - 1  #@counted
    print("in helper")  #@break
    return y + 1

def between(x):
    k = x - 1  #@between
    return helper(k)

def outer(x):
    first = x + 1  #@first
    h = between(helper(first))  #@call
    return h * 2  #@last

f = torch.compile(outer, backend="eager")
for n in range(5):
    f(torch.ones(3 + n // 2))
"""


@pytest.mark.parametrize("others", [(), ("first", "between", "last")], ids=["alone", "with-others"])
def test_a_helper_that_breaks_the_graph_stops_once_for_each_execution(
    session: Session, tmp_path: Path, others: tuple[str, ...]
) -> None:
    """Dynamo inlines it, abandons that at the break, and traces it separately: all this is one execution.

    The calls are compiled, cached, and recompiled for other sizes.
    """
    path = tmp_path / "helpers.py"
    path.write_text(HELPERS, encoding="utf-8")
    fixture = Fixture(path)
    with session.launching(fixture):
        logged = SourceBreakpoint(fixture.line("logged"), log_message="logged {x.shape[0]}")
        counted = SourceBreakpoint(fixture.line("counted"), hit_condition="10")
        plain = [SourceBreakpoint(fixture.line(each)) for each in ("break", *others)]
        session.set_breakpoints(fixture, logged, counted, *plain)
    every: tuple[str, ...] = ("first", "break", "between", "break", "last")
    expected = [each for each in every if each == "break" or each in others] * 5
    expected.insert(len(expected) - 1 - expected[::-1].index("break"), "counted")
    stops = [session.wait_for_stop("breakpoint").marker]
    stops += [session.continue_to_stop().marker for _ in expected[1:]]
    assert stops == expected
    assert session.finish() == 0
    assert session.output("console").count("logged") == 10


UNSTEADY = """
import torch

calls = 0

def unsteady(graph, inputs):
    def run(*given):
        global calls
        calls += 1
        outputs = graph(*given)
        {defect}
        return outputs
    return run

@torch.compile(backend=unsteady)
def function(x, seen):
    y = x * 2
    seen.add_(y)
    return y + 1  # @last

seen = torch.zeros(2)
for n in range(5):
    print(function(torch.full((2,), float(n)), seen).tolist(), seen.tolist())
"""


@pytest.mark.parametrize(
    ("defect", "reason"),
    [
        ("outputs = tuple(each + 0.5 for each in outputs) if calls == 3 else outputs", "result 0, largest difference"),
        ("given[1].add_(calls == 3)", "the contents of seen, largest difference 1,"),
        ("pass", ""),
    ],
)
def test_values_that_the_call_did_not_compute_are_marked(
    session: Session, tmp_path: Path, defect: str, reason: str
) -> None:
    """A stop shows the replay's values before the call runs; later they are compared with the call's results."""
    program = program_of(UNSTEADY.replace("{defect}", defect), tmp_path)
    session.launch(program, "last")
    for call in range(5):
        stop = session.wait_for_stop("breakpoint", at="last") if call == 0 else session.continue_to_stop(at="last")
        shown = stop.frame["Locals"]["y"]
        is_marked = bool(reason) and call > 2
        assert f"[{2.0 * call}, {2.0 * call}]" in shown.text
        assert shown.text.endswith("(not proven)") == is_marked
        assert ("not proven" in shown.children) == is_marked
        if is_marked:
            assert reason in shown["not proven"].text
    assert session.finish() == 0
    assert session.output("important").count("computed something else") == bool(reason)
    assert session.output("stdout") == untouched(program)
