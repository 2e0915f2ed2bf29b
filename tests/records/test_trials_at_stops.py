"""The scope *Fixes* at data-dependent graph breaks: each trial predicts what torch does with the fix."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dynamo_dap.protocol.requests.sizes import FIXES_SCOPE
from tests.client import Session
from tests.client.environments import alone
from tests.client.fixtures import Fixture
from tests.records.test_graph_break_stops import launch

pytestmark = pytest.mark.timeout(300)

SCALARS = "torch._dynamo.config.capture_scalar_outputs = True"
SHAPES = "torch._dynamo.config.capture_dynamic_output_shape_ops = True"
CAPTURED = """\
import json

import torch
from torch._dynamo.utils import counters


def normalized(x):
    return x / x.abs().max().item()  #@scaled


@torch.compile(backend="eager")
def clip(x):
    return normalized(x + 1).clamp(max=0.5)


@torch.compile(backend="eager")
def crop(x, lengths):
    length = lengths.max().item()  #@cropped
    if length == 0:
        return x
    return x + length


@torch.compile(backend="eager")
def pool(x, mask):
    rows = mask.nonzero().squeeze(-1)  #@pooled
    return x[rows].sum() * x.sum().item()


@torch.compile(backend="eager")
def report(x):
    total = x.sum().item()  #@reported
    torch._dynamo.graph_break()
    return x * total


def settings():
    names = ("capture_scalar_outputs", "capture_dynamic_output_shape_ops")
    return [torch._dynamo.config._config[name].user_override.get() for name in names]


graphs, before, x = {}, settings(), torch.arange(4.0)
calls = {clip: (), crop: (torch.tensor([2, 3]),), pool: (x > 1,), report: ()}
for function, arguments in calls.items():
    counters.clear()
    result = function(x, *arguments).sum().item()
    graphs[function.__name__] = [result, counters["stats"]["unique_graphs"]]
assert all(now is then for now, then in zip(settings(), before)), "no setting is made, not even to its default"
print(json.dumps(graphs))
"""


def test_a_setting_is_tried_at_the_stop(session: Session, tmp_path: Path) -> None:
    program = tmp_path / "captured.py"
    program.write_text(CAPTURED, encoding="utf-8")
    plain = alone(program).stdout
    line = Fixture(program).line
    names = {line(name): name for name in ("scaled", "cropped", "pooled", "reported")}
    launch(session, program, "graph-break")
    tried: dict[str, dict[str, str]] = {}
    while len(tried) < len(names):
        frame = session.wait_for_stop("exception").frames[0]
        if (name := names.get(frame.line)) is not None and name not in tried:
            tried[name] = frame[FIXES_SCOPE].texts()
        if len(tried) == len(names):
            session.request("setExceptionBreakpoints", {"filters": []})
        session.resume()
    assert session.wait_for_exit() == 0
    assert session.output("stdout") == plain, "the trials leave nothing"
    assert all(list(texts) == [SHAPES if name == "pooled" else SCALARS] for name, texts in tried.items())
    assert tried["scaled"][SCALARS].startswith("passes: ")
    check = f"torch._check(length != 0) at captured.py:{line('cropped') + 1}"
    assert tried["cropped"][SCALARS].startswith(f"passes, with {check}: ")
    assert tried["pooled"][SHAPES].startswith("helps, up to")
    assert f"break at captured.py:{line('pooled') + 1}: " in tried["pooled"][SHAPES]
    assert tried["reported"][SCALARS].startswith("helps, up to")

    def really(setting: str, text: str = CAPTURED) -> dict[str, int]:
        """Return the number of graphs of each function with the setting, and check that the results are the same."""
        program.write_text(text.replace("import counters\n", f"import counters\n\n{setting}\n"), encoding="utf-8")
        found = json.loads(alone(program).stdout)
        assert {name: one[0] for name, one in found.items()} == {
            name: one[0] for name, one in json.loads(plain).items()
        }
        return {name: one[1] for name, one in found.items()}

    scalars = really(SCALARS)
    assert (scalars["clip"], scalars["crop"], scalars["report"]) == (1, 2, 2)
    assert (
        really(SCALARS, CAPTURED.replace("    if length", "    torch._check(length != 0)\n    if length"))["crop"] == 1
    )
    assert really(SHAPES)["pool"] == 2, "item() still breaks the graph"


BRANCHES = """\
import torch


def scaled(x):
    if x.sum() > 2:  #@called
        return x * 2
    return x


class Gate(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)

    def forward(self, x):
        out = self.linear(x)
        out = out.relu() if out.mean() > 0 else out  #@method
        return out + 1


@torch.compile(backend="eager")
def by_function(x):
    return scaled(x).cos()


