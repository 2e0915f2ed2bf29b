"""Each size of an input has the reason why it is static, dynamic or specialized: at stops, in records and reports."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from dynamo_dap.protocol.requests.contract import RECORDS_VARIABLE
from dynamo_dap.records.file import read_record
from dynamo_dap.records.folders import SUFFIX
from dynamo_dap.records.model import Compile, Size
from tests.client.environments import python_option
from tests.client.fixtures import Fixture
from tests.client.timeline import DEADLINE
from tests.records.programs import GROWS

pytestmark = pytest.mark.timeout(300)

PROGRAM = """\
import torch

torch._dynamo.config.capture_dynamic_output_shape_ops = True


def automatic(x, scale):
    if x.shape[0] > 4:  #@compared
        x = x + 1
    kept = (x[:, 0] > 0).nonzero()  #@counted
    both = torch.cat([x, x])
    return both * scale, kept  #@automatic


class Decoder(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(4, 4))
        self.register_buffer("table", torch.ones(8, 4))

    def forward(self, x):
        return (x @ self.weight + self.table[: x.shape[0]]).sum()  #@decoder


def expanded(x):
    return x.expand(3, 4).sum()  #@expanded


def doubled(x):
    return x * 2


def added(x, y):
    return x + y


def compiled(function, **options):
    return torch.compile(function, backend="aot_eager", **options)


def marked(mark, *shape):
    x = torch.ones(*shape)
    mark(x, 0)
    return x


step = compiled(automatic)
for size in (3, 5, 7):
    print([each.shape for each in step(torch.ones(size, 4), size)])
model = Decoder()
compiled(model)(marked(torch._dynamo.mark_dynamic, 6, 4)).backward()
print(model.weight.grad.sum())
print(compiled(expanded)(marked(torch._dynamo.maybe_mark_dynamic, 3, 4)))
print(compiled(doubled)(marked(torch._dynamo.maybe_mark_dynamic, 1, 4)))
print(compiled(lambda x: x - 1)(marked(torch._dynamo.mark_static, 2, 4)))
print(compiled(added, dynamic=True)(torch.ones(5, 4), torch.ones(5, 4)))
with torch._dynamo.config.patch(automatic_dynamic_shapes=False):
    print(compiled(lambda x: x / 2)(torch.ones(2, 4)))
"""


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write a program with a compile for each reason, and record it."""
    path = tmp_path_factory.mktemp("sizes") / "sized.py"
    path.write_text(PROGRAM, encoding="utf-8")
    return path


