"""``dynamo-dap diff`` on real programs: planted differences are found at their line, and equal runs have none."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from dynamo_dap.commands.diff import main
from dynamo_dap.diff.comparing import compare_runs
from dynamo_dap.diff.model import JsonDiff
from dynamo_dap.diff.normal import normal_guard, normal_output
from dynamo_dap.diff.sides import CannotCompare, Run, command_of, read_side, side_of
from dynamo_dap.records.model import Guard
from tests.client.timeline import DEADLINE
from tests.client.zygote import python

PROGRAM = """\
import os
import torch

torch.manual_seed(0)

def helper(x):
    return x.relu() + 1

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(4, 4)
        self.scale = 2 * int(os.environ.get("SCALE", "1"))

    def forward(self, x, n):
        y = self.fc(x) * self.scale
        y = helper(y)
        if n > 1:
            y = y - n
        y = torch.nn.functional.dropout(y, 0.5, self.training)
        return y.sum()

model = Model()
compiled = torch.compile(model, backend="eager")
x = torch.ones(3, 4)
for n in (1, 2):
    print(compiled(x, n).item())
print("took", id(model) % 1000 / 100, "s")
"""
_INDUCTOR = ('backend="eager"', 'backend="inductor"')


@dataclass(frozen=True)
class Planted:
    """An edit of the program, and what the first difference is."""

    kind: str
    line: str
    """The text of the line at which it is reported; empty for none."""
    edits: tuple[tuple[str, str], ...] = ()
    before: tuple[tuple[str, str], ...] = ()
    """Edits of both programs."""
    variables: str = ""
    says: str = ""
    """Something in its text or its lines."""


_OTHER = 'torch.compile(helper, backend="eager")(torch.ones(2)); compiled = model; torch.compile(model'
_FC = "y = self.fc(x) * self.scale"
PLANTED = {
    "line": Planted("graph", "y = self.fc(x) * self.scale", (("* self.scale", "+ self.scale"),), says=" + 2"),
    "inlined line": Planted("graph", "return x.relu() + 1", (("x.relu() + 1", "x.relu() + 2"),), says="+ 2"),
    "operation": Planted("graph", "return y.sum()", (("y.sum()", "y.mean()"),), says="mean"),
    "dropout": Planted("graph", "y = torch.nn.functional.dropout(y, 0.5, self.training)", (("y, 0.5", "y, 0.4"),)),
    "break": Planted(
        "break", "print(); y = helper(y)", (("        y = helper(y)\n", "        print(); y = helper(y)\n"),)
    ),
    "dtype": Planted("guard", _FC, (("torch.ones(3, 4)", "torch.ones(3, 4).double(); model.double()"),), says="f64"),
    "shape": Planted("guard", _FC, (("ones(3, 4)", "ones(5, 4)"),), says="[5, 4]"),
    "mark_dynamic": Planted(
        "guard", _FC, (("x = torch.ones(3, 4)", "x = torch.ones(3, 4); torch._dynamo.mark_dynamic(x, 0)"),)
    ),
    "backend": Planted("function", "def forward", (('backend="eager"', 'backend="aot_eager"'),), says="aot_eager"),
    "attribute": Planted("guard", _FC, (("self.scale = 2 ", "self.scale = 3 "),), says="scale == 3"),
    "variable": Planted("guard", _FC, variables="SCALE=2 ", says="scale == 4"),
    "another call": Planted("recompile", "def forward", (("in (1, 2)", 'in (1, 2, "x"[:0] or 2.5)'),)),
    "config": Planted(
        "guard",
        "if n > 1:",
        (("torch.manual_seed(0)", "torch.manual_seed(0); torch._dynamo.config.automatic_dynamic_shapes = False"),),
    ),
    "seed": Planted("output", "", (("manual_seed(0)", "manual_seed(1)"),), says="line 1"),
    "eval": Planted(
        "guard", "y = torch.nn.functional.dropout", (("model = Model()", "model = Model().eval()"),), says="training"
    ),
    "renamed": Planted("guard", "y = helper(", (("helper", "helped"),), says="helped"),
    "disabled": Planted("break", "y = helper(y)", (("def helper", "@torch.compiler.disable\ndef helper"),)),
    "no compile": Planted("function", "def forward", (("compiled = torch.compile(model", _OTHER),)),
    "exit status": Planted("exit status", "", (('print("took"', 'raise SystemExit(3)\nprint("took"'),)),
    "threads": Planted(
        "kernel",
        "def forward",
        (("manual_seed(0)", "manual_seed(0); torch.set_num_threads(1)"),),
        (_INDUCTOR, ("ones(3, ", "ones(30000, ")),
    ),
    "vector length": Planted(
        "kernel",
        "def forward",
        (("manual_seed(0)", "manual_seed(0); import torch._inductor.config as c; c.cpp.simdlen = 1"),),
        (_INDUCTOR,),
    ),
}
_LONG = frozenset({"threads", "vector length"})
_ALL = [pytest.param(name, marks=[pytest.mark.long] if name in _LONG else []) for name in PLANTED]


def _run(path: Path, text: str, variables: str = "") -> Run:
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    given = f"{variables}{path}"
    (interpreter,) = python()
    return read_side(given, command_of(given, interpreter))


def _edited(text: str, edits: tuple[tuple[str, str], ...]) -> str:
    for old, new in edits:
        assert old in text
        text = text.replace(old, new)
    return text


def _line(found: JsonDiff, run: Run, other: Run) -> str:
    first = found.differences[0]
    for place, program in ((first.place, run), (first.place_in_b, other)):
        if place is not None:
            return Path(program.given.rpartition(" ")[2]).read_text().splitlines()[place.line - 1].strip()
    return ""


@pytest.mark.parametrize("name", _ALL)
def test_a_planted_difference_is_found_and_a_second_run_has_none(name: str, tmp_path: Path) -> None:
    planted = PLANTED[name]
    base = _edited(PROGRAM, planted.before)
    edited = _edited(base, planted.edits)
    one = _run(tmp_path / "a" / "program.py", base)
    other = _run(tmp_path / "b" / "program.py", edited, planted.variables)
    found = compare_runs(one, other)
    first = found.differences[0]
    assert (first.kind, _line(found, one, other)[: len(planted.line) or None]) == (planted.kind, planted.line), found
    assert planted.says in "\n".join([first.text, *first.diff]), first
    twice = compare_runs(other, _run(tmp_path / "c" / "program.py", edited, planted.variables))
    assert not twice.differs, twice.differences


NESTED = """\
import os
import torch

