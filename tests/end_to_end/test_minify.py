"""``dynamo-dap minify`` on the failing backend of torch's own guides, and the result of an interrupted run."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path
from typing import IO

import msgspec
import pytest

from dynamo_dap.commands.minify import JsonMinified
from tests.client.environments import need_inductor, own_command
from tests.client.processes import MARK, wait_until_gone
from tests.client.timeline import DEADLINE

PROGRAM = """
import torch

@torch.compile(backend="relu_compile_error_TESTING_ONLY")
def f(x):
    y = torch.sin(x)
    y = torch.relu(y)
    return torch.cos(y) + 1

f(torch.randn(4))
"""
WAITS = """
import torch, time
torch.zeros(1)
print("Started off with 7 nodes", flush=True)
time.sleep(600)
"""


def started(folder: Path, text: str, *options: str) -> subprocess.Popen[str]:
    path = folder / "program.py"
    path.write_text(text)
    # Handle Ctrl-C as in a person's shell: processes started by tests in the background ignore it.
    before = signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        return subprocess.Popen(
            [*own_command(), "minify", *options, str(path)],
            env={**os.environ, MARK: str(folder)},
            cwd=folder,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
    finally:
        signal.signal(signal.SIGINT, before)


def wait_for(stream: IO[str], text: str) -> None:
    """Wait until a stream has a text; its process ends by itself after the test's time limit."""
    for line in stream:
        if text in line:
            return
    raise AssertionError(f"it has ended without {text!r}")


def test_the_guides_failing_backend(tmp_path: Path) -> None:
    """After AOTAutograd no graph fails; after Dynamo only relu does."""
    output, reported = started(tmp_path, PROGRAM, "--json").communicate(timeout=250)
    found = json.loads(output)
    assert msgspec.convert(found, JsonMinified)
    assert found["stage"] == "dynamo", reported
    assert found["nodes"] < found["before"]
    assert "ReluCompileError" in found["error"]
    text = Path(found["path"]).read_text()
    assert "relu" in text
    assert "torch.cos" not in text
    assert "torch.sin" not in text
    assert Path(found["path"]).is_relative_to(tmp_path / "minified")
    assert sorted(each.name for each in tmp_path.iterdir()) == ["minified", "program.py"]


TOY_COMPILER = """
import torch

def toy_compiler(gm: torch.fx.GraphModule, _):
    for node in gm.graph.nodes:
        if node.target == torch.relu:
            assert False
    return gm

def test_model(x):
    for _ in range(3):
        x = torch.sin(x)
    x = torch.relu(x)
    for _ in range(3):
        x = torch.cos(x)
    return x

inp = torch.randn(int(input()), 100)
(inp.T @ inp).sum()
torch.compile(test_model, backend=toy_compiler)(inp)
"""
LOWERING = """
import torch
from torch._inductor.lowering import register_lowering

@register_lowering(torch.ops.aten.sinh.default, type_promotion_kind=None)
def sinh(x):
    raise RuntimeError("no sinh here")

@torch.compile
def f(x):
    return torch.exp(torch.sinh(torch.cos(x) * 2)) + 7

f(torch.ones(8))
"""


def test_a_backend_of_the_program(tmp_path: Path) -> None:
    """Minify the example of torch's troubleshooting guide, with input; the result contains the backend."""
    output, errors = started(tmp_path, TOY_COMPILER, "--json", "--stage", "dynamo").communicate("100\n", timeout=250)
    found = json.loads(output)
    assert (found["nodes"], found["before"], found["fails_alone"]) == (3, 9, True), errors
    assert "AssertionError" in found["error"]
    forward = Path(found["path"]).read_text().partition("def forward")[2]
    assert "torch.relu" in forward
    assert "torch.sin" not in forward


def test_a_lowering_that_the_program_registers(tmp_path: Path) -> None:
    need_inductor("the program")
    output, errors = started(tmp_path, LOWERING, "--json").communicate(timeout=250)
    found = json.loads(output)
    assert (found["stage"], found["nodes"], found["fails_alone"]) == ("aot", 3, False), errors
    assert "no sinh here" in found["error"]
    assert "aten.sinh" in Path(found["path"]).read_text()


