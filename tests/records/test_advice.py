"""Advice names the user's line and a single cause, and says how torch behaves at its recompile limit."""

from __future__ import annotations

from pathlib import Path

import pytest

from dynamo_dap.records.advice.gathering import what_to_do
from dynamo_dap.records.advice.items import Item, Kind
from dynamo_dap.records.events import Record
from dynamo_dap.records.file import read_record
from dynamo_dap.records.folders import SUFFIX
from tests.client.environments import alone
from tests.client.fixtures import Fixture
from tests.records.test_reports import command

IN_TORCH = """\
import torch

weight = torch.nn.Parameter(torch.ones(3))
optimizer = torch.optim.SGD([weight], lr=0.1)


@torch.compile(backend="eager")
def train():
    weight.grad = torch.ones(3)
    optimizer.step()  #@breaks
    return weight.sum()


train()
"""
LIMIT = """\
import torch


@torch.compile(backend="eager", fullgraph=True, dynamic=False)
def doubled(x):
    return x * 2


for length in range(2, 12):
    try:
        doubled(torch.ones(length))
    except torch._dynamo.exc.FailOnRecompileLimitHit:
        break
"""


def _items(folder: Path, text: str) -> list[Item]:
    (folder / "program.py").write_text(text, encoding="utf-8")
    command("run", "program.py", folder=folder)
    return what_to_do(_record(folder))


def _record(folder: Path) -> Record:
    return read_record(next(folder.rglob(f"*{SUFFIX}")))


def test_a_break_inside_torch_is_at_the_users_line(tmp_path: Path) -> None:
    (item,) = _items(tmp_path, IN_TORCH)
    line = Fixture(tmp_path / "program.py").line("breaks")
    assert item.title.startswith(f"Graph break at program.py:{line}")
    assert item.place is not None
    assert (item.place.path, item.place.line) == (str(tmp_path / "program.py"), line)
    assert not item.advice, "torch's hints are about its own line"
    assert any("torch's own optimizer.py" in fact for fact in item.facts)
    assert (
        "optimizer.py" not in command("report", folder=tmp_path).stdout.partition("Graph break at")[2].splitlines()[0]
    )


def test_the_limit_under_fullgraph_makes_the_call_fail(tmp_path: Path) -> None:
    items = _items(tmp_path, LIMIT)
    limit = next(item for item in items if item.kind is Kind.LIMIT)
    assert "fails, because of fullgraph=True" in limit.title
    assert not any("eagerly" in text for item in items for text in (item.title, *item.facts, *item.advice))


def test_a_cause_has_one_entry_for_all_its_values(tmp_path: Path) -> None:
    (change,) = [item for item in _items(tmp_path, LIMIT) if item.kind is Kind.CHANGE]
    assert len(change.values) == len(set(change.values)) > 6


CUT = """\
import torch


@torch.compile(backend="eager")
def scaled(padded, lengths):
    longest = int(lengths.max())
    x = padded[:, :longest] * 1.0
    torch._dynamo.graph_break()
    return x + padded.shape[1]


for longest in (4, 6):
    scaled(torch.ones(2, 8), torch.tensor([2, longest]))
"""


def test_only_a_parameter_is_to_be_marked_as_dynamic(tmp_path: Path) -> None:
    """A local variable from before a graph break is made inside the compiled function, where nobody can mark it."""
    changed = [item for item in _items(tmp_path, CUT) if item.subject == "size 1 of x"]
    assert [("before a graph break" in each, "mark_dynamic" in each) for each in changed[0].advice] == [(True, False)]


LOGGING = """\
import torch


class Gate(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.log = []

    def forward(self, x):
        if x.max() > 0.9:
            x = x * 0.5
        self.log.append(x.shape[0])
        return x.sum(-1)


gate = torch.compile(Gate(), backend="eager")
for _ in range(3):
    gate(torch.ones(4, 8))
"""


def test_an_attribute_was_not_computed_before_the_break(tmp_path: Path) -> None:
    changed = [item for item in _items(tmp_path, LOGGING) if item.subject == "len(self.log)"]
    assert changed
    assert not any("before a graph break" in each for item in changed for each in item.advice)


DECODER = """\
import torch


@torch.compile(backend="eager")
def step(x, past):
    keys = torch.cat([past, x])
    if keys.shape[0] CONDITION:  #@asked
        keys = keys * 1.0
    return keys


past = torch.ones(4, 2)
for _ in range(6):
    torch._dynamo.mark_dynamic(past, 0OPTIONS)
    past = step(torch.ones(1, 2), past)
print(past.sum().item())
"""


@pytest.mark.parametrize(("condition", "options"), [("== 8", ""), ("% 8 == 0", ", min=2, max=64")])
def test_a_declaration_that_a_line_contradicts_names_the_line(tmp_path: Path, condition: str, options: str) -> None:
    text = DECODER.replace("CONDITION", condition).replace("OPTIONS", options)
    program = tmp_path / "program.py"
    program.write_text(text, encoding="utf-8")
    assert alone(program, check=False).returncode == 1
    command("run", "program.py", folder=tmp_path, check=False)
    (item,) = [one for one in what_to_do(_record(tmp_path)) if one.kind is Kind.FAILED]
    assert item.place is not None
    assert (item.place.path, item.place.line) == (str(program), Fixture(program).line("asked"))
    assert any("maybe_mark_dynamic instead of mark_dynamic" in advice for advice in item.advice)
    program.write_text(text.replace(f"mark_dynamic(past, 0{options})", "maybe_mark_dynamic(past, 0)"), encoding="utf-8")
    assert alone(program).stdout == "20.0\n", "the advice helps"
