"""A data-dependent break shows its condition in the user's names, the origin of the number, and its value."""

from __future__ import annotations

import json
import os
import re
import subprocess
import types
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from dynamo_dap.commands.schema import schema_of
from dynamo_dap.debuggee.agent import serving  # noqa: F401  (registers the handlers)
from dynamo_dap.debuggee.agent.requests import HANDLERS
from dynamo_dap.debuggee.history.remedies import Remedies
from dynamo_dap.debuggee.values.model import Deferred
from dynamo_dap.protocol.requests.contract import RECORDS_VARIABLE
from dynamo_dap.protocol.requests.sizes import FIXES_SCOPE
from dynamo_dap.protocol.wire.types import VariablesArguments
from dynamo_dap.records.file import read_record
from dynamo_dap.records.folders import SUFFIX
from dynamo_dap.records.model import GraphBreak
from tests.client import Session
from tests.client.environments import alone, own_command
from tests.client.fixtures import Fixture
from tests.client.timeline import DEADLINE
from tests.records.data_dependent import CASES, fixed_program, write_program
from tests.records.test_graph_break_stops import info_of, launch

pytestmark = pytest.mark.timeout(300)

ROUTER = """\
import torch

torch._dynamo.config.capture_dynamic_output_shape_ops = True


class Router(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.experts = torch.nn.ModuleList(torch.nn.Linear(4, 4) for _ in range(2))

    def forward(self, x, kinds):
        out = torch.zeros_like(x)
        for number, expert in enumerate(self.experts):
            rows = self.rows_of(kinds, number)
            if rows.shape[0] == 0:  #@branch
                continue
            out[rows] = expert(x[rows])
        return out

    def rows_of(self, kinds, number):
        return (kinds == number).nonzero().squeeze(-1)  #@made


model = torch.compile(Router(), backend="aot_eager", fullgraph=True)
for kinds in (torch.tensor([0, 1, 1, 0, 0, 1]), torch.tensor([0, 0, 0, 0, 0, 1])):
    out = model(torch.randn(6, 4), kinds)
    out.sum().backward()
    print(out.sum().item())
"""


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write a program with every case."""
    return write_program(tmp_path_factory.mktemp("data"))


def _run(program: Path, *command: str, typed: str | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*own_command(), *command],
        env={**os.environ, RECORDS_VARIABLE: str(program.parent / "records"), "PYTHONUNBUFFERED": "1"},
        cwd=program.parent,
        input=typed,
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
    )


def _breaks(program: Path) -> dict[int, GraphBreak]:
    (path,) = (program.parent / "records").rglob(f"*{SUFFIX}")
    found = [each for _, compiled in read_record(path).compiles() for each in compiled.breaks]
    return {each.place.line: each for each in found if each.place is not None}


def test_the_record_has_condition_and_origin(program: Path) -> None:
    ran = _run(program, "run", program.name)
    assert ran.returncode == 0, ran.stderr
    breaks, marked = _breaks(program), Fixture(program)
    for case in CASES:
        found = breaks[marked.line(case.name)]
        assert found.reason == f"Data-dependent condition: {case.condition}", case.name
        assert found.condition == (case.condition if case.is_named else None), case.name
        first = found.data[0]
        assert first.operation == case.operation, case.name
        assert first.place is not None
        assert first.place.line == marked.line(f"made_{case.name}" if case.is_named else case.name), case.name


def test_a_stop_has_the_numbers_of_this_call(session: Session, program: Path) -> None:
    plain = alone(program)
    launch(session, program, "graph-break")
    tried: dict[str, dict[str, str]] = {}
    for case in CASES:
        stop = session.wait_for_stop("exception", at=case.name)
        info: dict[str, Any] = info_of(session, stop)
        assert info["exceptionId"].partition(" [")[0] == f"Graph break: Data-dependent condition: {case.condition}"
        (values,) = [line for line in info["description"].splitlines() if line.startswith("In this call: ")]
        assert re.sub(r" \(\S+ … \S+\)", "", values) == f"In this call: {case.values}.", case.name
        assert "This line calls" not in info["description"], "the user's own line asks"
        tried[case.name] = stop.frames[0][FIXES_SCOPE].texts()
        session.resume()
    assert session.wait_for_exit() == 0
    assert session.output("stdout") == plain.stdout, "nothing of the trials is left"
    assert list(tried["unnamed"]) == ["(none)"]
    _fixes_do_what_the_stop_says(program.parent, tried)


def _fixes_do_what_the_stop_says(folder: Path, tried: dict[str, dict[str, str]]) -> None:
    """Apply each fix to the text, with ``fullgraph=True``: torch must compile it exactly if its trial passed."""
    fixes = {
        (case.name, fix): text
        for case in CASES
        for fix, text in tried[case.name].items()
        if fix.startswith(("torch._check", "guard_or_false", "statically_known_true", "torch.cond"))
    }
    assert sum(fix.startswith("statically_known_true") for _, fix in fixes) == len(tried) - 1
    assert sum(fix == "torch.cond" for _, fix in fixes) == len(tried) - 1
    assert len(fixes) > 3 * len(tried) - 4
    (folder / "fixed.py").write_text(fixed_program(list(fixes)), encoding="utf-8")
    ran = alone(folder / "fixed.py", cwd=folder, check=False)
    assert ran.returncode == 0, ran.stderr
    really = dict(zip(fixes, map(json.loads, ran.stdout.splitlines()), strict=True))
    for fix, text in fixes.items():
        passes = text.startswith("passes: ")
        assert really[fix]["compiles"] == passes, (fix, text, really[fix])
        if passes and text.endswith(("which holds in this call", "nor does this call", "in the graph")):
            assert really[fix]["is_as_eager"], (fix, text)
    assert fixes["sampler", "torch.cond"].startswith("does not help: "), "its sides have other shapes"
    changing = [really[fix] for fix, text in fixes.items() if text.endswith("the result may change")]
    assert any(not one["is_as_eager"] for one in changing if one["compiles"])


def test_a_fix_is_right_only_if_the_program_gives_what_python_gives(tmp_path: Path) -> None:
    """The program fails without a fix, so its result is compared with that of ordinary Python."""
    program = tmp_path / "router.py"
    program.write_text(ROUTER, encoding="utf-8")
    assert _run(program, "run", program.name).returncode == 1
    tried = _run(program, "fix", f"router.py:{Fixture(program).line('branch')}", "--json")
    assert tried.returncode == 0, tried.stderr
    printed = json.loads(tried.stdout)
    jsonschema.Draft202012Validator(schema_of("fix")).validate(printed)
    trials = {each["title"].rpartition(": ")[2]: each for each in printed}
    assert not trials["torch._check(rows.shape[0] == 0)"]["isProven"]
    assert trials["torch._check(rows.shape[0] != 0)"]["isProven"]
    assert trials["guard_or_false(rows.shape[0] == 0)"]["isProven"]
    assert all(each["reference"] == "ordinary Python" for each in trials.values())


def test_no_time_limit_interrupts_the_trials_of_a_large_model() -> None:
    """The scope that a real stop makes, as the handler of ``variables`` finds it."""
    condition: Any = None
    scope = Remedies(*[condition] * 3).scope(condition, condition, "0/0")
    for children, is_bounded in ((scope.children, False), (Deferred(list), True)):
        found: Any = types.SimpleNamespace(variables=lambda number, children=children: (children, None))
        agent: Any = types.SimpleNamespace(references=found)
        assert HANDLERS["variables"].is_bounded(agent, VariablesArguments(variables_reference=1)) == is_bounded


PROMISED = """\
import torch

