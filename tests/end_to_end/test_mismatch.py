"""The exception filter ``mismatch``: the first line whose compiled result differs from eager, and the cause."""

from __future__ import annotations

import io
import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from dynamo_dap.protocol.requests.comparisons import ComparisonBody
from dynamo_dap.protocol.requests.contract import COMPARISON
from dynamo_dap.protocol.wire.messages import decode
from dynamo_dap.records.report.comparison_text import print_comparison
from tests.client import Fixture, Session
from tests.client.environments import alone, need_inductor, own_command
from tests.client.timeline import DEADLINE
from tests.end_to_end.test_not_finite import (
    CORRECT,
    OF_LIBRARIES,
    OURS,
    need_libraries,
    program_of,
    reported,
    untouched,
)


def launch(session: Session, program: Fixture, condition: str | None = None, **options: Any) -> None:
    filters = {"filterOptions": [{"filterId": "mismatch", **({"condition": condition} if condition else {})}]}
    with session.launching(program, **options):
        session.request("setExceptionBreakpoints", {"filters": [], **filters})


AT_THE_BACKEND = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(16, 16)
        self.norm = nn.BatchNorm1d(16)

    def forward(self, x):
        hidden = self.norm(self.first(x))
        hidden = nn.functional.dropout(hidden, 0.5)
        hidden = nn.functional.silu(hidden)  # @silu
        return hidden.softmax(-1)

def wrong(graph, inputs):
    for node in graph.graph.nodes:
        if node.target is nn.functional.silu:
            node.target = nn.functional.relu
    graph.recompile()
    return graph.forward

def forgets_the_last(graph, inputs):
    '''Right in its first call only.'''
    calls = []
    def run(*given):
        calls.append(given)
        return tuple(each * len(calls) for each in graph(*given))
    return run

def double(x, out):
    out.mul_(2)
    out += x
    return out + 1  # @stale

torch.manual_seed(0)
net = Net()
step = torch.compile(net, backend=wrong)
for number in range(4):
    step(torch.randn(8, 16)).sum().backward()
    print(number, net.norm.running_mean.sum().item(), net.first.weight.grad.sum().item())
twice = torch.compile(double, backend=forgets_the_last)
for number in range(2):
    print(twice(torch.ones(4), torch.ones(4)).sum().item())
print(torch.rand(1).item(), dict(torch._dynamo.utils.counters["stats"]), sorted(name[:13] for name in globals()))
"""


@pytest.mark.timeout(300)
def test_a_backend_that_is_wrong(session: Session, tmp_path: Path) -> None:
    """Every second call is wrong, in training with dropout, running statistics and an input changed in place."""
    program = program_of(AT_THE_BACKEND, tmp_path)
    launch(session, program, "__difference__ > 0.01", compareEvery=2)
    for _ in range(2):
        stop = session.wait_for_stop("exception", at="silu")
        exception_id, (what, where, cause) = reported(session, stop)
        assert exception_id.startswith("Mismatch: torch.nn.functional.silu: largest difference 0.27")
        assert what.startswith("Compiled and eager results differ")
        assert "(largest difference 0." in what
        assert where.startswith(
            f"Where: {program.path}:{stop.frame.line} in forward: hidden = nn.functional.silu(hidden)"
        )
        assert cause.startswith("Cause: the backend (wrong).")
        assert stop.frame.evaluate("__value__.min().item() >= 0").text == "True"
        assert (
            stop.frame.evaluate("(__expected__ - hidden * hidden.sigmoid()).abs().max().item() < 1e-6").text == "True"
        )
        session.resume()
    stop = session.wait_for_stop("exception", at="stale")
    cause = reported(session, stop)[1][2]
    assert cause.startswith("Cause: the backend (forgets_the_last)")
    assert "in this compiled code alone" in cause
    assert session.run_to_end() == 0
    assert session.output("stdout") == untouched(program)


IN_BODIES = """
import torch
from torch.utils.checkpoint import checkpoint

def cosine_for_sine(graph, inputs):
    for module in graph.modules():
        for node in getattr(getattr(module, "graph", None), "nodes", ()):
            node.target = "cos" if node.target == "sin" else node.target
        if hasattr(module, "recompile"):
            module.recompile()
    return graph.forward

def layer(x):
    angle = x * 2
    turned = angle.sin()  # @checkpoint
    return turned + 1

@torch.compile(backend=cosine_for_sine)
def checkpointed(x):
    y = checkpoint(layer, x.exp(), use_reentrant=False)
    return y * 3

def inner(x):
    y = x * 2
    return y.sin() + 1  # @nested

def outer(x):
    y = x + 1
    return checkpoint(inner, y, use_reentrant=False).exp()

@torch.compile(backend=cosine_for_sine)
def nested(x):
    return checkpoint(outer, x, use_reentrant=False).sum()

def positive(x):
    y = x + 2
    return y.sin()  # @branch