WRONG_WITH_NAN = """
import torch
from torch._inductor.lowering import make_pointwise, ops, register_lowering

@register_lowering(torch.ops.aten.sin.default, type_promotion_kind=None)
def sin(x):
    return make_pointwise(ops.cos)(x)

@torch.compile
def f(x):
    for _ in range(4):
        x = torch.relu(x) + 1
    x = torch.sin(x)
    for _ in range(4):
        x = torch.tanh(x) * 2
    return x

f(torch.tensor([float("nan"), 1.0, 2.0]))
"""


def test_a_wrong_result_beside_a_nan(tmp_path: Path) -> None:
    """Torch's minifier accepts every result with a NaN; ours finds the wrong operation alone."""
    need_inductor("the program")
    output, errors = started(tmp_path, WRONG_WITH_NAN, "--json", "--accuracy").communicate(timeout=250)
    found = json.loads(output)
    assert (found["stage"], found["nodes"], found["before"]) == ("aot", 3, 19), errors
    assert "aten.sin" in Path(found["path"]).read_text()
    assert [line for line in errors.splitlines() if " of 19 nodes" in line] == ["19 of 19 nodes", "3 of 19 nodes"]


WRONG_FUNCTION = """
import torch

def fast_math(graph, inputs):
    for node in graph.graph.nodes:
        if node.target is torch.exp:
            node.target = torch.add
            node.args = (node.args[0], 1)
    graph.recompile()
    return graph.forward

@torch.compile(backend=fast_math)
def swish(x, layer):
    negative = torch.exp(-layer(x))
    return x / (1 + negative)

swish(torch.linspace(-1, 1, 5), torch.nn.Linear(5, 5)).sum().backward()
"""


def test_a_backend_that_returns_a_function(tmp_path: Path) -> None:
    """Torch's minifier accepts all results of such a backend, but takes each of its compiles for a failure."""
    output, errors = started(tmp_path, WRONG_FUNCTION, "--json", "--accuracy").communicate(timeout=250)
    found = json.loads(output)
    assert (found["stage"], found["nodes"], found["fails_alone"]) == ("dynamo", 3, True), errors
    assert "torch.exp" in Path(found["path"]).read_text().partition("def forward")[2]
    output, errors = started(tmp_path, WRONG_FUNCTION, "--stage", "dynamo").communicate(timeout=250)
    assert (output, errors.splitlines()[-1]) == ("", "no compile of the program fails")


WRONG_DECOMPOSITION = """
import torch
from torch._inductor.decomposition import decompositions

decompositions[torch.ops.aten.silu.default] = lambda x: x * torch.sigmoid(x) + 1

@torch.compile
def step(x):
    return torch.exp(torch.nn.functional.silu(torch.cos(x) * 2))

step(torch.arange(8.0))
"""


def test_a_wrong_decomposition(tmp_path: Path) -> None:
    """AOTAutograd's graph is wrong already; torch's minifier cannot call Inductor's result for Dynamo."""
    need_inductor("the program")
    output, errors = started(tmp_path, WRONG_DECOMPOSITION, "--json", "--accuracy").communicate(timeout=250)
    found = json.loads(output)
    assert (found["stage"], found["nodes"], found["fails_alone"]) == ("dynamo", 3, False), errors
    assert "silu" in Path(found["path"]).read_text().partition("def forward")[2]
    right = WRONG_DECOMPOSITION.replace(" + 1", "")
    output, errors = started(tmp_path, right, "--stage", "dynamo", "--accuracy").communicate(timeout=250)
    assert (output, errors.splitlines()[-1]) == ("", "no result differs: 1 call compared")


WRONG_BACKWARD = """
import torch
from functorch.compile import make_boxed_func
from torch._dynamo.backends.common import aot_autograd

aten = torch.ops.aten

def sine_for_cosine(graph, inputs):
    for node in graph.graph.nodes:
        if node.target == aten.cos.default:
            node.target = aten.sin.default
    graph.recompile()
    return make_boxed_func(graph.forward)

forward_as_it_is = lambda graph, inputs: make_boxed_func(graph.forward)

@torch.compile(backend=aot_autograd(fw_compiler=forward_as_it_is, bw_compiler=sine_for_cosine))
def f(x):
    y = x * 2
    y = y.sin()
    return y.sum()

f(torch.randn(5, requires_grad=True)).backward()
"""