torch._dynamo.config.capture_scalar_outputs = True


@torch.compile(backend="eager")
def fn(x):
    n = x.sum().item()
    torch._check(n % 4 == 0)
    torch._check(n < x.shape[0] * 9)
    if n > 9:  #@asked
        return x
    return -x


print(fn(torch.ones(8, dtype=torch.int64)).sum().item())
"""


@pytest.mark.parametrize(("is_full", "name"), [(False, "graph-break"), (True, "unsupported")])
def test_a_stop_says_what_is_known_of_the_number(session: Session, tmp_path: Path, is_full: bool, name: str) -> None:
    program = tmp_path / "promised.py"
    program.write_text(PROMISED.replace('"eager"', f'"eager", fullgraph={is_full}'), encoding="utf-8")
    session.expects_program_traceback = is_full
    launch(session, program, name)
    described = info_of(session, session.wait_for_stop("exception", at="asked"))["description"].splitlines()
    (result,) = (line for line in described if line.startswith("n is the result of item"))
    assert result.endswith(" at promised.py:8.")
    assert "In this call: n = 8 (-∞ … 71)." in described
    assert "Known from torch._check: (n % 4) == 0, n < 72." in described
    session.resume()
    assert session.wait_for_exit() == int(is_full)


GATED = """\
import torch