@torch.compile(backend=cosine_for_sine)
def branches(x):
    y = torch.cond(x.sum() > 0, positive, lambda x: x.tanh(), (x,))
    return y * 3

@torch.compiler.nested_compile_region
def region(x):
    return (x * 2).sin()

@torch.compile(backend=cosine_for_sine)
def regions(x):
    y = region(x) + 0.5  # @region
    return region(y)

torch.manual_seed(0)
for function in (checkpointed, nested, branches, regions):
    for _ in range(2):
        print(function(torch.rand(8, requires_grad=function in (checkpointed, nested))).sum().item())
"""


@pytest.mark.timeout(300)
def test_a_line_in_the_body_of_an_operator(session: Session, tmp_path: Path) -> None:
    """The thread stops at the line in the body, in its function, not at the line that calls the operator."""
    program = program_of(IN_BODIES, tmp_path)
    launch(session, program)
    for marker, value in (("checkpoint", "angle"), ("nested", "y"), ("branch", "y")):
        for _ in range(2):
            stop = session.wait_for_stop("exception", at=marker)
            assert f":{stop.frame.line} in " in reported(session, stop)[1][1]
            assert stop.frame.evaluate(f"(tuple(__value__.shape), tuple({value}.shape))").text == "((8,), (8,))"
            session.resume()
    # Dynamo traces the body of a region once for all of its calls: the call says which one is wrong.
    for _ in range(2):
        session.wait_for_stop("exception", at="region")
        session.resume()
    assert session.wait_for_exit() == 0
    assert session.output("stdout") == untouched(program)


IN_THE_BACKWARD = """
import torch

