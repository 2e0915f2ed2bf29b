"""What ``dynamo-dap explore`` says of lines of real programs: why not one kernel, memory, what is computed again."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import msgspec
import pytest

from dynamo_dap.explore.model import Explored, Links, Part
from dynamo_dap.protocol.requests.contract import RECORDS_VARIABLE
from tests.client.environments import need_inductor, own_command
from tests.client.fixtures import Fixture
from tests.client.pages import own_scripts
from tests.records.programs import IS_REFERENCE

PROGRAM = """\
import torch
from torch.utils.checkpoint import checkpoint


@torch.compile
def reasons(x, y):
    q, r = torch.linalg.qr(x)  #@fallback
    ordered = torch.sort(x, dim=0).values  #@gives_up
    more = x + 1  #@read_twice
    product = torch.mm(more[:, ::2], y)  #@strides
    x.copy_(torch.cos(more))  #@in_place
    return q, r, ordered, product


@torch.compile
def apart(x, w):
    scaled = torch.rsqrt(x * x + 1)
    return torch.relu(torch.mm(scaled, w)) * x  #@apart


@torch.compile
def peak(x, wide, narrow):
    large = x @ wide
    small = large @ narrow  #@peak
    return torch.relu(small)


@torch.compile
def again(x, w):
    def block(x):
        hidden = x @ w  #@again
        return torch.sin(hidden) * 2

    return checkpoint(block, x, use_reentrant=False).sum()


with torch.no_grad():
    reasons(torch.randn(8, 8), torch.randn(4, 4))
    apart(torch.randn(8, 8), torch.randn(8, 8))
    peak(torch.randn(4, 8), torch.randn(8, 1000), torch.randn(1000, 2))
again(torch.randn(3, 8, requires_grad=True), torch.randn(8, 6, requires_grad=True)).backward()
"""


def explore(folder: Path, *words: str) -> str:
    """What the command prints."""
    done = subprocess.run(
        [*own_command(), "explore", *words],
        env={**os.environ, RECORDS_VARIABLE: str(folder / "records")},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Fixture:
    need_inductor("the program")
    path = tmp_path_factory.mktemp("costs") / "program.py"
    path.write_text(PROGRAM, encoding="utf-8")
    return Fixture(path)


@pytest.fixture(scope="module")
def compiles(program: Fixture) -> dict[str, Explored]:
    found = msgspec.json.decode(explore(program.path.parent, "--json", str(program.path)), type=list[Explored])
    return {each.name: each for each in found}


def parts(compiled: Explored, document: str) -> list[Part]:
    return next(each for each in compiled.documents if each.id == document).parts


def why(compiled: Explored, program: Fixture, marker: str) -> set[str]:
    """What is said of a line, with operations by the names of their nodes."""
    links = Links(compiled.documents)
    became = links.became(links.of_line(str(program.path), program.line(marker)))
    return {each for name in became for each in links.parts[name].why}


@pytest.mark.skipif(not IS_REFERENCE, reason="the texts are those of this torch")
def test_why_a_fallback_or_a_copy(compiles: dict[str, Explored], program: Fixture) -> None:
    compiled = compiles["reasons"]
    message = {marker: why(compiled, program, marker) for marker in ("fallback", "gives_up", "strides", "in_place")}
    (fallback,) = message["fallback"]
    assert fallback.startswith("a fallback: ")
    assert "has no lowering of aten.linalg_qr.default" in fallback
    gives_up = "a fallback: Inductor's lowering of aten.sort.stable calls ATen's kernel for these arguments"
    assert message["gives_up"] == {gives_up}
    assert any("mm wants its operand in other" in text for text in message["strides"])
    assert any("a copy: the program changes an" in text for text in message["in_place"])


@pytest.mark.skipif(not IS_REFERENCE, reason="the texts are those of this torch")
def test_why_not_one_kernel(compiles: dict[str, Explored], program: Fixture) -> None:
    message = {each for each in why(compiles["apart"], program, "apart") if each.startswith("not fused")}
    (apart,) = message
    assert apart.startswith("not fused with op0 (mul, add, rsqrt)")
    assert apart.endswith("intermediate nodes between op0 & op2")


def test_what_the_backward_pass_computes_again(compiles: dict[str, Explored], program: Fixture) -> None:
    compiled = compiles["again"]
    links = Links(compiled.documents)
    became = links.became(links.of_line(str(program.path), program.line("again"), with_callers=False))
    recomputed = {each.name: each.recomputed for each in links.in_document(became, "backward") if each.recomputed}
    assert recomputed == {"mm": 3 * 6 * 4}, "hidden, which the checkpoint does not keep"
    assert sum(each.saved or 0 for each in parts(compiled, "forward")) == 4 * (3 * 8 + 8 * 6), "x and w"
    assert all(each.recomputed is None for each in parts(compiled, "forward"))


def test_the_peak_and_its_line(compiles: dict[str, Explored], program: Fixture) -> None:
    links = Links(compiles["peak"].documents)
    for document in ("forward-fused", "forward-kernels"):
        (part,) = [each for each in parts(compiles["peak"], document) if each.is_peak]
        assert part.memory == 4 * (4 * 1000 + 4 * 2), "what the line makes and what it reads"
        assert [each.place.line for each in links.lines_of(f"{document}:{part.name}")] == [program.line("peak")]
    (last,) = [each for each in parts(compiles["again"], "backward-kernels") if each.is_peak]
    assert last.memory == 4 * (8 * 6 + 3 * 8 + 3 * 6), "both gradients, and the gradient of hidden"


def test_peaks_are_reported_as_text_and_on_the_page(compiles: dict[str, Explored], program: Fixture) -> None:
    assert "peak" in compiles
    folder, line = program.path.parent, program.line("peak")
    text = explore(folder, "--function", "peak")
    assert "peak of the forward pass: 15.7 KiB" in text
    assert f"KiB in use at program.py:{line}, in extern_kernels.mm" in text
    assert "15.7 KiB in use, the peak" in text
    assert "peak of the backward pass: 360 B" in explore(folder, "--function", "again")
    assert "72 B computed again" in explore(folder, "--line", f"program.py:{program.line('again')}")
    explore(folder, "--html", "stages.html")
    page = (folder / "stages.html").read_text(encoding="utf-8")
    assert len(own_scripts(page)) == 1
    data = json.loads(page.partition("id='data'>")[2].partition("</script>")[0])
    peaks = [
        part
        for each in data["compiles"]
        for one in each["documents"]
        for part in one.get("parts", ())
        if part.get("isPeak")
    ]
    assert {part["memory"] for part in peaks} >= {16032, 360}
