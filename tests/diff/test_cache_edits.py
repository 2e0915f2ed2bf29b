"""``--try`` makes the known edits on copies of a program that misses its caches, and reports whether it then hits."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from dynamo_dap.commands.cache_edits import edit_for, files_of
from dynamo_dap.commands.diff import main as diff
from dynamo_dap.commands.run import main as run
from dynamo_dap.diff.caches import NUMBER
from dynamo_dap.diff.model import JsonCaches, KeyPart, NotCached
from dynamo_dap.diff.sides import Run
from dynamo_dap.fixes.edits import Fix, edited
from dynamo_dap.records.events import Record, Started
from dynamo_dap.records.model import Place
from tests.client.zygote import python

PASSES = """\
import uuid
from torch._inductor.custom_graph_pass import CustomGraphPass

class Other(CustomGraphPass):
    def __call__(self, graph):
        pass

    def uuid(self):
        # Another one in each process.
        return uuid.uuid4().hex
"""
PROGRAM = '''\
"""Misses the caches each time."""
import os, random
import torch
import passes

FACTOR = random.SystemRandom().random()

def nothing(graph):
    pass

@torch._dynamo.allow_in_graph
def double(x):
    return x @ x

@torch.compile(options={"post_grad_custom_post_pass": nothing})
def without_uuid(x):
    return x.sin() + 1

@torch.compile(options={"joint_custom_pre_pass": passes.Other()})
def random_uuid(x):
    return x.sin() + 2

@torch.compile
def not_cacheable(x):
    return double(x) + 3

@torch.compile
def number(x):
    return x * FACTOR + 4

@torch.compile(options={"freezing": True})
def frozen(x):
    return x + 5

@torch.compile
def process(x):
    return torch.addmm(x, x, x, alpha=os.getpid())

with torch.no_grad():
    for function in (without_uuid, random_uuid, not_cacheable, number, frozen, process):
        function(torch.ones(4, 4))
print("done")
'''


@pytest.fixture
def program(tmp_path: Path) -> Path:
    """Write the program and its passes."""
    (tmp_path / "passes.py").write_text(PASSES)
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    return path


@pytest.mark.long
def test_a_known_edit_is_tried_for_each_cause(program: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert diff(["--caches", "--try", "--json", "--python", *python(), str(program)]) == 1
    found = msgspec.json.decode(capsys.readouterr().out, type=JsonCaches)
    answers = {each.function: (each.served_when_tried, each.prints_the_same) for each in found.not_cached}
    edited_and_hit = dict.fromkeys(("without_uuid", "random_uuid", "not_cacheable", "number"), (True, True))
    assert answers == {**edited_and_hit, "frozen": (True, None), "process": (None, None)}
    assert [each.function for each in found.not_cached if each.tried is None] == ["process"]
    assert (program.read_text(), (program.parent / "passes.py").read_text()) == (PROGRAM, PASSES)


NUMBER_ONLY = """\
import random, torch

FACTOR = random.SystemRandom().random()

@torch.compile
def number(x):
    return x * FACTOR + 4

number(torch.ones(3))
print(FACTOR)
"""


@pytest.mark.long
def test_a_tried_edit_is_printed(program: Path, capsys: pytest.CaptureFixture[str]) -> None:
    program.write_text(NUMBER_ONLY)
    assert run(["--cold", "--warm", "--try", "--python", *python(), str(program)]) == 1
    printed = capsys.readouterr().out
    assert "(tried, it is a hit): A" in printed
    assert "program prints something else" in printed
    assert "+FACTOR = torch.tensor(random.SystemRandom().random())" in printed


def _edit(program: Path, **facts: object) -> Fix | None:
    record = Record()
    record.apply(Started(1, 0.0, 1, [program.name], str(program.parent), ""))
    empty = NotCached("f", "0/0", [], 0.0, None, [], [], None, [], [])
    return edit_for(msgspec.structs.replace(empty, **facts), files_of(Run(str(program), [record])))


def _texts(fix: Fix | None) -> dict[str, str]:
    assert fix is not None
    documents = {edit.document.path: edit.document for edit in fix.edits}
    return {Path(path).name: edited(document, fix.edits) for path, document in documents.items()}


def test_a_pass_in_another_file_gets_a_uuid_that_stays(program: Path) -> None:
    fix = _edit(program, parts=[KeyPart("joint_custom_pre_pass", "a", "b")])
    (text,) = _texts(fix).values()
    assert "        # Another one in each process.\n        return get_hash_for_files((__file__,))\n" in text
    assert list(_texts(fix)) == ["passes.py"]


@pytest.mark.parametrize(
    "change",
    [("passes.Other()", "passes.Other(nothing)"), ("passes.Other()", "None")],
    ids=["with an argument", "none"],
)
def test_a_uuid_is_kept_if_the_class_is_not_all_that_it_stands_for(program: Path, change: tuple[str, str]) -> None:
    program.write_text(PROGRAM.replace(*change))
    assert _edit(program, parts=[KeyPart("joint_custom_pre_pass", "a", "b")]) is None


def test_a_pass_of_a_library_gets_no_uuid(program: Path) -> None:
    """The hash of the user's file would not change with the code of the pass."""
    program.write_text(PROGRAM.replace('": nothing}', '": os.fspath}'))
    assert _edit(program, reasons=["Unsupported post grad custom pass"]) is None


def test_a_local_name_is_not_the_global_number(program: Path) -> None:
    line = next(number for number, text in enumerate(PROGRAM.splitlines(), 1) if "FACTOR + 4" in text)
    at_line = {"place": Place(str(program), line), "advice": [NUMBER]}
    (text,) = _texts(_edit(program, **at_line)).values()
    assert "FACTOR = torch.tensor(random.SystemRandom().random())" in text
    program.write_text(PROGRAM.replace("def number(x):", "def number(x, FACTOR=2.0):"))
    assert _edit(program, **at_line) is None


def test_no_edit_is_known_for_another_cause(program: Path) -> None:
    assert _edit(program, parts=[KeyPart("default_dtype", "a", "b")]) is None
    assert _edit(program, reasons=["Unsupported call_function target. Function module: os, Function name: f"]) is None