class WrongSilu(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return torch.nn.functional.silu(x)

    @staticmethod
    def backward(ctx, gradient):
        return gradient * 0.5

def half(x, inplace=False):
    return WrongSilu.apply(x)

def wrong(graph, inputs):
    for node in graph.graph.nodes:
        if node.target is torch.nn.functional.silu:
            node.target = half
    graph.recompile()
    return graph.forward

torch.manual_seed(0)
layer = torch.nn.Linear(4, 4)

@torch.compile(backend=wrong)
def step(x):
    h = layer(x)
    h = torch.nn.functional.silu(h)  # @silu
    return h.sum()

for _ in range(2):
    step(torch.randn(2, 4)).backward()
print(layer.weight.grad.sum().item(), torch.rand(1).item(), sorted(name[:13] for name in globals()))
"""


@pytest.mark.timeout(300)
def test_gradients_stop_at_the_forward_line_whose_backward_is_wrong(session: Session, tmp_path: Path) -> None:
    """The values match: only the program's own backward pass shows the fault."""
    program = program_of(IN_THE_BACKWARD, tmp_path)
    launch(session, program, "__difference__ > 0.01")
    for _ in range(2):
        stop = session.wait_for_stop("exception", at="silu")
        exception_id, (what, where, cause) = reported(session, stop)
        assert exception_id.startswith("Mismatch in the backward pass: torch.nn.functional.silu: ")
        assert what.startswith("Compiled and eager gradients of layer.")
        assert f"program.py:{stop.frame.line} in step" in where
        assert cause.startswith("Cause: the backend (wrong).")
        assert "torch.nn.functional.silu" in cause
        assert stop.frame.evaluate("__grad__.tolist() == torch.ones(2, 4).tolist()").text == "True"
        assert stop.frame.evaluate("(__value__ - __expected__).abs().max().item() == __difference__").text == "True"
        session.resume()
    assert session.wait_for_exit() == 0
    assert session.output("stdout") == untouched(program)


INJECTED = """
import sys
import torch
import torch._inductor.config
import torch._inductor.decomposition
import torch._inductor.lowering

aten = torch.ops.aten
kind = sys.argv[1]

def decomposed(x):
    y = x * 2
    y = torch.nn.functional.hardswish(y)  # @decomposition
    return y.cos()

def lowered(x):
    y = x.abs() + 1
    y = y.erf()  # @lowering
    return y * 2

def passed(x):
    y = x.sin()
    y = y.atan()  # @pass
    return y + x

def traced(x):
    y = x.cos()
    y = torch.nn.functional.softshrink(y)  # @aot
    return y - x

if kind == "decomposition":
    torch._inductor.decomposition.decompositions[aten.hardswish.default] = lambda x: x.clamp(min=0.0)
if kind == "lowering":
    lowerings = torch._inductor.lowering.lowerings
    lowerings[aten.erf.default] = lowerings[aten.tanh.default]
if kind == "pass":
    def tan_for_atan(graph):
        for node in graph.nodes:
            if node.target is aten.atan.default:
                node.target = aten.tan.default
    torch._inductor.config.post_grad_custom_post_pass = tan_for_atan
if kind == "aot":
    operator = aten.softshrink.default
    operator.py_kernels[torch._C.DispatchKey.Autograd] = lambda x, lambd=0.5: aten.hardtanh.default(x)
    operator._dispatch_cache.clear()

function = {"decomposition": decomposed, "lowering": lowered, "pass": passed, "aot": traced}[kind]
compiled = torch.compile(function, backend="aot_eager" if kind == "aot" else "inductor")
x = torch.linspace(-3, 3, 24).reshape(4, 6)
compiled(x)
compiled(x + 0.1)
"""
CAUSES = {
    "decomposition": "Cause: an Inductor decomposition.",
    "lowering": "Cause: the backend (inductor).",
    "pass": "Cause: the backend (inductor).",
    "aot": "Cause: AOTAutograd.",
}
STAGES = {"decomposition": "decomposition", "aot": "AOTAutograd"}


@pytest.mark.timeout(300)
@pytest.mark.parametrize("kind", CAUSES)
def test_a_fault_is_given_to_its_stage_and_line(session: Session, tmp_path: Path, kind: str) -> None:
    """Both the compiled call and the next one stop."""
    if kind != "aot":
        need_inductor("injected")
    launch(session, program_of(INJECTED, tmp_path), args=[kind])
    for _ in range(2):
        stop = session.wait_for_stop("exception", at=kind)
        assert reported(session, stop)[1][2].startswith(CAUSES[kind])
        assert stop.frame.evaluate("__stage__").text == repr(STAGES.get(kind, "inductor"))
        session.resume()
    assert session.wait_for_exit() == 0


@pytest.mark.timeout(600)
@pytest.mark.parametrize("kind", ["plain", "language", "more", "bfloat16"])
def test_correct_programs_do_not_stop(session: Session, tmp_path: Path, kind: str) -> None:
    """They run in float32 and bfloat16, in training mode; models of libraries take minutes on a busy machine."""
    text, needed, printed = OF_LIBRARIES.get(kind, (CORRECT, (), "36 calls"))
    need_libraries(*needed)
    launch(session, program_of(text.replace('backend="eager"', 'backend="aot_eager"'), tmp_path))
    assert session.wait_for_exit(deadline=500) == 0
    assert printed in session.output("stdout")
    assert "cannot be compared" not in session.output()


ON_INDUCTOR = """
import torch
import torch._inductor.config
from torch import nn

torch._inductor.config.fallback_random = True
for dtype in (torch.float32, torch.bfloat16):
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True, norm_first=True).to(dtype)
    step = torch.compile(layer)
    for number in range(2):
        step(torch.randn(2, 7, 32, dtype=dtype)).float().sum().backward()
print("done")
"""


@pytest.mark.timeout(300)
def test_inductor_does_not_stop_where_it_only_rounds_otherwise(session: Session, tmp_path: Path) -> None:
    """The programs train with dropout, also in bfloat16, where rounding causes differences."""
    need_inductor("rounding")
    launch(session, program_of(ON_INDUCTOR, tmp_path))
    assert session.wait_for_exit() == 0
    assert session.output("console") + session.output("important") == ""


ROUNDED = """
import torch

def cancelled(x):
    large = x * 1000
    return (large + 1 - large) * x

def tripled(x):
    return x * 3  # @tripled

def more_exact(graph, inputs):
    return lambda *given: tuple(each.bfloat16() for each in graph(*[each.float() for each in given]))

def doubled(graph, inputs):
    return lambda *given: tuple(each * 2 for each in graph(*given))

torch.manual_seed(0)
x = torch.rand(64, dtype=torch.bfloat16)
print("apart", (torch.compile(cancelled, backend=more_exact)(x) - cancelled(x)).abs().max().item() > 0.2)
torch.compile(tripled, backend=doubled)(x)
"""


def test_a_result_that_is_nearer_to_the_one_in_float64_does_not_differ(session: Session, tmp_path: Path) -> None:
    """In bfloat16 rounding loses terms that cancel, so a backend that computes in float32 has another result."""
    program = program_of(ROUNDED, tmp_path)
    launch(session, program)
    session.wait_for_stop("exception", at="tripled")
    assert session.output("stdout") == "apart True\n", "the more exact one did not stop"
    assert session.run_to_end() == 0


def test_nothing_is_compared_while_it_is_off(session: Session, tmp_path: Path) -> None:
    program = program_of(AT_THE_BACKEND, tmp_path)
    session.launch(program, "silu")
    stop = session.wait_for_stop("breakpoint", at="silu")
    assert stop.frame_called("<module>").evaluate(OURS).text == "[]"
    stop = session.continue_to_stop(at="silu")
    assert stop.frame_called("<module>").evaluate(OURS).text == "[False]"
    session.finish()


def test_the_command_compares_without_a_debugger(tmp_path: Path) -> None:
    """It prints each line of a call, or JSON; the program's output and exit status stay the same."""
    program = program_of(AT_THE_BACKEND, tmp_path)
    command = [*own_command(), "compare"]
    printed = subprocess.run([*command, program.path], capture_output=True, text=True, timeout=DEADLINE, check=False)
    assert printed.returncode == 1, printed.stderr
    assert printed.stdout.startswith(untouched(program))
    assert "call 1 of Net.forward [0/0], backend wrong" in printed.stdout
    assert "call 1 of double [1/0], backend forgets_the_last" in printed.stdout
    marked = [line.split() for line in printed.stdout.splitlines() if line.startswith("▶")]
    assert {(words[1], words[-1]) for words in marked} == {(str(program.line("silu")), "differs")}
    assert "aot_eager (AOTAutograd) right, wrong wrong" in printed.stdout
    assert "first difference: torch.nn.functional.silu at" in printed.stdout
    assert "call 2 of double [1/0]" in printed.stdout, "the first cached call is compared as well"
    counts = re.fullmatch(r"\d+ of 6 calls: (\d+) differ, (\d+) same", printed.stdout.splitlines()[-1])
    assert counts is not None, printed.stdout
    assert [int(count) for count in counts.groups()] == [
        printed.stdout.count("Differs:"),
        printed.stdout.count("The same:"),
    ]
    assert printed.stdout.count("line  ") == int(counts[1]), "calls that are the same have no table"
    table = subprocess.run(
        [*command, "--json", "--every", "2", program.path], capture_output=True, text=True, timeout=240, check=False
    )
    assert table.returncode == 1, table.stderr
    assert untouched(program) in table.stderr
    found = [json.loads(line) for line in table.stdout.splitlines()]
    assert [(each["function"], each["call"], each["same"]) for each in found] == [
        ("Net.forward", 1, False),
        ("Net.forward", 3, False),
        ("double", 1, True),
    ]
    first, same = found[0], found[-1]
    assert (first["path"], first["line"], first["stage"]) == (str(program.path), program.line("silu"), "wrong")
    assert all(0.0 <= line["compiled"]["largest"] < 1e-6 for line in same["lines"] if "compiled" in line)
    by_text = {line["text"].partition("  #")[0]: line for line in first["lines"]}
    assert by_text["hidden = self.norm(self.first(x))"]["compiled"]["same"]
    assert not by_text["hidden = nn.functional.silu(hidden)"]["compiled"]["same"]
    assert by_text["hidden = nn.functional.silu(hidden)"]["operations"] == ["torch.nn.functional.silu"]


def test_a_program_that_fails_has_its_own_status(tmp_path: Path) -> None:
    program = program_of("import sys\nprint('ran', sys.argv[1:])\nsys.exit(7)\n", tmp_path)
    command = [*own_command(), "compare", str(program.path), "--json", "x"]
    run = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE, check=False)
    printed, answer, *_ = run.stdout.splitlines()
    assert (run.returncode, printed) == (7, "ran ['--json', 'x']")
    assert answer.startswith("No call of a compiled graph")