@torch.compile(backend="eager", fullgraph=True)
def gate(x):
    # Small inputs stay as they are.
    if x.sum() > 2:  # large  #@gate
        return x * 2
    return x


@torch.compile(backend="eager", fullgraph=True)
def chosen(x):
    y = x + 1 if x.mean() > 0.5 else x - 1  #@chosen
    return y.cos()


for x in (torch.ones(4), torch.zeros(4)):
    print(FUNCTION(x).sum().item())
"""


@pytest.mark.parametrize("function", ["gate", "chosen"])
def test_a_branch_on_a_tensor_becomes_a_cond(tmp_path: Path, function: str) -> None:
    program = tmp_path / "gated.py"
    program.write_text(GATED.replace("FUNCTION", function), encoding="utf-8")
    python = _printed(program, {**os.environ, "TORCHDYNAMO_DISABLE": "1"})
    assert _run(program, "run", program.name).returncode == 1
    tried = _run(program, "fix", f"gated.py:{Fixture(program).line(function)}", "--apply")
    assert tried.returncode == 0, tried.stdout + tried.stderr
    assert "It helps, and" in tried.stdout
    assert "result is that of ordinary Python" in tried.stdout
    text = program.read_text(encoding="utf-8")
    assert "torch.cond(x." in text
    assert "# large" in text or function != "gate", "comments stay"
    assert _printed(program, dict(os.environ)) == python


def _printed(program: Path, environment: dict[str, str]) -> str:
    return alone(program, env=environment).stdout


TWICE = """\
import torch

torch._dynamo.config.capture_dynamic_output_shape_ops = True
torch._dynamo.config.capture_scalar_outputs = True


@torch.compile(backend="eager", fullgraph=True)
def fn(x, mask):
    found = mask.nonzero()
    if found.shape[0] == 0:  #@first
        return x
    if found.shape[0] > 2:  #@second
        return x + found.shape[0]
    return x - 1


@torch.compile(backend="eager", fullgraph=True)
def sized(x, mask):
    count = mask.sum().item()
    if count >= 0:  #@sized
        return x * 2
    return x


print(FUNCTION(torch.ones(4), torch.arange(4) > 0).sum().item())
"""


def _tried(tmp_path: Path, function: str, line: str) -> dict[str, dict[str, Any]]:
    program = tmp_path / "twice.py"
    program.write_text(TWICE.replace("FUNCTION", function), encoding="utf-8")
    assert _run(program, "run", program.name).returncode == 1
    tried = _run(program, "fix", f"twice.py:{Fixture(program).line(line)}", "--json")
    assert tried.returncode == 0, tried.stdout + tried.stderr
    return {each["title"].rpartition(": ")[2]: each for each in json.loads(tried.stdout)}


def test_a_check_that_needs_another_one_is_tried_with_it(tmp_path: Path) -> None:
    trials = _tried(tmp_path, "fn", "first")
    by_itself = trials["torch._check(found.shape[0] != 0)"]
    line = Fixture(tmp_path / "twice.py").line("second") + 1  # below the check
    assert not by_itself["isProven"]
    further = f"needs a further check: found.shape[0] > 2 at twice.py:{line}"
    assert by_itself["verdict"] == f"The trace gets further, and {further}"
    assert trials["torch._check(found.shape[0] != 0), and torch._check(found.shape[0] > 2)"]["isProven"]
    assert not trials["torch._check(found.shape[0] != 0), and torch._check(found.shape[0] <= 2)"]["isProven"]
    assert "needs a further check: found.shape[0] > 2" in trials["guard_or_false(found.shape[0] == 0)"]["verdict"]
    assert (
        "needs a further check: found.shape[0] > 2" in trials["statically_known_true(found.shape[0] == 0)"]["verdict"]
    )


def test_a_number_is_assumed_to_be_a_size(tmp_path: Path) -> None:
    trials = _tried(tmp_path, "sized", "sized")
    assert trials["torch._check_is_size(count)"]["isProven"]
    assert not trials["torch._check(count < 0)"]["isProven"]
    assert not trials["statically_known_true(count >= 0)"]["isProven"], "the branch is taken: the result is another"


PENDING = """\
import torch

