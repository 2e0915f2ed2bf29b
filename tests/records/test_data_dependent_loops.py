"""Loops that depend on data: over the lengths of a ragged batch, and over a number of steps in a tensor."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dynamo_dap.protocol.requests.sizes import FIXES_SCOPE
from dynamo_dap.records.advice.gathering import what_to_do
from dynamo_dap.records.file import read_record
from dynamo_dap.records.folders import SUFFIX
from tests.client import Session
from tests.client.environments import alone
from tests.client.fixtures import Fixture
from tests.records.test_graph_break_stops import info_of, launch
from tests.records.test_reports import command

pytestmark = pytest.mark.timeout(300)

STEPS = """\
import torch

torch._dynamo.config.capture_scalar_outputs = True


@torch.compile(backend="eager", fullgraph=True)
def refine(x, budget):
    steps = budget.max().item()  #@made
    for _ in range(steps):  #@looped
        x = x - 0.5 * (x - x.mean())
    return x


print(refine(torch.arange(4.0), torch.tensor([1, 3])).sum().item())
"""


def test_a_loop_that_needs_the_number_of_a_tensor(session: Session, tmp_path: Path) -> None:
    program = tmp_path / "steps.py"
    program.write_text(STEPS, encoding="utf-8")
    line = Fixture(program).line
    session.expects_program_traceback = True
    launch(session, program, "unsupported")
    stop = session.wait_for_stop("exception", at="looped")
    info: dict[str, Any] = info_of(session, stop)
    assert info["exceptionId"].partition(" [")[0] == "Graph break: Data-dependent number: steps"
    described = info["description"].splitlines()
    assert described[0].startswith("Dynamo has to know steps ")
    (origin,) = (text for text in described if text.startswith("steps is the result of item"))
    assert origin.endswith(f" at steps.py:{line('made')}.")
    assert "In this call: steps = 3." in described
    assert any(text.startswith("Hint (not tried): ") and "torch.while_loop" in text for text in described)
    tried = stop.frame[FIXES_SCOPE].texts()
    assert list(tried) == ["torch._check(steps == 3)"]
    assert tried["torch._check(steps == 3)"].startswith("passes: ")
    assert tried["torch._check(steps == 3)"].endswith("which holds in this call")
    session.resume()
    assert session.wait_for_exit() == 1

    command("run", program.name, folder=tmp_path, check=False)
    (item,) = what_to_do(read_record(next((tmp_path / "records").rglob(f"*{SUFFIX}"))))
    assert item.subject == "Data-dependent number: steps"
    assert any("give it as an int" in advice for advice in item.advice)
    assert not any("_check" in advice for advice in item.advice), "the number is not a condition"
    fixed = STEPS.replace("    for _", "    torch._check(steps == 3)\n    for _")
    program.write_text(fixed, encoding="utf-8")
    assert alone(program).stdout == "6.0\n"


RAGGED = """\
import torch
import torch.nn.functional as F

torch._dynamo.config.capture_scalar_outputs = True


@torch.compile(backend="eager", fullgraph=True)
def attend(q, k, v, lengths):
    out = []
    start = 0
    for n in lengths.tolist():  #@made
        parts = (each[:, start : start + n] for each in (q, k, v))
        if n > 0:  #@asked
            out.append(F.scaled_dot_product_attention(*parts))
        start = start + n
    return torch.cat(out, dim=1)


q = torch.arange(144.0).reshape(2, 9, 8)
print(attend(q, q, q, torch.tensor([3, 2, 4])).shape)
"""


def test_a_ragged_batch_names_the_length_and_what_lets_each_pass(session: Session, tmp_path: Path) -> None:
    """A generator uses the length as well, so it is in a cell."""
    program = tmp_path / "ragged.py"
    program.write_text(RAGGED, encoding="utf-8")
    session.expects_program_traceback = True
    launch(session, program, "unsupported")
    stop = session.wait_for_stop("exception", at="asked")
    info: dict[str, Any] = info_of(session, stop)
    assert info["exceptionId"].partition(" [")[0] == "Graph break: Data-dependent condition: n > 0"
    assert "In this call: n = 3." in info["description"]
    tried = stop.frame[FIXES_SCOPE].texts()
    assert tried["torch._check(n > 0)"].startswith("passes: ")
    # Without any part, torch.cat has nothing to join.
    assert tried["guard_or_false(n > 0)"].startswith("leads to an error at ragged.py:")
    session.resume()
    assert session.wait_for_exit() == 1
    program.write_text(RAGGED.replace("        if n > 0:", "        torch._check(n > 0)\n        if n > 0:"))
    assert alone(program).stdout == "torch.Size([2, 9, 8])\n"
    program.write_text(RAGGED.replace("if n > 0:", "if torch.fx.experimental.symbolic_shapes.guard_or_false(n > 0):"))
    assert alone(program, check=False).returncode == 1