def test_the_lines_of_the_call_that_is_held_can_be_asked_for(session: Session, tmp_path: Path) -> None:
    program = program_of(AT_THE_BACKEND, tmp_path)
    launch(session, program)
    session.wait_for_stop("exception", at="silu")
    body = session.request("dynamoComparison")
    assert (body["function"], body["same"], body["line"]) == ("Net.forward", False, program.line("silu"))
    assert [line["compiled"]["same"] for line in body["lines"]] == [True, True, False, False]
    client = session.client
    console = Console(file=(text := io.StringIO()), width=120)
    print_comparison(decode(client.request(COMPARISON), ComparisonBody, "body"), console)
    assert f"▶ {program.line('silu')}" in text.getvalue()
    client.request("setExceptionBreakpoints", {"filters": []})
    assert session.run_to_end() == 0


DYNAMO = """
import torch

def clipped(x, low, high):
    x = torch.where(x < low, torch.full_like(x, low), x)
    return torch.where(x > high, torch.full_like(x, high), x)

@torch._dynamo.substitute_in_graph(clipped, skip_signature_check=True)
def clipped_in_graph(x, low, high):
    return x.clamp(low, high * 2)

seen = []

def substituted(x, scratch):
    scratch.add_(1)
    y = x * scratch
    y = torch.nn.functional.dropout(y, 0.5)
    y = clipped(y, -0.5, 0.5)  # @substituted
    seen.append(x.shape)
    print_of = len(seen)
    return y.sin() * print_of

def right(x, scratch):
    scratch.mul_(2)
    return torch.nn.functional.dropout(x, 0.5) @ scratch.T

torch.manual_seed(0)
for function in (substituted, right):
    compiled = torch.compile(function, backend="aot_eager")
    for number in range(2):
        scratch = torch.ones(4, 4)
        print(compiled(torch.randn(4, 4), scratch).sum().item(), scratch.sum().item(), len(seen))
print(torch.rand(1).item(), dict(torch._dynamo.utils.counters["stats"]))
"""