def test_a_wrong_backward(tmp_path: Path) -> None:
    """Torch can compile only one backward pass on a compiling thread, so each attempt has its own thread."""
    output, errors = started(tmp_path, WRONG_BACKWARD, "--json", "--accuracy").communicate(timeout=250)
    found = json.loads(output)
    assert (found["stage"], found["nodes"], found["before"]) == ("dynamo", 3, 5), errors
    assert ".sin()" in Path(found["path"]).read_text().partition("def forward")[2]


STALE = """
import torch

NUMBERS = [2]

@torch.compiler.assume_constant_result
def number():
    return NUMBERS[0]

@torch.compile
def f(x):
    y = x.sin() * number()
    return y + 1

f(torch.ones(3))
NUMBERS[0] = 3
f(torch.ones(3))
"""
WRONG_IN_THE_PROGRAM_ALONE = """
import torch

@torch.library.custom_op("alone::scaled", mutates_args=())
def scaled(x: torch.Tensor) -> torch.Tensor:
    return x * 2

scaled.register_fake(torch.empty_like)
scaled.register_autograd(lambda context, gradient: gradient * (3 if torch.compiler.is_compiling() else 2))

@torch.compile(backend="aot_eager")
def f(x):
    return scaled(x.sin())

f(torch.randn(5, requires_grad=True)).sum().backward()
"""


@pytest.mark.parametrize(
    ("program", "line", "cause"),
    [
        (STALE, "program.py:12", "Dynamo's graph differs from the function"),
        (WRONG_IN_THE_PROGRAM_ALONE, "program.py:13", "passes the check of torch's minifier"),
    ],
    ids=["stale", "gradients"],
)
def test_a_difference_that_no_graph_has(tmp_path: Path, program: str, line: str, cause: str) -> None:
    """``minify`` reports the finding of ``compare``, and why the program cannot be smaller."""
    output, errors = started(tmp_path, program, "--accuracy").communicate(timeout=250)
    assert output == ""
    assert line in errors.splitlines()[-1]
    assert cause in errors.splitlines()[-1]


ALL_NEEDED = """
import torch

def backend(graph, inputs):
    if len(graph.graph.nodes) > 3:
        raise ValueError("too many")
    return graph

torch.compile(lambda x: x.sin().cos(), backend=backend)(torch.ones(3))
"""


def test_nothing_smaller_fails(tmp_path: Path) -> None:
    output, errors = started(tmp_path, ALL_NEEDED).communicate(timeout=250)
    assert "4 of 4 nodes" in output, errors
    assert "nothing smaller fails" in output, errors


DIES = TOY_COMPILER.replace("assert False", "assert len(gm.graph.nodes) < 9, 'too long'; import os; os.abort()")


def test_an_attempt_that_kills_the_process(tmp_path: Path) -> None:
    """After such an attempt, each attempt gets its own process. A signal is not the program's failure, an exception."""
    output, errors = started(tmp_path, DIES, "--json", "--stage", "dynamo").communicate("100\n", timeout=250)
    found = json.loads(output)
    assert (found["nodes"], found["before"], found["fails_alone"]) == (9, 9, True), errors
    assert found["error"] == "AssertionError: too long", errors


ANOTHER_ERROR = TOY_COMPILER.replace(
    "assert False",
    "raise ValueError('relu cannot be fused' if hasattr(torch, 'rules') else 'nobody has registered any of them')",
).replace("inp = ", "torch.rules = []\ninp = ")


def test_a_result_that_fails_for_another_reason_alone(tmp_path: Path) -> None:
    """Both errors are a ValueError, with other messages."""
    output, errors = started(tmp_path, ANOTHER_ERROR, "--stage", "dynamo").communicate("100\n", timeout=250)
    assert "3 of 9 nodes" in output, errors
    assert "it fails with: ValueError: relu cannot" in output, errors
    assert "another error, ValueError: nobody has registered" in output, errors


def test_it_is_interrupted_with_all_its_processes(tmp_path: Path) -> None:
    process = started(tmp_path, WAITS)
    assert process.stderr is not None
    wait_for(process.stderr, "7 of 7 nodes")
    process.send_signal(signal.SIGINT)
    _, reported = process.communicate(timeout=DEADLINE)
    assert process.returncode == 130
    assert "cancelled" in reported
    assert not wait_until_gone(str(tmp_path))
    assert not list((tmp_path / "minified").iterdir())