@torch.compile(backend="eager")
def by_closure(x, factor):
    def chosen(y):
        if y.max() > factor:  #@nested
            return y * factor
        return y

    return chosen(x) + 1


@torch.compile(backend="eager")
def rows_of(x, mask):
    found = mask.nonzero()
    return padded(x, found)


def padded(x, found):
    if found.shape[0] == 0:  #@numbers
        return x
    return x + 1


@torch.compile(backend="eager")
def other_ranks(x):
    if x.sum() > 0:  #@ranks
        return x[None]
    return x


torch.manual_seed(0)
torch._dynamo.config.capture_dynamic_output_shape_ops = True
gate = torch.compile(Gate(), backend="eager")
x = torch.ones(4)
with torch.no_grad():
    for function in (by_function, gate, lambda x: by_closure(x, 0.5), lambda x: rows_of(x, x > 0), other_ranks):
        print(function(x).sum().item())
"""
CONDS = {
    "called": (
        "    if x.sum() > 2:  #@called\n        return x * 2\n    return x\n",
        "    return torch.cond(x.sum() > 2, lambda: x * 2, lambda: x.clone())\n",
    ),
    "method": (
        "out.relu() if out.mean() > 0 else out",
        "torch.cond(out.mean() > 0, lambda: out.relu(), lambda: out.clone())",
    ),
    "nested": (
        "        if y.max() > factor:  #@nested\n            return y * factor\n        return y\n",
        "        return torch.cond(y.max() > factor, lambda: y * factor, lambda: y.clone())\n",
    ),
    "numbers": (
        "    if found.shape[0] == 0:  #@numbers\n        return x\n    return x + 1\n",
        "    return torch.cond(found.shape[0] == 0, lambda: x.clone(), lambda: x + 1)\n",
    ),
    "ranks": (
        "    if x.sum() > 0:  #@ranks\n        return x[None]\n    return x\n",
        "    return torch.cond(x.sum() > 0, lambda: x[None], lambda: x.clone())\n",
    ),
}
"""For each marker: the branch, and its replacement."""


def test_a_branch_becomes_a_cond_also_in_a_called_function(session: Session, tmp_path: Path) -> None:
    program = tmp_path / "branches.py"
    program.write_text(BRANCHES, encoding="utf-8")
    plain = alone(program).stdout
    launch(session, program, "graph-break")
    tried: dict[str, str] = {}
    while len(tried) < len(CONDS):
        frame = session.wait_for_stop("exception").frames[0]
        if frame.marker in CONDS and frame.marker not in tried:
            tried[frame.marker] = frame[FIXES_SCOPE].texts()["torch.cond"]
        if len(tried) == len(CONDS):
            session.request("setExceptionBreakpoints", {"filters": []})
        session.resume()
    assert session.wait_for_exit() == 0
    assert session.output("stdout") == plain, "the trials leave nothing"
    passing = {name for name, text in tried.items() if text.startswith("passes: ")}
    assert passing == CONDS.keys() - {"ranks"}, tried
    assert tried["ranks"].startswith("does not help: ")

    text = BRANCHES.replace('backend="eager"', 'backend="eager", fullgraph=True')
    for name in passing:
        text = text.replace(*CONDS[name])
    program.write_text(text.replace("rows_of(x, x > 0), other_ranks", "rows_of(x, x > 0)"), encoding="utf-8")
    assert alone(program).stdout.splitlines() == plain.splitlines()[:-1]
    program.write_text(text.replace(*CONDS["ranks"]), encoding="utf-8")
    assert alone(program, check=False).returncode == 1


SIZED = """\
import torch

torch._dynamo.config.capture_scalar_outputs = True


@torch.compile(backend="eager", fullgraph=FULL)
def crop(x, lengths):
    count = lengths.max().item()
    if count < 0:  #@asked
        return x
    return x[:3] + count


print(crop(torch.ones(4), torch.tensor([1, 3])).sum().item())
"""


def test_a_number_is_checked_to_be_a_size(session: Session, tmp_path: Path) -> None:
    program = tmp_path / "sized.py"
    program.write_text(SIZED.replace("FULL", "False"), encoding="utf-8")
    plain = alone(program)
    launch(session, program, "graph-break")
    fixes = session.wait_for_stop("exception", at="asked").frames[0][FIXES_SCOPE].texts()
    session.resume()
    assert session.wait_for_exit() == 0
    assert session.output("stdout") == plain.stdout
    assert "_check_is_size" not in session.output("stderr"), "torch's warning is not about the program"
    check = "torch._check_is_size(count)"
    assert fixes[check].startswith("passes: ")
    fixed = SIZED.replace("FULL", "True").replace("    if count", f"    {check}\n    if count")
    program.write_text(fixed, encoding="utf-8")
    assert alone(program).stdout == plain.stdout
