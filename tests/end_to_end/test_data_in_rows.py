"""Small tensors show their elements in their rows in each call; computing these has no effect on the program."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dynamo_dap.protocol.requests.contract import TENSOR
from tests.client.environments import alone
from tests.client.fixtures import Fixture
from tests.client.session import Frame, Session, Tree

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
    half = w[:2] / 2
    zeros = torch.zeros(4)
    tail = zeros[2:]
    tail.copy_(half)
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


UNSET = """
import torch

@torch.compile
def pad(rows, scale):
    padded = torch.empty(3, 4)
    for number, row in enumerate(rows):
        padded[number, : row.numel()] = row * scale
    total = padded.sum(1)
    copied = torch.empty_like(rows[0])
    copied.copy_(rows[0] * scale)
    return padded[:, :2].sum(1), copied, total.shape  #@last

for number in range(4):
    print(pad([torch.ones(4), torch.ones(2), torch.ones(3)], float(number)))
"""


def page(session: Session, of: Tree | Frame, **arguments: str) -> dict[str, Any]:
    """Return what the tensor viewer asks for: of a row, or of an expression in a frame."""
    is_row = isinstance(of, Tree)
    where = {"variablesReference": of.variable.variables_reference} if is_row else {"frameId": of.data.id}
    return session.request(TENSOR, {**where, "show": "statistics", **arguments})


def test_rows_do_not_claim_what_no_operation_has_set(session: Session, tmp_path: Path) -> None:
    """The debugger's run has other contents in unset memory than the program's call, compiled or cached."""
    (tmp_path / "program.py").write_text(UNSET)
    program = Fixture(tmp_path / "program.py")
    plain = alone(program.path)
    session.launch(program, "last")
    for number in range(4):
        stop = session.wait_for_stop("breakpoint", at="last")
        shown = stop.frame["Locals"]
        assert shown["copied"].text == f"Tensor f32[4] cpu = {[float(number)] * 4}"
        assert "not proven" not in shown["copied"].children
        for name in ("padded", "total"):
            assert shown[name].text.endswith("(not proven)")
            assert "no operation has set" in shown[name]["not proven"].text
        assert stop.frame.evaluate("copied.sum().item()").text == str(4.0 * number)
        for expression in ("padded.sum()", "padded.sum().item()"):
            assert stop.frame.evaluate(expression).text.endswith("(not proven)")
        assert "note" not in page(session, shown["copied"])
        assert "note" not in page(session, stop.frame, expression="copied + 1")
        (value,) = shown["padded"]["value"].children.values()
        of_rows = [page(session, shown["padded"]), page(session, value)]
        for found in (*of_rows, page(session, stop.frame, expression="padded * 2")):
            assert found["note"].startswith("not proven")
        assert page(session, stop.frame, expression="copied", minus="copied * 1").get("note") is None
        assert page(session, stop.frame, expression="copied", minus="padded[1]")["note"].startswith("not proven")
        session.resume()
    assert session.wait_for_exit() == 0
    assert session.output("stdout") == plain.stdout


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
        drawn = {name for name, text in local.items() if text.endswith("(not proven)")}
        assert drawn == ({"w", "half", "zeros", "tail"} if backend == "inductor" else set()), "Inductor draws its own"
        session.resume()
        local = session.wait_for_stop("breakpoint", at="custom").frame["Locals"].texts()
        assert local["z"] == "Tensor f32[2] cpu", "the program's own operator is not called for a row"
        session.resume()
    assert session.wait_for_exit() == 0
    assert session.output("stdout") == plain.stdout
