"""``dynamo-dap compare`` answers for each call and compile that raises, with the stage and the line."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.client.environments import own_command

PROGRAM = """
import torch

def failing(graph, inputs):
    raise ValueError("cannot compile this")

@torch.compile(backend=failing)
def at_the_backend(x):
    return x.sin()

@torch.library.custom_op("raising::without_fake", mutates_args=())
def without_fake(x: torch.Tensor) -> torch.Tensor:
    return x + 1

@without_fake.register_fake
def _(x):
    raise RuntimeError("no fake")

@torch.compile(backend="eager")
def in_the_trace(x):
    y = x + 1
    return without_fake(y)  # line: in_the_trace

@torch.compile(backend="aot_eager")
def in_eager_too(x):
    y = x.sum()
    assert y > 1e9, "too small"  # line: in_eager_too
    return x + 1

@torch.compile(backend="aot_eager")
def of_an_index(x, index):
    y = x * 2
    return y[index]  # line: of_an_index

@torch.compile(backend=lambda graph, inputs: lambda *args: 1 / 0)
def alone(x):
    return x.cos()

class Mute(Exception):
    def __str__(self):
        raise ValueError("has no text")

@torch.compile(backend="eager")
def mute_in_eager(x):
    if not torch.compiler.is_compiling():
        raise Mute
    return x + 1

def raising(x):
    raise ValueError("no gradient")

@torch.library.custom_op("raising::gradient", mutates_args=())
def gradient(x: torch.Tensor) -> torch.Tensor:
    return raising(x)

@gradient.register_fake
def _(x):
    return torch.empty_like(x)

@torch.library.custom_op("raising::doubled", mutates_args=())
def doubled(x: torch.Tensor) -> torch.Tensor:
    return x * 2

@doubled.register_fake
def _(x):
    return torch.empty_like(x)

doubled.register_autograd(lambda context, given: gradient(given))

@torch.compile(backend="aot_eager")
def backward_in_eager_too(x):
    y = x.sin()
    z = doubled(y)  # line: backward_in_eager_too
    return z.sum()

def with_wrong_backward(graph, inputs):
    from torch._dynamo.backends.common import aot_autograd
    return aot_autograd(fw_compiler=lambda graph, _: graph, bw_compiler=lambda *_: raises_alone)(graph, inputs)

def raises_alone(arguments):
    return 1 / 0

raises_alone._boxed_call = True

@torch.compile(backend=with_wrong_backward)
def backward_alone(x):
    return x.sin().sum()

@torch.compile(backend="aot_eager")
def without_derivative(x):
    y = x.abs() + 1
    z = torch.igamma(y, y)  # line: without_derivative
    return z.sum()

@torch.library.custom_op("raising::without_backward", mutates_args=())
def operator_without_backward(x: torch.Tensor) -> torch.Tensor:
    return x * 2

operator_without_backward.register_fake(torch.empty_like)

@torch.compile(backend="aot_eager")
def without_backward(x):
    y = x.sin()
    z = operator_without_backward(y)  # line: without_backward
    return z.sum()

@torch.library.custom_op("raising::viewed", mutates_args=())
def viewed(x: torch.Tensor) -> torch.Tensor:
    return x * 2

viewed.register_fake(torch.empty_like)
viewed.register_autograd(lambda context, given: given.view(7, 7))

@torch.compile(backend="aot_eager")
def wrong_backward(x):
    y = x.sin()
    z = viewed(y)  # line: wrong_backward
    return z.sum()

for call in (backward_in_eager_too, backward_alone, without_derivative, without_backward, wrong_backward):
    try:
        call(torch.randn(3, requires_grad=True)).backward()
    except Exception:
        pass

x = torch.randn(3, 4)
for call in (at_the_backend, in_the_trace, in_eager_too, alone):
    try:
        call(x)
    except Exception:
        pass
try:
    of_an_index(x, torch.tensor([7]))
except IndexError:
    pass
mute_in_eager(x)
with open(__file__ + ".ran", "a") as file:
    file.write("once")
"""


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """Run the program under the command; return its answers by function."""
    path = tmp_path_factory.mktemp("raising") / "program.py"
    path.write_text(PROGRAM, encoding="utf-8")
    words = [*own_command(), "compare", "--json", str(path)]
    run = subprocess.run(words, capture_output=True, text=True, timeout=300, check=False)
    found = [json.loads(line) for line in run.stdout.splitlines() if line.startswith("{")]
    assert Path(f"{path}.ran").read_text(encoding="utf-8") == "once", "a fork ran the program on"
    return {each["function"]: each for each in found}


def line_of(function: str) -> int:
    """Return the marked line."""
    return next(at for at, text in enumerate(PROGRAM.splitlines(), 1) if text.endswith(f"# line: {function}"))


def test_a_backend_that_fails_is_an_answer(answers: dict[str, dict[str, Any]]) -> None:
    """The compile's exception is shown, and its stage."""
    body = answers["at_the_backend"]
    assert (body["same"], body["stage"]) == (False, "failing")
    assert "ValueError: cannot compile this" in body["verdict"]


def test_a_trace_that_fails_names_its_line(answers: dict[str, dict[str, Any]]) -> None:
    """It is unknown whether eager fails as well, so the verdict names no cause."""
    body = answers["in_the_trace"]
    assert (body["compared"], body["line"]) == (False, line_of("in_the_trace"))
    assert "RuntimeError: no fake" in body["verdict"]


@pytest.mark.parametrize("function", ["without_derivative", "without_backward", "wrong_backward"])
def test_a_backward_that_cannot_be_traced_names_the_forward_line(
    answers: dict[str, dict[str, Any]], function: str
) -> None:
    """AOTAutograd traces it when it compiles the graph, and its exception names no line."""
    assert answers[function]["line"] == line_of(function)


@pytest.mark.parametrize("function", ["in_eager_too", "of_an_index", "backward_in_eager_too"])
def test_what_raises_in_eager_too_is_nobodys(answers: dict[str, dict[str, Any]], function: str) -> None:
    """The program's own assertion or index error is not attributed to the backend."""
    body = answers[function]
    assert (body["same"], body["line"], body.get("stage")) == (True, line_of(function), None)


@pytest.mark.parametrize(("function", "stage"), [("alone", "<lambda>"), ("backward_alone", "with_wrong_backward")])
def test_a_graph_that_raises_alone_is_the_backends(
    answers: dict[str, dict[str, Any]], function: str, stage: str
) -> None:
    """Dynamo's graph itself raises no exception, neither forward nor backward."""
    body = answers[function]
    assert (body["same"], body["stage"], "ZeroDivisionError" in body["verdict"]) == (False, stage, True)


def test_an_exception_without_a_text_has_its_type(answers: dict[str, dict[str, Any]]) -> None:
    """The fork that runs the function as ordinary Python raises it, and ends."""
    body = answers["mute_in_eager"]
    assert body["same"]
    assert body["problem"].startswith("mute_in_eager is not run")
    assert body["problem"].endswith(": Mute")