def test_a_fault_of_dynamo_is_distinguished_from_ordinary_python(session: Session, tmp_path: Path) -> None:
    """The function also runs in isolation: its stores, writes and random numbers there have no effect."""
    program = program_of(DYNAMO, tmp_path)
    launch(session, program)
    for _ in range(2):
        stop = session.wait_for_stop("exception", at="substituted")
        exception_id, (what, where, cause) = reported(session, stop)
        assert what.startswith("Dynamo's graph and ordinary Python differ.")
        assert where.startswith(f"Where: {program.path}:{program.line('substituted')} in substituted: y = clipped(")
        assert cause.startswith("Cause: Dynamo.")
        assert exception_id.startswith("Mismatch: ")
        assert stop.frame.evaluate("__stage__").text == "'Dynamo'"
        session.resume()
    assert session.wait_for_exit() == 0
    assert session.output("stdout") == untouched(program)


STORED = """
import sys
import torch
from torch import nn
from torch._dynamo.side_effects import SideEffects
from torch._dynamo.variables import ConstantVariable

class Counter:
    total = 0

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.calls = 0
        self.last = None
        self.register_buffer("mean", torch.zeros(4))

    def forward(self, x, *others, **options):
        options.setdefault("given", len(others))
        self.calls += 1  # @attribute
        hidden = self.linear(x)
        self.last = hidden * 2  # @tensor
        self.mean.mul_(0.9).add_(hidden.detach().mean(0))
        for size in x.shape:
            seen.append(size)  # @list
        self.note(hidden)
        return nn.functional.dropout(hidden, 0.5).relu()

    def note(self, hidden):
        global noted
        noted = self.calls * 10  # @global
        counts["calls"] = self.calls  # @dictionary
        made.total = self.calls  # @object

seen, counts, made, noted = [], {"calls": 0}, Counter(), 0
kind = sys.argv[1] if len(sys.argv) > 1 else ""
lost = {"list": "seen", "dictionary": "counts"}.get(kind)
wrong = {"attribute": "calls", "tensor": "last", "global": "noted", "object": "total"}.get(kind)
modified, replay = SideEffects._get_modified_vars, SideEffects.codegen_update_mutated

def all_but_one(effects):
    return [each for each in modified(effects) if lost is None or lost not in str(each.source)]

def with_a_wrong_value(effects, *arguments, **keywords):
    for attributes in effects.store_attr_mutations.values():
        if wrong in attributes:
            attributes[wrong] = ConstantVariable.create(77)
    return replay(effects, *arguments, **keywords)

SideEffects._get_modified_vars, SideEffects.codegen_update_mutated = all_but_one, with_a_wrong_value

torch.manual_seed(0)
net = Net()
step = torch.compile(net, backend="aot_eager")
for number in range(3):
    print(step(torch.randn(2, 4)).sum().item(), net.calls, seen, counts, made.total, noted, net.mean.tolist())
"""
STORED_TEXTS = {
    "attribute": ("self.calls is 77", ("1", "78")),
    "tensor": ("self.last is 77", ("a tensor float32[2, 4]",) * 2),
    "list": ("seen is 0 items", ("2 items",) * 2),
    "global": ("noted is 77", ("10", "20")),
    "dictionary": ("counts['calls'] is 0", ("1", "2")),
    "object": ("made.total is 77", ("1", "2")),
}
"""The side effects of the compiled call, and those of ordinary Python in each call."""


@pytest.mark.timeout(300)
@pytest.mark.parametrize("kind", STORED_TEXTS)
def test_a_side_effect_that_dynamo_replays_wrongly(session: Session, tmp_path: Path, kind: str) -> None:
    """In each call the values are right, but the side effects on objects, containers and globals are wrong."""
    program = program_of(STORED, tmp_path)
    launch(session, program, args=[kind])
    compiled, by_python = STORED_TEXTS[kind]
    for expected in by_python:
        stop = session.wait_for_stop("exception", at=kind)
        exception_id, (what, where, cause) = reported(session, stop)
        assert what.startswith(f"{compiled} ")
        assert f" {expected} " in what
        assert exception_id == f"Mismatch: {what[:-1]}"
        assert where.startswith(f"Where: {program.path}:{program.line(kind)}: ")
        assert cause.startswith("Cause: Dynamo.")
        assert "stores a wrong value: " in cause
        assert stop.frame.evaluate("__stage__").text == "'Dynamo'"
        session.resume()


@pytest.mark.timeout(300)
def test_side_effects_that_are_right_do_not_stop(session: Session, tmp_path: Path) -> None:
    """The program does not see the side effects of the isolated runs."""
    program = program_of(STORED, tmp_path)
    launch(session, program)
    assert session.wait_for_exit() == 0
    assert session.output("stdout") == untouched(program)
    assert "not compared" not in session.output()


