"""Small tensors show their elements in their rows in each call; computing these has no effect on the program."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.client.environments import alone
from tests.client.fixtures import Fixture
from tests.client.session import Session

PROGRAM = """
import torch

calls = []

@torch.library.custom_op("rows::noted", mutates_args=())
def noted(x: torch.Tensor) -> torch.Tensor:
    calls.append(1)
    return x + 1

@noted.register_fake
def _(x):
    return torch.empty_like(x)

@torch.compile(backend="BACKEND")
def small(x, wide, table):
    y = x.sin()
    loss = (y * wide[:3]).sum()
    table["loss"] = loss
    x.add_(1)
    z = x * 2
    w = torch.rand(3)
    return z * w + loss  #@small

@torch.compile(backend="BACKEND")
def custom(x):
    y = noted(x)
    z = y * 2
    return z  #@custom

torch.manual_seed(0)
for number in range(3):
    print(small(torch.arange(3.) + number, torch.ones(100), {}).tolist(), custom(torch.zeros(2)).tolist())
print(len(calls), torch.rand(1).item())
"""


@pytest.mark.parametrize("backend", ["eager", "inductor"])
def test_small_tensors_show_their_elements(session: Session, tmp_path: Path, backend: str) -> None:
    (tmp_path / "program.py").write_text(PROGRAM.replace("BACKEND", backend))
    program = Fixture(tmp_path / "program.py")
    plain = alone(program.path)
    session.launch(program, "small", "custom")
    for number in range(3):
        local = session.wait_for_stop("breakpoint", at="small").frame["Locals"].texts()
        assert local["z"] == f"Tensor f32[3] cpu = {[2.0 * (number + index + 1) for index in range(3)]}"
        assert local["wide"] == "Tensor f32[100] cpu all 1"
        assert local["table"].startswith("{'loss': Tensor f32[] cpu = ")
        session.resume()
        local = session.wait_for_stop("breakpoint", at="custom").frame["Locals"].texts()
        assert local["z"] == "Tensor f32[2] cpu", "the program's own operator is not called for a row"
        session.resume()
    assert session.wait_for_exit() == 0
    assert session.output("stdout") == plain.stdout
