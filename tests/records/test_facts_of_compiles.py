"""A record's other facts about a compile: callers, sizes with the lines that compared them, and kernels."""

from __future__ import annotations

from pathlib import Path

import pytest

from dynamo_dap.records.events import Record
from dynamo_dap.records.file import read_record
from dynamo_dap.records.folders import SUFFIX
from dynamo_dap.records.model import Place
from tests.client.fixtures import Fixture
from tests.records.test_reports import command

PROGRAM = """\
import torch


@torch.compile
def fn(x, y, n):
    if x.shape[0] > 4:  #@compared
        z = x + y  #@equal
    if z.shape[0] * 2 < 100:
        z = z * n
    torch._dynamo.graph_break()
    return z.reshape(-1, 2).softmax(-1)  #@rest


def train(x, y, n):
    fn(x.requires_grad_(), y, n).sum().backward()  #@calls


for n in (6, 8):
    train(torch.ones(n, 2), torch.ones(n, 2), n)  #@begins
"""


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Record]:
    folder = tmp_path_factory.mktemp("facts")
    program = folder / "program.py"
    program.write_text(PROGRAM, encoding="utf-8")
    command("run", "program.py", folder=folder, TORCHINDUCTOR_CACHE_DIR=str(folder / "cache"))
    return program, read_record(next(folder.rglob(f"*{SUFFIX}")))


def test_who_called_is_recorded_from_the_programs_first_line_on(recorded: tuple[Path, Record]) -> None:
    program, session = recorded
    lines = Fixture(program)
    first = session.functions[0].compiles[0]
    assert [(one.function, one.place.line) for one in first.stack] == [
        ("<module>", lines.line("begins")),
        ("train", lines.line("calls")),
    ]
    rest = next(one for one in session.functions[0].compiles if "resumed" in one.name)
    assert rest.stack[:2] == first.stack
    assert [(one.function, one.place.line) for one in rest.stack[2:]] == [("fn", Fixture(program).line("rest") - 1)]


def test_sizes_show_what_they_stand_for_and_who_compared_them(recorded: tuple[Path, Record]) -> None:
    program, session = recorded
    lines = Fixture(program)
    dynamic = next(one for one in session.functions[0].compiles if one.failures and "resumed" not in one.name)
    values = {one.source: one.value for one in dynamic.symbols}
    assert values["y.shape[0]"] == "8"
    assert values["n"] == "8"
    conditions = {one.text: one.place for one in dynamic.guards if one.type == "SHAPE_ENV"}
    (equal,) = [place for text, place in conditions.items() if text and " == " in text and "stride" not in text]
    assert equal == Place(str(program), lines.line("equal"), 1)
    (bounds,) = [place for text, place in conditions.items() if text and "<= 49" in text]
    assert bounds == Place(str(program), lines.line("compared"), 1)


def test_kernels_and_caches_are_recorded_those_of_backward_passes_as_well(recorded: tuple[Path, Record]) -> None:
    _, session = recorded
    compiles = [one for function in session.functions for one in function.compiles]
    assert all(one.caches == {"FX graph cache miss": 1, "AOTAutograd cache miss": 1} for one in compiles[:2])
    kernels = {kernel for one in compiles for kernel in one.kernels}
    assert any("softmax" in one for one in kernels)
    backward = [*session.kernels, *kernels]
    assert any("backward" in one for one in backward)
    files = [*session.files, *(path for one in compiles for path in one.artifacts)]
    assert len(files) == len(set(files)) >= 4
    assert all(Path(one).is_file() for one in files)