CAPTURED = """
import sys
import torch
from torch._dynamo.side_effects import SideEffects
from torch._dynamo.variables import ConstantVariable

kind = sys.argv[1] if len(sys.argv) > 1 else ""
modified, replay = SideEffects._get_modified_vars, SideEffects.codegen_update_mutated

def all_but_one(effects):
    lost = {"dictionary": "counts", "pairs": "pairs", "members": "members", "deep": "deep"}.get(kind, "nothing")
    return [each for each in modified(effects) if lost not in str(each.source)]

def with_a_wrong_value(effects, *arguments, **keywords):
    for attributes in effects.store_attr_mutations.values():
        if kind in WRONG and kind in attributes:
            attributes[kind] = ConstantVariable.create(WRONG[kind])
    return replay(effects, *arguments, **keywords)

WRONG = {"total": 77, "rate": 1.0, "flag": 1, "text": "a" * 3000}
SideEffects._get_modified_vars, SideEffects.codegen_update_mutated = all_but_one, with_a_wrong_value

def made():
    counts = {"calls": 0}
    pairs, members = {}, set()
    layers = [[number] for number in range(15_000 if kind == "deep" else 1)]
    deep = [[[[[]]]]]

    class Local:
        def __init__(self):
            self.total = 0
            self.rate = 1.0
            self.flag = False
            self.text = ""

        def note(self, x):
            counts["calls"] += 1  # @dictionary
            self.total += 2  # @total
            self.rate = self.rate * 0.9995  # @rate
            self.flag = True  # @flag
            self.text = "a" * 2999 + "b"  # @text
            pairs[(0, (1, "one"))] = x  # @pairs
            members.add((0, 1))  # @members
            deep[0][0][0][0].append(len(layers))  # @deep
            return x + 1

    local = Local()

    def helper(x):
        return local.note(x) * 2

    @torch.compile(backend="eager")
    def step(x):
        return helper(x).relu()

    return step, counts, local

step, counts, local = made()
for _ in range(2):
    print(step(torch.ones(3)).sum().item(), counts, local.total)
"""


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("dictionary", "counts['calls'] is 0"),
        ("pairs", "pairs is without (0, (1, 'one'))"),
        ("members", "members is without (0, 1)"),
        ("deep", "deep[0][0][0][0] is 0 items"),
        ("total", "local.total is 77"),
        ("rate", "local.rate is 1.0"),
        ("flag", "local.flag is 1"),
        ("text", "local.text is 'aaa"),
        ("", ""),
    ],
)
def test_what_a_traced_function_has_captured(tmp_path: Path, kind: str, text: str) -> None:
    """This includes variables captured by functions and methods of local classes that the compiled function calls."""
    program = program_of(CAPTURED, tmp_path)
    command = [*own_command(), "compare", "--json", str(program.path), kind]
    run = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE, check=False)
    found = [json.loads(line) for line in run.stdout.splitlines()]
    assert len(found) == 2, run.stderr
    for each in found:
        assert (each["same"], each.get("line")) == (not kind, program.line(kind) if kind else None)
        assert text in each["verdict"]


LEFT_OUT = """
import torch

layers = [[number] for number in range(30_000)]

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.pairs = zip([1], [2])
        self.generator = torch.Generator()
        self.key, self.seen = object(), {}

    def forward(self, x):
        self.seen[self.key] = x
        self.large = x.new_zeros(len(layers) * 600)
        return x + 1

torch.compile(Model(), backend="eager")(torch.ones(3))
"""


def test_what_a_state_leaves_out_is_listed(tmp_path: Path) -> None:
    """A state is limited, and some values cannot be compared between processes."""
    program = program_of(LEFT_OUT, tmp_path)
    command = [*own_command(), "compare", "--json", str(program.path)]
    run = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE, check=False)
    (found,) = [json.loads(line) for line in run.stdout.splitlines()]
    assert found["same"], run.stderr
    left_out = " | ".join(found["notCompared"])
    for text in (
        "nearest 50,000",
        "1 stored tensor",
        "keys or members of self.seen",
        "position of self.pairs",
    ):
        assert text in left_out
    assert "self.generator" not in left_out, "its state is compared"


