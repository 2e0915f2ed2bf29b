"""The report on calls that raise while compiled code runs: operation, line, and wrong fake kernels."""

from __future__ import annotations

import os
import subprocess

import pytest

from dynamo_dap.protocol.requests.contract import RECORDS_VARIABLE
from dynamo_dap.records.advice.gathering import what_to_do
from dynamo_dap.records.advice.items import Item
from dynamo_dap.records.file import read_record
from dynamo_dap.records.folders import SUFFIX
from tests.client.environments import need_inductor, own_command
from tests.client.timeline import DEADLINE

PROGRAM = """
import traceback
import torch

@torch.library.custom_op("raising::turned", mutates_args=())
def turned(x: torch.Tensor) -> torch.Tensor:
    return x.t().contiguous().t() + 0

@turned.register_fake
def _(x):
    return torch.empty_like(x)

@torch.library.custom_op("raising::failing", mutates_args=())
def failing(x: torch.Tensor) -> torch.Tensor:
    return x + len(None)  # line: kernel

@failing.register_fake
def _(x):
    return torch.empty_like(x)

@torch.compile
def wrong_strides(x):
    y = x.sin() + 1
    z = turned(y)  # line: wrong_strides
    return z.cos() * 2

@torch.compile(backend="aot_eager")
def failing_kernel(x):
    y = x * 2
    return failing(y)  # line: failing_kernel

@torch.compile(backend="eager")
def asserted(x):
    y = x.sum()
    assert y > 1e9, "too small"  # line: asserted
    return x + 1

@torch.library.custom_op("raising::doubled", mutates_args=())
def doubled(x: torch.Tensor) -> torch.Tensor:
    return x * 2

@doubled.register_fake
def _(x):
    return torch.empty_like(x)

doubled.register_autograd(lambda context, gradient: failing(gradient))

def backward_of_eager(x):
    y = x.sin()
    z = doubled(y)  # line: backward_of_eager
    return z.sum()

def backward_of_inductor(x):
    y = x.cos()
    z = doubled(y)  # line: backward_of_inductor
    return z.sum()

trained = torch.compile(backward_of_eager, backend="aot_eager"), torch.compile(backward_of_inductor)

def backend(graph, inputs):
    return lambda *args: 1 / 0  # line: backend

@torch.compile(backend=backend)
def failing_backend(x):
    return x.cos()

@torch.compile(backend="eager")
def handling(x):
    return x.tan()

@torch.compile(backend="eager")
def broken(x):
    y = x + 1
    torch._dynamo.graph_break()
    raise KeyError("the program's own")

calls = (wrong_strides, failing_kernel, asserted, failing_backend, broken)
for call in calls:
    for _ in range(2):
        try:
            call(torch.ones(3, 4))
        except Exception as error:
            frames = traceback.extract_tb(error.__traceback__)
            assert not any("dynamo_dap" in each.filename for each in frames[1:]), frames
            handling(torch.ones(3))
for call in trained:
    for _ in range(2):
        try:
            call(torch.ones(3, requires_grad=True)).backward()  # line: backward
        except Exception as error:
            frames = traceback.extract_tb(error.__traceback__)
            assert not any("dynamo_dap" in each.filename for each in frames[1:]), frames
"""


@pytest.fixture(scope="module")
def items(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Item]:
    """Record the program; return the advice on calls that raised, by function."""
    need_inductor("strides that Inductor checks")
    path = tmp_path_factory.mktemp("raising") / "program.py"
    path.write_text(PROGRAM, encoding="utf-8")
    words = [*own_command(), "run", str(path)]
    # A backward graph that comes from a cache has no lines.
    cache = {"TORCHINDUCTOR_CACHE_DIR": str(path.parent / "cache")}
    environment = {**os.environ, **cache, RECORDS_VARIABLE: str(path.parent / "records")}
    run = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=DEADLINE, check=False)
    assert run.returncode == 0, run.stderr
    found = what_to_do(read_record(next(path.parent.rglob(f"*{SUFFIX}"))))
    raised = [item for item in found if item.title.endswith("compiled code")]
    assert len(raised) == len({item.function for item in raised}), "the second call raised alike"
    return {item.function: item for item in raised}


def line_of(name: str) -> int:
    """Return the marked line."""
    return next(at for at, text in enumerate(PROGRAM.splitlines(), 1) if text.endswith(f"# line: {name}"))


def test_a_wrong_fake_kernel_is_named_with_both_strides(items: dict[str, Item]) -> None:
    item = items["wrong_strides"]
    assert item.place is not None
    assert item.place.line == line_of("wrong_strides")
    expected = "raising.turned.default returns stride 1 of dimension 0 (declared: 4), stride 3 of dimension 1"
    assert item.facts[0].startswith(expected)
    assert "torch.library.opcheck" in item.advice[0]


@pytest.mark.parametrize(
    ("function", "problem", "raised_at"),
    [
        ("failing_kernel", "TypeError", "kernel"),
        ("asserted", "too small", None),
        ("failing_backend", "ZeroDivisionError", "backend"),
    ],
)
def test_the_operation_and_its_line_are_named(
    items: dict[str, Item], function: str, problem: str, raised_at: str | None
) -> None:
    item = items[function]
    assert problem in item.facts[0]
    assert item.place is not None
    if function != "failing_backend":  # which runs no operation
        assert item.place.line == line_of(function)
    raised = [fact for fact in item.facts if fact.startswith("raised at")]
    assert raised == ([] if raised_at is None else [f"raised at program.py:{line_of(raised_at)}"])


@pytest.mark.parametrize("function", ["backward_of_eager", "backward_of_inductor"])
def test_a_backward_pass_that_raises_names_the_forward_line(items: dict[str, Item], function: str) -> None:
    item = items[function]
    assert item.title.startswith(f"{function} raised TypeError in a backward pass")
    assert item.place is not None
    assert item.place.line == line_of(function)
    assert "in raising.failing.default" in item.facts
    assert f"raised at program.py:{line_of('kernel')}" in item.facts
    assert [each.line for each in item.callers] == [line_of("backward")]


def test_what_the_program_raises_itself_is_not_the_graphs(items: dict[str, Item]) -> None:
    """An exception that the program handles in the call is not the graph's either."""
    trained = {"backward_of_eager", "backward_of_inductor"}
    assert set(items) == {"wrong_strides", "failing_kernel", "asserted", "failing_backend", *trained}