def _command(program: Path, *command: str, typed: str | None = None) -> str:
    ran = subprocess.run(
        [sys.executable, "-m", "dynamo_dap", *command],
        env={**os.environ, RECORDS_VARIABLE: str(program.parent / "records"), "PYTHONUNBUFFERED": "1"},
        cwd=program.parent,
        input=typed,
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


@pytest.fixture(scope="module")
def compiles(program: Path) -> list[Compile]:
    """Return the compiles of the program, in their order."""
    _command(program, "run", *python_option(program), program.name)
    (path,) = (program.parent / "records").rglob(f"*{SUFFIX}")
    return [compiled for _, compiled in read_record(path).compiles()]


def _size(compiled: Compile, source: str) -> tuple[str, list[str]]:
    (size,) = [size for size in compiled.sizes if size.source == source]
    return size.state, [reason.kind for reason in size.reasons]


def _named(compiles: list[Compile], name: str) -> Compile:
    return next(each for each in reversed(compiles) if each.name == name)


def test_the_record_has_the_reasons_of_each_size(compiles: list[Compile], program: Path) -> None:
    first, second = (each for each in compiles if each.name == "automatic")
    assert _size(first, "x.shape[0]") == ("static", ["first call"])
    assert _size(second, "x.shape[0]") == ("dynamic", ["automatic dynamic", "condition"])
    assert _size(second, "x.shape[1]") == ("static", ["first call"])
    assert _size(second, "scale") == ("dynamic", ["automatic dynamic"])
    decoder = _named(compiles, "Decoder.forward")
    assert _size(decoder, "x.shape[0]")[1][0] == "mark"
    assert {size.source: size.reasons[0].kind for size in decoder.sizes if "sizes of" in size.source} == {
        "4 sizes of parameters and buffers": "parameter"
    }
    assert _size(_named(compiles, "expanded"), "x.shape[0]")[0] == "specialized"
    assert _size(_named(compiles, "doubled"), "x.shape[0]") == ("static", ["mark", "0/1 specialization"])
    assert _size(_named(compiles, "added"), "x.shape[0]") == ("dynamic", ["setting", "equal size"])
    plain, off = (each for each in compiles if each.name == "<lambda>")
    assert _size(plain, "x.shape[0]") == ("static", ["mark"])
    assert _size(plain, "x.shape[1]") == ("static", ["first call"])
    assert _size(off, "x.shape[0]") == ("static", ["setting"])
    lines = Fixture(program)
    (condition,) = [reason for reason in _found(second, "x.shape[0]").reasons if reason.kind == "condition"]
    assert condition.place is not None
    assert (condition.text, condition.place.line) == ("x.shape[0] > 4", lines.line("compared"))
    became = _found(_named(compiles, "expanded"), "x.shape[0]").reasons[-1]
    assert became.kind == "specialization"
    assert became.place is not None
    assert became.place.line == lines.line("expanded")
    assert "asked by torch/" in became.text
    assert "was 3" in _found(second, "x.shape[0]").reasons[0].text
    assert _found(second, "x.shape[0]").reasons[0].text.endswith("this call made it dynamic")


def _found(compiled: Compile, source: str) -> Size:
    return next(size for size in compiled.sizes if size.source == source)


def test_reports_have_them(compiles: list[Compile], program: Path) -> None:
    assert compiles, "nothing was recorded"
    text = " ".join(_command(program, "report").split())
    assert "x.shape[0] is specialized" in text
    assert "maybe_mark_dynamic" in text
    assert text.count("Size ") <= text.count("called at"), "one line for each compile"
    assert re.search(r"\(and \d more: --html\)", text)
    data = json.loads(_command(program, "report", "--json"))
    found = [size for function in data["functions"] for each in function["compiles"] for size in each["sizes"]]
    assert {"dynamic", "static", "specialized"} == {size["state"] for size in found}


def test_the_prompt_says_why(program: Path) -> None:
    line = Fixture(program).line("automatic")
    typed = "\n".join(
        [
            *(f"b {program.name}:{line}", "c", "c"),
            *("why both.shape[0]", "why both.shape[1]", "why kept.size(0)", "why x.shape[9]", "why line"),
            *("c", "why both", "q", "y"),
        ]
    )
    shown = _command(program, "debug", program.name, typed=typed + "\n")
    first, second = shown.split("(dynamo) why both.shape[0]")[1], shown.split("(dynamo) why both\n")[1]
    for chain in (first, second):
        assert "shape[0] = 2*s77: computed from x.shape[0] = s77" in chain
        assert f"condition = x.shape[0] > 4, at {program.name}:{Fixture(program).line('compared')}" in chain
    assert "automatic dynamic = the size was 3" in first
    assert "this call made it dynamic" in first
    assert f"the result of nonzero at {program.name}:{Fixture(program).line('counted')}" in first
    assert "x has no size 9" in shown


UNUSED = """\
import torch


@torch.compile(backend="eager")
def fn(x, marked, weight):
    y = torch.ones(1)  #@begins
    return (x.sum() + marked.sum() + weight.sum()) * y


weight = torch.nn.Parameter(torch.ones(4))
for size in (3, 5, 7):
    other = torch.ones(6, 1)
    torch._dynamo.mark_dynamic(other, 0)
    print(fn(torch.ones(size, 2), other, weight).item())
"""


def test_an_input_that_the_trace_has_not_used_says_what_is_known(tmp_path: Path) -> None:
    program = tmp_path / "unused.py"
    program.write_text(UNUSED, encoding="utf-8")
    asked = ["why x.shape[0]", "why x.shape[1]", "why marked", "why weight"]
    typed = "\n".join([f"b {program.name}:{Fixture(program).line('begins')}", "c", *asked, "c", *asked, "cl", "y", "c"])
    shown = _command(program, "debug", program.name, typed=typed + "\n")
    answers = re.split(r"\(dynamo\) why \S+\n", shown)[1:]
    first, second = (
        [answer.partition("(dynamo)")[0].strip() for answer in answers[:4]],
        [answer.partition("(dynamo)")[0].strip() for answer in answers[4:]],
    )
    unused = "not decided: the trace has not used the tensor"
    assert first[0] == f"shape[0] = 3, {unused}", "no call was compiled before"
    assert f"shape[0] = 6, {unused}; marked with mark_dynamic" in first[2]
    assert "a size of 1 is a constant" in first[2]
    assert f"shape[0] = 4, {unused}; static: a parameter or buffer" in first[3]
    assert second[0].startswith(f"shape[0] = 5, {unused}; the size was 3 in the earlier")
    assert second[1].startswith(f"shape[1] = 2, {unused}; the size was the same in")


def _recorded(folder: Path, text: str) -> tuple[Path, list[Compile]]:
    """Record a program with this text; return its path and its compiles."""
    program = folder / "program.py"
    program.write_text(text, encoding="utf-8")
    _command(program, "run", program.name)
    (path,) = (folder / "records").rglob(f"*{SUFFIX}")
    return program, [compiled for _, compiled in read_record(path).compiles()]


def test_a_later_compile_says_since_when_a_size_is_dynamic(tmp_path: Path) -> None:
    _, compiles = _recorded(tmp_path, GROWS)
    texts = [_found(compiled, "x.shape[0]").reasons[0].text for compiled in compiles]
    assert texts[1].endswith("this call made it dynamic")
    assert texts[2:]
    assert all(text.endswith("dynamic since compile 0/1") for text in texts[2:])


SHRINKS = """\
import torch


@torch.compile(backend="eager")
def fn(x):
    return x.sum(0)


for size in (3, 5, 1):
    fn(torch.ones(size))
"""


def test_a_size_that_is_a_constant_again_is_not_called_dynamic(tmp_path: Path) -> None:
    _, compiles = _recorded(tmp_path, SHRINKS)
    last = _found(compiles[-1], "x.shape[0]")
    assert last.state == "static"
    texts = [reason.text for reason in last.reasons]
    assert any("a size of 1 is a constant" in text for text in texts)
    assert not any("dynamic" in text for text in texts)


PROFILED = """\
import torch


@torch.compile(backend="eager")
def doubled(x):
    return x * 2


for length in (3, 5):
    doubled(torch.ones(length, 2))
"""


def test_a_size_that_an_earlier_run_made_dynamic_is_not_due_to_this_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Torch keeps a profile of dynamic sizes for the next run of a job."""
    monkeypatch.setenv("TORCH_COMPILE_JOB_ID", "sizes")
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "cache"))
    program, first = _recorded(tmp_path, PROFILED)
    assert [_found(compiled, "x.shape[0]").state for compiled in first] == ["static", "dynamic"]
    _command(program, "run", program.name)
    paths = sorted((tmp_path / "records").rglob(f"*{SUFFIX}"), key=lambda path: path.stat().st_mtime)
    (compiled,) = [compiled for _, compiled in read_record(paths[-1]).compiles()]
    size = _found(compiled, "x.shape[0]")
    assert size.state == "dynamic"
    assert size.reasons[0].kind == "automatic dynamic"
    assert size.reasons[0].text.endswith("earlier call or run")


COUNTS_BATCHES = """\
import torch

norm = torch.nn.BatchNorm1d(3)


@torch.compile(backend="eager")
def normed(x, norm):
    return norm(x)


for _ in range(3):
    normed(torch.ones(4, 3), norm)
"""


def test_a_number_in_a_tensor_is_dynamic_from_the_first_call_on(tmp_path: Path) -> None:
    """Batch norm counts its batches in a tensor. Its number is dynamic although no earlier call had another one."""
    _, (compiled,) = _recorded(tmp_path, COUNTS_BATCHES)
    size = _found(compiled, "norm.num_batches_tracked.item()")
    assert (size.state, [reason.kind for reason in size.reasons]) == ("dynamic", ["other"])


DECLARED = """\
import torch
from torch.fx.experimental.dynamic_spec import ParamsSpec, ShapesSpec, ShapeVar, TensorSpec


def scaled(x):
    return x * 2  #@scaled


spec = ShapesSpec(ParamsSpec({"x": TensorSpec([ShapeVar("n"), None])}))
argument = "shapes_spec" if hasattr(torch._dynamo.config, "_shapes_spec") else "dynamic_shapes"
torch.compile(scaled, backend="eager", **{argument: spec})(torch.ones(5, 3))
"""


@pytest.mark.skipif(
    importlib.util.find_spec("torch.fx.experimental.dynamic_spec") is None, reason="this torch has no shapes_spec"
)
def test_a_declared_size_names_the_declaration(tmp_path: Path) -> None:
    program, (compiled,) = _recorded(tmp_path, DECLARED)
    found = [(size.state, size.reasons[0].kind, size.reasons[0].text.split()[0]) for size in compiled.sizes]
    assert found == [("dynamic", "setting", "dynamic"), ("static", "setting", "static")]
    line = Fixture(program).line("scaled")
    typed = f"b {program.name}:{line}\nc\nwhy x.shape[0]\nq\ny\n"
    assert re.search(
        r"why x.shape\[0\].*declared by (shapes_spec|dynamic_shapes)",
        _command(program, "debug", program.name, typed=typed),
        re.DOTALL,
    )


ATTENTION = """\
import math

import torch

attention = torch.nn.MultiheadAttention(8, 2, batch_first=True)


@torch.compile(backend="eager")
def attend(x, mask):
    y = attention(x, x, x, attn_mask=mask, need_weights=False)[0]  #@called
    return y + x


for length in (5, 7):
    attend(torch.ones(2, length, 8), torch.full((length, length), -math.inf).triu(1))
"""


def test_a_condition_inside_torch_is_at_the_users_line(tmp_path: Path) -> None:
    program, compiles = _recorded(tmp_path, ATTENTION)
    equal = [reason for reason in _found(compiles[-1], "mask.shape[0]").reasons if reason.kind == "equal size"]
    assert equal
    assert {(reason.place.path, reason.place.line) for reason in equal if reason.place is not None} == {
        (str(program), Fixture(program).line("called"))
    }
    assert "asked by torch/nn/functional.py" in equal[0].text
    line = next(line for line in _command(program, "report").splitlines() if "Size mask.shape[0]" in line)
    assert line.count("; ") == 1, "two reasons"