def inner(x):
    print("here")
    return x.to(getattr(torch, os.environ["TYPE"]))

@torch.compile(backend="eager")
def outer(x):
    return inner(x) + 1

outer(torch.ones(3))
"""


def test_the_first_difference_is_that_of_the_first_compile(tmp_path: Path) -> None:
    """The rest of the outer function is compiled after the inner one, and differs because of it."""
    path = tmp_path / "program.py"
    path.write_text(NESTED)
    sides = [command_of(f"TYPE={name} {path}", python()[0]) for name in ("float64", "float16")]
    found = compare_runs(*(read_side("", side) for side in sides)).differences
    assert [each.function for each in found[:1]] == ["inner"]
    assert "outer" in {each.function for each in found}


def test_moved_lines_and_another_folder_are_no_difference(tmp_path: Path) -> None:
    one = _run(tmp_path / "a" / "program.py", PROGRAM)
    other = _run(tmp_path / "b" / "program.py", "# A comment.\n\n" + PROGRAM)
    assert not compare_runs(one, other).differs


def test_two_versions_of_a_program_may_have_two_names(tmp_path: Path) -> None:
    one = _run(tmp_path / "before.py", PROGRAM)
    assert not compare_runs(one, _run(tmp_path / "after.py", PROGRAM)).differs
    other = _run(tmp_path / "changed.py", PROGRAM.replace("x.relu() + 1", "x.relu() + 2"))
    found = compare_runs(one, other)
    assert found.differences[0].kind == "graph"
    assert _line(found, one, other) == "return x.relu() + 1"


def _diff(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "dynamo_dap", "diff", "--python", *python(), *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=DEADLINE, check=False)


def test_the_command_prints_the_first_difference_at_its_line(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    ran = _diff(tmp_path, "program.py", "SCALE=2 program.py")
    assert ran.returncode == 1, ran.stderr
    assert "First difference: guards of Model.forward" in ran.stdout
    assert ": 1 only in A, 1 only in B" in ran.stdout
    assert "A: program.py:16  y = self.fc(x) * self.scale" in ran.stdout
    assert "+self.scale == 4" in ran.stdout
    assert "output: line 1" in ran.stdout
    assert "took" in ran.stderr, "the program's own output goes to stderr"
    ran = _diff(tmp_path, "--json", "program.py")
    assert ran.returncode == 0, ran.stderr
    assert json.loads(ran.stdout)["differences"] == []
    (tmp_path / "plain.py").write_text("print(1)")
    ran = _diff(tmp_path, "plain.py")
    assert (ran.returncode, ran.stderr.splitlines()[-1]) == (2, "dynamo-dap: neither run compiled anything")


def test_trace_logs_are_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    for name, edit in (("a", "x.relu() + 1"), ("b", "x.relu() + 1"), ("c", "x.relu() + 2")):
        setting = "; import torch._dynamo.config as config; config.recompile_limit = 5" if name == "c" else ""
        edits = (("x.relu() + 1", edit), ("torch.manual_seed(0)", f"torch.manual_seed(0){setting}"))
        (tmp_path / "program.py").write_text(_edited(PROGRAM, edits))
        _run_with_trace(tmp_path, tmp_path / name)
    assert main([str(tmp_path / "a"), str(tmp_path / "b")]) == 0
    assert "values and output: a record has" in capsys.readouterr().out
    (log,) = (tmp_path / "b").iterdir()
    log.write_text(_as_another_torch_words_it(log.read_text()))
    assert main([str(tmp_path / "a"), str(tmp_path / "b")]) == 0
    assert "two torch versions word them differently" in capsys.readouterr().out
    assert main([str(tmp_path / "a"), str(tmp_path / "c")]) == 1
    printed = capsys.readouterr().out
    assert "program.py:7" in printed
    assert "  torch._dynamo.config.recompile_limit: 8 in A, 5 in B" in printed


def _as_another_torch_words_it(log: str) -> str:
    for pattern, text in (
        (r"(?<=, type=)<class '", "<another '"),
        (r'___check_global_state\(\) against \{"', '___check_global_state() against {"another":0,"'),
        (r'"pytorch_version": "', '"pytorch_version": "9.'),
    ):
        log, count = re.subn(pattern, text, log)
        assert count, pattern
    return log


def _run_with_trace(folder: Path, trace: Path) -> None:
    command = [sys.executable, "program.py"]
    environment = {**os.environ, "TORCH_TRACE": str(trace)}
    subprocess.run(command, cwd=folder, env=environment, check=True, capture_output=True, timeout=DEADLINE)


def test_each_side_may_have_its_interpreter(tmp_path: Path) -> None:
    (interpreter,) = python()
    other = tmp_path / "other python"
    other.write_text(f'#!/bin/sh\nOTHER=1 exec {interpreter} "$@"\n')
    other.chmod(0o755)
    edited = PROGRAM.replace('"SCALE", "1"', '"OTHER", "2"')
    (tmp_path / "program.py").write_text(edited)
    ran = _diff(tmp_path, f"{interpreter} program.py", f"'{other}' program.py")
    assert ran.returncode == 1, ran.stderr
    assert "-self.scale == 4" in ran.stdout
    assert "+self.scale == 2" in ran.stdout


@pytest.mark.parametrize("given", ["missing.py", "'", "", "A=1", "."])
def test_what_is_no_side_is_refused_before_anything_runs(given: str, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text("raise SystemExit('this must not run')")
    assert main([str(program), given]) == 2
    with pytest.raises(CannotCompare):
        side_of(given, sys.executable)


def test_only_ids_of_objects_are_left_out_of_guards() -> None:
    assert normal_guard(Guard("___check_obj_id(G['f'], 140255867812768), type=x", "ID_MATCH")) == normal_guard(
        Guard("___check_obj_id(G['f'], 94040), type=x", "ID_MATCH")
    )
    assert normal_guard(Guard("L['n'] == 140255867812768", "EQUALS_MATCH")).endswith("140255867812768")


def test_times_and_temporary_files_are_left_out_of_output() -> None:
    assert normal_output("loss 0.5 in 3.1 s at 0x7f00aa") == normal_output("loss 0.5 in 4 s at 0x7f00bb")
    assert normal_output("loss 0.5 in 3.1 s") != normal_output("loss 0.6 in 3.1 s")


def test_what_was_not_compared_is_listed(tmp_path: Path) -> None:
    one = _run(tmp_path / "program.py", PROGRAM)
    assert one.output is not None
    other = dataclasses.replace(one, output=["took 99 s" if "took" in line else line for line in one.output])
    found = compare_runs(one, other)
    assert not found.differs
    assert [text for text in found.not_compared if text.startswith("times")]
    assert not [text for text in found.not_compared if text.startswith("guards beyond")]
    for record in one.records:
        for _, compiled in record.compiles():
            compiled.guard_count += 1
    assert [text for text in compare_runs(one, one).not_compared if text.startswith("guards beyond")]
