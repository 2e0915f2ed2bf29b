"""The exception filter ``mismatch``: the first line whose result is another when compiled, and by whose fault."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from dynamo_dap.protocol.contract import COMPARISON, ComparisonBody
from dynamo_dap.protocol.messages import decode
from dynamo_dap.terminal.comparing import print_comparison
from tests.client import Fixture, Session
from tests.client.environments import need_inductor
from tests.end_to_end.test_not_finite import CORRECT, LIBRARIES, OURS, program_of, told, untouched


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
    """In training with dropout, running statistics and an input that is changed in place; every second call."""
    program = program_of(AT_THE_BACKEND, tmp_path)
    launch(session, program, "__difference__ > 0.01", compareEvery=2)
    for _ in range(2):
        stop = session.wait_for_stop("exception", at="silu")
        exception_id, (what, where, whose) = told(session, stop)
        assert exception_id.startswith("Mismatch: torch.nn.functional.silu: largest difference 0.27")
        assert what.startswith("The compiled call does not return what Dynamo's graph gives: largest difference 0.")
        assert where.startswith(
            f"Where: {program.path}:{stop.frame.line} in forward: hidden = nn.functional.silu(hidden)"
        )
        assert whose == "Whose: the backend's (wrong). What AOTAutograd hands to it gives what Dynamo's graph gives."
        assert stop.frame.evaluate("__value__.min().item() >= 0").text == "True"
        assert (
            stop.frame.evaluate("(__expected__ - hidden * hidden.sigmoid()).abs().max().item() < 1e-6").text == "True"
        )
        session.resume()
    stop = session.wait_for_stop("exception", at="stale")
    assert told(session, stop)[1][2].startswith("Whose: the backend's (forgets_the_last), but not again")
    assert session.run_to_end() == 0
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
WHOSE = {
    "decomposition": "Whose: a decomposition's that Inductor asks for.",
    "lowering": "Whose: the backend's (inductor).",
    "pass": "Whose: the backend's (inductor).",
    "aot": "Whose: AOTAutograd's.",
}
STAGES = {"decomposition": "decomposition", "aot": "AOTAutograd"}


@pytest.mark.timeout(300)
@pytest.mark.parametrize("kind", WHOSE)
def test_a_fault_is_given_to_its_stage_and_line(session: Session, tmp_path: Path, kind: str) -> None:
    """In the call that was compiled just now, and in the next."""
    if kind != "aot":
        need_inductor("injected")
    launch(session, program_of(INJECTED, tmp_path), args=[kind])
    for _ in range(2):
        stop = session.wait_for_stop("exception", at=kind)
        assert told(session, stop)[1][2].startswith(WHOSE[kind])
        assert stop.frame.evaluate("__stage__").text == repr(STAGES.get(kind, "inductor"))
        session.resume()
    assert session.wait_for_exit() == 0


@pytest.mark.timeout(300)
@pytest.mark.parametrize("library", [False, True], ids=["plain", "libraries"])
def test_correct_programs_do_not_stop(session: Session, tmp_path: Path, library: bool) -> None:
    """In float32 and bfloat16, in training mode."""
    if library:
        pytest.importorskip("transformers")
        pytest.importorskip("torch_geometric")
    text = (LIBRARIES if library else CORRECT).replace('backend="eager"', 'backend="aot_eager"')
    launch(session, program_of(text, tmp_path))
    assert session.wait_for_exit() == 0
    assert "16 calls" in session.output("stdout") if library else "36 calls" in session.output("stdout")
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
    """In training with dropout, also in bfloat16, where differences are those of rounding."""
    need_inductor("rounding")
    launch(session, program_of(ON_INDUCTOR, tmp_path))
    assert session.wait_for_exit() == 0
    assert session.output("console") + session.output("important") == ""


def test_nothing_is_compared_while_it_is_off(session: Session, tmp_path: Path) -> None:
    program = program_of(AT_THE_BACKEND, tmp_path)
    session.launch(program, "silu")
    stop = session.wait_for_stop("breakpoint", at="silu")
    assert stop.frame_called("<module>").evaluate(OURS).text == "[]"
    stop = session.go_on(at="silu")
    assert stop.frame_called("<module>").evaluate(OURS).text == "[False]"
    session.finish()


def test_the_command_compares_without_a_debugger(tmp_path: Path) -> None:
    """It prints each line of a call, and as JSON; the program's output and its status are its own."""
    program = program_of(AT_THE_BACKEND, tmp_path)
    command = [sys.executable, "-m", "dynamo_dap", "compare"]
    printed = subprocess.run([*command, program.path], capture_output=True, text=True, timeout=240, check=False)
    assert printed.returncode == 1, printed.stderr
    assert printed.stdout.startswith(untouched(program))
    assert "call 1 of Net.forward [0/0], backend wrong" in printed.stdout
    assert "call 1 of double [1/0], backend forgets_the_last" in printed.stdout
    (marked,) = [line for line in printed.stdout.splitlines() if line.startswith("▶")]
    assert marked.split()[1] == str(program.line("silu"))
    assert marked.split()[-1] == "differs"
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
    command = [sys.executable, "-m", "dynamo_dap", "compare", program.path, "--json", "x"]
    run = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (run.returncode, run.stdout) == (7, "ran ['--json', 'x']\nNo call of a compiled graph was compared.\n")


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


def test_a_fault_of_dynamo_is_told_from_ordinary_python(session: Session, tmp_path: Path) -> None:
    """The function is run apart from the program: what it stores, writes and draws there, nobody sees."""
    program = program_of(DYNAMO, tmp_path)
    launch(session, program)
    for _ in range(2):
        stop = session.wait_for_stop("exception", at="substituted")
        exception_id, (what, where, whose) = told(session, stop)
        assert what.startswith("The compiled call does not return what the function does when it runs as ordinary")
        assert where.startswith(f"Where: {program.path}:{program.line('substituted')} in substituted: y = clipped(")
        assert whose.startswith("Whose: Dynamo's.")
        assert exception_id.startswith("Mismatch: ")
        assert stop.frame.evaluate("__stage__").text == "'Dynamo'"
        session.resume()
    assert session.wait_for_exit() == 0
    assert session.output("stdout") == untouched(program)