OPERATORS = """
import sys
import torch
from torch.library import custom_op

kind = sys.argv[1]
calls = []

@custom_op("tried::doubled", mutates_args=())
def doubled(x: torch.Tensor) -> torch.Tensor:
    return x * 2

@doubled.register_fake
def _(x):
    if kind == "shape":
        return x.new_empty(x.shape[0], x.shape[1] + 1)
    if kind == "dtype":
        return torch.empty_like(x, dtype=torch.float64)
    return x.new_empty(x.shape[1], x.shape[0]).t() if kind == "strides" else torch.empty_like(x)

@custom_op("tried::scaled", mutates_args=())
def scaled(x: torch.Tensor) -> torch.Tensor:
    if kind == "writes":
        x.mul_(2)
    calls.append(x.shape)
    return x * (len(calls) if kind == "remembers" else 2)

@scaled.register_fake
def _(x):
    return torch.empty_like(x)

library = torch.library.Library("tried", "FRAGMENT")
library.define("flat(Tensor x) -> Tensor")
library.impl("flat", lambda x: x.view(-1) if kind == "aliases" else x.reshape(-1).clone(), "CompositeExplicitAutograd")
torch.library.register_fake("tried::flat", lambda x: x.new_empty(x.numel()))

def called(x):
    x = x.cos()
    y = doubled(x)  # @fake
    z = scaled(y)  # @real
    return torch.ops.tried.flat(z) + y.sum() * y.shape[1]  # @alias

compiled = torch.compile(called, backend=sys.argv[2])
for number in range(2):
    x = torch.linspace(-1, 1, 12).reshape(3, 4)
    try:
        print(compiled(x).sum().item(), x.sum().item())
    except (AssertionError, RuntimeError) as problem:
        print(str(problem).splitlines()[0])
"""
WRONG_OPERATORS = {
    ("shape", "aot_eager"): ("fake", "It declares float32[3, 5], but the operator returns float32[3, 4]."),
    ("shape", "inductor"): ("fake", "It declares float32[3, 5], but the operator returns float32[3, 4]."),
    ("dtype", "aot_eager"): ("fake", "It declares float64[3, 4], but the operator returns float32[3, 4]."),
    ("strides", "aot_eager"): (
        "fake",
        ("It declares float32[3, 4] with strides (1, 3), but the operator returns float32[3, 4] with strides (4, 1)."),
    ),
    ("writes", "inductor"): ("real", "It writes to its argument x, which its declaration denies."),
    ("remembers", "aot_eager"): ("real", "It gives another result for equal operands when it is called again."),
    ("aliases", "aot_eager"): ("alias", "It returns memory of its argument x, which its declaration denies."),
}


@pytest.mark.timeout(300)
@pytest.mark.parametrize(("kind", "backend"), WRONG_OPERATORS)
def test_a_custom_operator_that_does_not_do_what_it_declares(
    session: Session, tmp_path: Path, kind: str, backend: str
) -> None:
    """The fake kernel or the real one is wrong, also if the compiled call then raises an exception."""
    if backend == "inductor":
        need_inductor("custom operators")
    marker, text = WRONG_OPERATORS[kind, backend]
    program = program_of(OPERATORS, tmp_path)
    launch(session, program, args=[kind, backend])
    stop = session.wait_for_stop("exception", at=marker)
    stage = "fake kernel" if marker == "fake" else "custom operator"
    exception_id, (what, where, cause) = reported(session, stop)
    assert exception_id.endswith(f": {stage}")
    assert where.startswith(f"Where: {program.path}:{program.line(marker)} in called: ")
    owner = "the fake kernel of torch.ops.tried." if marker == "fake" else "torch.ops.tried."
    assert cause.startswith(f"Cause: {owner}")
    assert cause.endswith(f". {text}")
    assert stop.frame.evaluate("__stage__").text == repr(stage)
    if (kind, backend) == ("shape", "inductor"):
        assert "The compiled call raises AssertionError: " in what
    session.request("setExceptionBreakpoints", {"filters": []})
    assert session.run_to_end() == 0
    if kind != "remembers":  # an operator that keeps state in Python keeps it in each of its calls
        assert session.output("stdout") == untouched_by(program, kind, backend)


def untouched_by(program: Fixture, *arguments: str) -> str:
    return alone(program.path, *arguments).stdout


@pytest.mark.timeout(300)
def test_a_custom_operator_that_is_right_does_not_stop(session: Session, tmp_path: Path) -> None:
    program = program_of(OPERATORS, tmp_path)
    launch(session, program, args=["nothing", "aot_eager"])
    assert session.wait_for_exit() == 0
    assert session.output("stdout") == untouched_by(program, "nothing", "aot_eager")
    assert "not compared" not in session.output()


OPTIMIZER = """
import torch
from torch import nn

weight = nn.Parameter(torch.ones(4))
optimizer = torch.optim.Adam([weight], lr=0.1)
weight.grad = torch.ones(4)
step = torch.compile(optimizer.step, backend="eager")
for _ in range(3):
    step()
print(weight.tolist(), optimizer.state[weight]["step"].item())
"""


def test_the_parameters_of_a_compiled_optimizer_stay(session: Session, tmp_path: Path) -> None:
    """They belong to the graph, which writes to them, and which the comparison runs again."""
    program = program_of(OPTIMIZER, tmp_path)
    launch(session, program)
    assert session.wait_for_exit() == 0
    assert session.output("stdout") == untouched(program)


