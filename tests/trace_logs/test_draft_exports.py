"""A report on the trace log of ``torch.export.draft_export``: its problems are at their lines, and the advice helps."""

from __future__ import annotations

import os
from pathlib import Path

from dynamo_dap.commands.report import main
from dynamo_dap.records.advice.draft_exports import export_items
from dynamo_dap.records.advice.gathering import what_to_do
from dynamo_dap.records.advice.items import Item
from dynamo_dap.records.model import ExportProblem
from dynamo_dap.trace_logs.logs import chosen_log, read_trace
from tests.client.environments import alone

PROGRAM = """\
import torch

@torch.library.custom_op("mine::bare", mutates_args=())
def bare(x: torch.Tensor) -> torch.Tensor:
    return x * 2

@torch.library.custom_op("mine::wrong", mutates_args=())
def wrong(x: torch.Tensor) -> torch.Tensor:
    return x.sum(0)

@wrong.register_fake
def _(x):
    return torch.empty_like(x)

class Model(torch.nn.Module):
    def forward(self, x, n):
        y = bare(x)
        count = n.item()
        if count > 2:
            y = y + 1
        z = wrong(y)
        if x.shape[0] == 6:
            return z + 1
        return z

sizes = {"x": {0: torch.export.Dim("batch", min=2, max=64)}, "n": None}
torch.export.draft_export(Model(), (torch.ones(6, 4), torch.tensor(5)), dynamic_shapes=sizes)
"""
ADVISED = (
    ("class Model", 'torch.library.register_fake("mine::bare")(torch.empty_like)\n\nclass Model'),
    ("        if count > 2:", "        torch._check(count > 2)\n        if count > 2:"),
    ("return torch.empty_like(x)", "return x.new_empty(x.shape[1:])"),
    ('{0: torch.export.Dim("batch", min=2, max=64)}', "{0: torch.export.Dim.AUTO}"),
)


def _reported(folder: Path, text: str) -> list[Item]:
    folder.mkdir()
    (folder / "program.py").write_text(text)
    alone(folder / "program.py", env={**os.environ, "TORCH_DTRACE": str(folder / "logs")})
    return what_to_do(read_trace(chosen_log(folder / "logs")))


def test_each_problem_of_a_draft_export_is_at_its_line(tmp_path: Path) -> None:
    items = _reported(tmp_path / "before", PROGRAM)
    lines = PROGRAM.splitlines()
    assert [lines[item.place.line - 1].strip() for item in items if item.place] == [
        "y = bare(x)",
        "if count > 2:",
        "z = wrong(y)",
        "if x.shape[0] == 6:",
    ]
    bare, data, wrong, guard = items
    assert "mine::bare has no fake kernel" in bare.title
    assert data.advice[0].endswith("torch._check(count > 2)")
    assert "mine::wrong" in wrong.title
    assert guard.title.endswith("x.size()[0] == 6")


def test_the_advice_on_a_draft_export_helps(tmp_path: Path) -> None:
    text = PROGRAM
    for before, after in ADVISED:
        assert before in text
        text = text.replace(before, after)
    # The program still accepts one size only, which is now declared.
    (left,) = _reported(tmp_path / "after", text)
    assert left.title.endswith("x.size()[0] == 6")
    assert main([str(tmp_path / "after" / "logs")]) == 0


def test_an_assumption_in_sympys_words_is_not_given_as_python() -> None:
    for subject, is_python in (("count > 2", True), ("Eq(Mod(count, 2), 0)", False), ("u2 > 2", False)):
        (item,) = export_items([ExportProblem("propagate_real_tensors_provenance", subject)])
        assert (f"torch._check({subject})" in item.advice[0]) is is_python