torch._dynamo.config.capture_dynamic_output_shape_ops = True


@torch.library.custom_op("mine::take", mutates_args=())
def take(x: torch.Tensor, count: torch.Tensor) -> torch.Tensor:
    return x[: int(count.item())].clone()


@take.register_fake
def _(x, count):
    rows = torch.library.get_ctx().new_dynamic_size()  #@made
    rows = torch.library.get_ctx().new_dynamic_size()
    return x.new_empty(rows, *x.shape[1:])


@torch.compile(backend="eager")
def step(x, count):
    return take(x + 1, count).sum()  #@asked


print(step(torch.ones(4), torch.tensor(2)).item())
"""


def test_a_number_that_an_operation_does_not_return_stops_and_is_reported(session: Session, tmp_path: Path) -> None:
    program = tmp_path / "pending.py"
    program.write_text(PENDING, encoding="utf-8")
    marked = Fixture(program)
    made = f"u0 was made at pending.py:{marked.line('made')}."
    session.expects_program_traceback = True
    launch(session, program, "unsupported")
    stop = session.wait_for_stop("exception", at="asked")
    info: dict[str, Any] = info_of(session, stop)
    assert info["exceptionId"] == "Number not returned: u0"
    assert made in info["description"].splitlines()
    session.resume()
    assert session.wait_for_exit() == 1

    assert _run(program, "run", program.name).returncode == 1
    (path,) = (program.parent / "records").rglob(f"*{SUFFIX}")
    ((_, compiled),) = read_record(path).compiles()
    assert compiled.problem is not None
    assert made in compiled.problem.splitlines()

    lines = PENDING.splitlines(keepends=True)
    del lines[marked.line("made") - 1]
    program.write_text("".join(lines), encoding="utf-8")
    assert _run(program, "run", program.name).stdout.startswith("4.0")


FOUND = """\
import torch

torch._dynamo.config.capture_dynamic_output_shape_ops = True


@torch.compile(backend="eager")
def fn(x, mask):
    found = mask.nonzero()  #@made
    y = x + 1  #@after
    if found.shape[0] > 1:  #@asked
        if found.shape[0] > 2:  #@again
            return y
    return x


print(fn(torch.ones(3), torch.ones(3) > 0).sum().item())
"""


def test_a_stop_goes_back_to_where_the_number_was_made(tmp_path: Path) -> None:
    program = tmp_path / "found.py"
    program.write_text(FOUND, encoding="utf-8")
    lines = Fixture(program)
    typed = "try\norigin u0 made\norigin u7 made\nc\nc\nq\ny\n"
    ran = _run(program, "debug", "--catch", "graph-break", program.name, typed=typed)
    at_break, back = ran.stdout.split("(dynamo) origin u0 made")
    assert f"in fn at found.py:{lines.line('asked')}" in at_break
    assert f"back in fn at found.py:{lines.line('made')}" in back
    assert "no statement of this trace has" in back
    assert "has added a node 'u7'" in back
    assert f"in fn at found.py:{lines.line('asked')}" in back, "forward again to where the trace stands"
    assert "6.0" in back
    tried = {name: text for name, _, text in (line.strip().partition(" = ") for line in at_break.splitlines())}
    further = f"passes, with torch._check(found.shape[0] > 2) at found.py:{lines.line('again')}: the trace reaches"
    assert tried["torch._check(found.shape[0] > 1)"].startswith(further)
    assert tried["guard_or_false(found.shape[0] > 1)"].startswith("passes: the trace")
    assert "reaches its end" in tried["guard_or_false(found.shape[0] > 1)"]