NOT_VALID = """
import torch

class Switched(torch.nn.Module):
    flag = False

    def forward(self, x):
        y = x + 1
        if self.flag:
            y = y * 3  # @switched
        return y

def without_constants(guards):
    return [each.guard_type not in ("CONSTANT_MATCH", "EQUALS_MATCH") for each in guards]

model = Switched()
model.flag = False
compiled = torch.compile(model, backend="eager", options={"guard_filter_fn": without_constants})
x = torch.ones(4)
for flag in (False, False, True):
    model.flag = flag
    print(compiled(x).sum().item())
"""


def test_a_call_that_an_invalid_compile_serves(session: Session, tmp_path: Path) -> None:
    """The stop names the unguarded value as the cause, not the backend."""
    program = program_of(NOT_VALID, tmp_path)
    launch(session, program)
    stop = session.wait_for_stop("exception", at="switched")
    exception_id, (_, where, cause) = reported(session, stop)
    assert "self.flag was False" in exception_id
    assert "and is True now" in exception_id
    assert where.startswith(f"Where: {program.path}:{program.line('switched')}")
    assert cause == "Cause: Dynamo."
    session.resume()
    assert session.wait_for_exit() == 0
    assert session.output("stdout") == untouched(program)


OBSERVED = """
import torch

def turned(graph, inputs):
    return lambda *args: tuple(each.t().contiguous().t() for each in graph(*args))

@torch.compile(backend=turned)
def work(x):
    y = x + 1
    return y.relu()  # @turned

work(torch.ones(2, 3))
"""


def test_a_result_with_other_strides(session: Session, tmp_path: Path) -> None:
    """All values are right: the stop names the strides, which a caller can observe."""
    program = program_of(OBSERVED, tmp_path)
    launch(session, program)
    stop = session.wait_for_stop("exception", at="turned")
    assert "has strides (1, 2), not (3, 1)" in reported(session, stop)[0]
    session.resume()
    assert session.wait_for_exit() == 0


ONLY_EAGER_RAISES = """
import torch

def without_checks(graph, inputs):
    def taken(values, dimension, index):
        return values[index.clamp(max=values.shape[0] - 1)]
    for node in graph.graph.nodes:
        if node.target is torch.index_select:
            node.target = taken
    graph.recompile()
    return graph.forward

@torch.compile(backend=without_checks)
def work(x, index):
    y = x * 2
    z = torch.index_select(y, 0, index)  # @raises
    return z.sum()

for last in (1, 7, 2):
    print(work(torch.arange(3.0), torch.tensor([0, last])).item())
"""


def test_a_call_that_returns_where_only_eager_raises(session: Session, tmp_path: Path) -> None:
    program = program_of(ONLY_EAGER_RAISES, tmp_path)
    launch(session, program)
    stop = session.wait_for_stop("exception", at="raises")
    exception_id, (_, where, cause) = reported(session, stop)
    assert exception_id.startswith("Mismatch: only eager raises ")
    assert "index" in exception_id
    assert where.startswith(f"Where: {program.path}:{program.line('raises')}")
    assert cause.startswith("Cause: the backend (without_checks)")
    assert stop.frame.evaluate("index.tolist(), __stage__").text == "([0, 7], 'without_checks')"
    session.resume()
    assert session.wait_for_exit() == 0
    assert session.output("stdout") == untouched(program)


RELEASED = """
import torch

@torch.compile(backend="eager")
def released(x, y):
    x.add_(y)
    z = x * 2
    x.untyped_storage().resize_(0)
    return z

@torch.compile(backend="eager")
def taken_back(x, y):
    x.untyped_storage().resize_(16)
    x.copy_(y)
    return x / 2

@torch.compile(backend="eager")
def result_released(x):
    y = x * 2
    y.untyped_storage().resize_(0)
    return y

for _ in range(2):
    x = torch.ones(4)
    print(released(x, x + 1).sum().item(), x.untyped_storage().nbytes())
    print(result_released(torch.ones(4)).untyped_storage().nbytes())
    print(taken_back(x, torch.ones(4)).sum().item(), x.sum().item())  # @released
"""


def test_memory_that_a_call_releases_is_not_read(session: Session, tmp_path: Path) -> None:
    """Reading it would crash the process, and a replay would release the program's own memory. Its size is compared."""
    program = program_of(RELEASED, tmp_path)
    with session.launching(program):
        session.request("setExceptionBreakpoints", {"filters": ["mismatch", "nan"]})
        session.set_breakpoints(program, "released")
    for _ in range(2):
        session.wait_for_stop("breakpoint", at="released")
        session.resume()
    assert session.wait_for_exit() == 0
    assert session.output("stdout") == untouched(program)
    command = [*own_command(), "compare", "--json", str(program.path)]
    run = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE, check=False)
    found = [json.loads(line) for line in run.stdout.splitlines() if line.startswith("{")]
    assert {each["function"] for each in found} == {"released", "taken_back", "result_released"}
    assert all(each["same"] for each in found), found
    assert run.returncode == 0
