"""``dynamo-dap bisect`` finds an injected defect: the stage, the operation and the user's line."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
from pathlib import Path
from typing import Any

import msgspec
import pytest

from dynamo_dap.commands.bisect import main
from dynamo_dap.protocol.requests.bisection import KINDS, BisectedBody, BisectedPlace, BisectionRun
from dynamo_dap.protocol.requests.contract import LaunchDescription
from dynamo_dap.records.program import launching
from tests.client import zygote
from tests.client.environments import need_inductor, own_command
from tests.client.fixtures import Fixture
from tests.client.processes import MARK, kill_all, wait_until_gone
from tests.client.timeline import DEADLINE
from tests.records.programs import IS_REFERENCE

PROGRAM = """
import torch
{defect}
@torch.compile
def step(x):
    y = torch.cos(x) * 2
    y = torch.sin(y)  #@sin
    y = torch.nn.functional.silu(y)  #@silu
    return torch.exp(y) + 7  #@added

x = torch.arange(8.0)
expected = ((torch.cos(x) * 2).sin() * torch.sigmoid((torch.cos(x) * 2).sin())).exp() + 7
result = step(x)
"""
CHECK = "torch.allclose(result, expected, atol=1e-4)"
DECOMPOSITION = """
from torch._inductor.decomposition import decompositions
decompositions[torch.ops.aten.silu.default] = lambda x: x * torch.sigmoid(x) + 1
"""
LOWERING = """
from torch._inductor.lowering import lowerings
lowerings[torch.ops.aten.sin.default] = lambda x: lowerings[torch.ops.aten.cos.default](x)
"""
PASS = """
import torch._inductor.config

def subtracts(graph):
    for node in graph.nodes:
        if node.target is torch.ops.aten.add.Tensor and 7 in node.args:
            node.target = torch.ops.aten.sub.Tensor

torch._inductor.config.post_grad_custom_pre_pass = subtracts
"""


def bisected(program: Path, *options: str, given: str = "") -> tuple[int, Any, str]:
    """Return the exit status, the finding, and the reports on the runs."""
    done = subprocess.run(
        [*own_command(), "bisect", "--json", *options, str(program)],
        cwd=program.parent,
        input=given,
        capture_output=True,
        text=True,
        timeout=550,
        check=False,
    )
    return done.returncode, json.loads(done.stdout) if done.stdout else None, done.stderr


def written(folder: Path, text: str) -> Fixture:
    path = folder / "program.py"
    path.write_text(text)
    return Fixture(path)


@pytest.mark.timeout(600)
def test_a_wrong_decomposition_is_found(tmp_path: Path) -> None:
    program = written(tmp_path, PROGRAM.format(defect=DECOMPOSITION))
    status, found, reported = bisected(program.path, "--check", CHECK)
    assert status == 1, reported
    assert (found["stage"], found["part"]) == ("aot_eager_decomp_partition", "decomposition")
    assert f"at {program.path}:{program.line('silu')} in step" in found["text"]
    assert (found["problem"], found["item"]["name"]) == (f"not {CHECK}", "aten.silu.default")
    assert found["thing"] == found["item"]
    assert found["item"]["places"] == [{"path": str(program.path), "line": program.line("silu"), "function": "step"}]
    assert "eager (Dynamo's own trace): right" in reported
    _agrees(found, program)


def _compared(program: Fixture) -> Any:
    words = [*own_command(), "compare", "--json", str(program.path)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=DEADLINE, check=False)
    return json.loads(done.stdout)


def _agrees(found: Any, program: Fixture) -> None:
    """Check that ``compare`` gives the same answer, from the same stages, with both errors."""
    body = _compared(program)
    judged = [(each["name"], each["right"]) for each in body["stages"]]
    assert judged == [("eager", True), ("aot_eager", True), (found["stage"], False)]
    assert body["part"] == f"{KINDS[found['part']]} {found['item']['name']}"
    assert (body["path"], body["line"]) == tuple(found["item"]["places"][0][name] for name in ("path", "line"))
    assert body["operation"] == "torch.nn.functional.silu"
    assert body["ofOperation"]["referenceError"] < 1e-5
    assert body["ofOperation"]["error"] > 0.5


MASKED = """
import torch
from torch._inductor.lowering import lowerings

aten = torch.ops.aten
# A masked scatter takes the values of its source one after the other: this lowering takes those at the same positions.
lowerings[aten.masked_scatter.default] = lambda x, mask, source: lowerings[aten.where.self](mask, source, x)

@torch.compile
def step(x, source):
    y = x * 2
    y = y.masked_scatter(y > 4, source)  #@scattered
    return y + 1

x, source = torch.arange(6.0), torch.arange(6.0) * 10
y = x * 2
expected = y.masked_scatter(y > 4, source) + 1
result = step(x, source)
"""


@pytest.mark.timeout(600)
def test_compare_and_bisect_agree_on_a_masked_scatter(tmp_path: Path) -> None:
    """The lowering is wrong; Dynamo and AOTAutograd are right."""
    need_inductor("the program")
    program = written(tmp_path, MASKED)
    status, found, reported = bisected(program.path, "--check", CHECK)
    assert status == 1, reported
    assert (found["stage"], found["part"]) == ("inductor", "lowerings")
    assert found["thing"]["places"] == [
        {"path": str(program.path), "line": program.line("scattered"), "function": "step"}
    ]
    body = _compared(program)
    judged = {each["name"]: each["right"] for each in body["stages"]}
    assert judged == {"eager": True, "aot_eager": True, "aot_eager_decomp_partition": True, "inductor": False}
    assert (body["line"], body["operation"]) == (program.line("scattered"), "masked_scatter")
    assert (body["part"], found["thing"]["name"]) == ("the lowering of masked_scatter", "aten.masked_scatter.default")


@pytest.mark.timeout(300)
@pytest.mark.skipif(not IS_REFERENCE, reason="the numbers are those of the passes and nodes of this torch")
@pytest.mark.parametrize(
    ("defect", "part", "number", "name", "place", "change"),
    [
        (LOWERING, "lowerings", 2, "aten.sin.default", "sin", ([], [])),
        (PASS, "post_grad_passes", 1, "post_grad_custom_pre_pass", "added", (["aten.add.Tensor"], ["aten.sub.Tensor"])),
    ],
)
def test_what_a_lowering_or_a_pass_is(
    defect: str, part: str, number: int, name: str, place: str, change: tuple[list[str], list[str]], tmp_path: Path
) -> None:
    """Make only the last run of a bisection of Inductor: the whole takes minutes."""
    need_inductor("the program")
    program = written(tmp_path, PROGRAM.format(defect=defect))
    result = tmp_path / "result.json"
    description = LaunchDescription(program=str(program.path), bisection=BisectionRun(str(result), CHECK, number))
    command, variables = launching(zygote.python()[0], description)
    variables |= {"TORCH_BISECT_BACKEND": "inductor", "TORCH_BISECT_SUBSYSTEM": part, "TORCH_BISECT_MAX": str(number)}
    variables |= {"TORCHINDUCTOR_FX_GRAPH_CACHE": "0", "TORCHINDUCTOR_AUTOGRAD_CACHE": "0"}
    subprocess.run(command, env={**os.environ, "PYTHONUNBUFFERED": "1", **variables}, check=True, timeout=250)
    reported = msgspec.json.decode(result.read_bytes(), type=BisectedBody)
    assert reported.check is False
    assert reported.count > number
    assert reported.item is not None
    assert (reported.item.name, reported.item.gone, reported.item.made) == (name, *change)
    assert BisectedPlace(str(program.path), program.line(place), "step") in reported.item.places


PRINTS = """
import torch

@torch.compile
def step(x):
    return x + (1 if torch.compiler.is_compiling() else 0)

print(step(torch.ones(1)).item())
"""


def test_what_a_program_prints_shows_whether_it_is_right(tmp_path: Path) -> None:
    """An exceeded time limit is reported as well."""
    status, found, reported = bisected(written(tmp_path, PRINTS).path, "--check", "output")
    assert status == 1, reported
    assert (found["stage"], found["problem"], found["part"]) == ("eager", "it prints something else", None)
    status, found, reported = bisected(written(tmp_path, "import time\ntime.sleep(60)\n").path, "--timeout", "1")
    assert (status, found) == (2, None)
    assert "not done after 1 s" in reported


DRAWS = """
import torch

@torch.compile(backend="eager")
def step(x):
    return x.sum()

print(step(torch.randn(8)).item())
"""


def test_a_program_that_prints_something_else_each_time_is_not_judged(tmp_path: Path) -> None:
    status, found, reported = bisected(written(tmp_path, DRAWS).path, "--check", "output")
    assert (status, found) == (2, None), reported
    assert "torch.manual_seed" in reported
    status, found, reported = bisected(written(tmp_path, DRAWS).path, "--check", "torch.rand(1).item() < 2")
    assert (status, found) == (0, None), reported


def test_it_says_what_was_checked(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    program = str(written(tmp_path, "print(1)").path)
    assert main([program]) == 0
    assert "results were not compared" in capsys.readouterr().out
    assert main(["--check", "output", program]) == 0
    assert "prints what the uncompiled program prints" in capsys.readouterr().out


def test_it_is_interrupted_with_the_program(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    os.mkfifo(runs)
    program = written(tmp_path, f"import time\nopen({str(runs)!r}, 'w').close()\ntime.sleep(500)\n")
    # Handle Ctrl-C as in a person's shell: processes started by tests in the background ignore it.
    before = signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        process = subprocess.Popen(
            [*own_command(), "bisect", "--json", str(program.path)],
            env={**os.environ, MARK: str(tmp_path)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
    finally:
        signal.signal(signal.SIGINT, before)
    runs.read_text()  # until the program has opened it
    process.send_signal(signal.SIGINT)
    printed, reported = process.communicate(timeout=DEADLINE)
    assert (process.returncode, printed, reported) == (130, "", "cancelled\n")
    assert not wait_until_gone(str(tmp_path))


def test_each_run_is_reported_when_it_is_over(tmp_path: Path) -> None:
    """The next run waits for this test."""
    runs = tmp_path / "runs"
    os.mkfifo(runs)
    program = written(tmp_path, f"open({str(runs)!r}, 'w').close()\n")
    words = [*own_command(), "bisect", str(program.path)]
    with subprocess.Popen(words, env={**os.environ, MARK: str(tmp_path)}, stderr=subprocess.PIPE) as process:
        try:
            assert process.stderr is not None
            for expected in (b"uncompiled: right\n", b"eager (Dynamo's own trace): right\n"):
                runs.read_text()  # until the program has opened it
                assert select.select([process.stderr], [], [], DEADLINE)[0], "nothing was reported"
                assert process.stderr.readline() == expected
        finally:
            kill_all(str(tmp_path))


@pytest.mark.parametrize("check", ["exit", "output", "True"])
def test_a_program_that_fails_by_itself_is_not_bisected(tmp_path: Path, check: str) -> None:
    program = written(tmp_path, "raise ValueError('mine')\n")
    status, found, reported = bisected(program.path, "--check", check)
    assert (status, found) == (2, None)
    assert "wrong without torch.compile, too" in reported


ENDS_BY_EXIT = """
import sys
import torch

@torch.compile(backend="eager")
def step(x):
    return x + (1 if torch.compiler.is_compiling() else 0)

def main():
    global result
    result = step(torch.ones(1)).item() + float(sys.stdin.readline())
    return 3

if __name__ == "__main__":
    sys.exit(main())
"""


@pytest.mark.parametrize("check", ["result == 3.0", "output"])
def test_a_program_that_ends_by_exit_is_checked(tmp_path: Path, check: str) -> None:
    """Each run gets the command's input; the expected status is that of the uncompiled program."""
    program = written(tmp_path, ENDS_BY_EXIT.replace("    return 3", "    print(result)\n    return 3"))
    status, found, reported = bisected(program.path, "--check", check, given="2\n")
    assert (status, found["stage"]) == (1, "eager"), reported
    assert "uncompiled: right\n" in reported


OWN_BACKEND = """
import torch

def backend(graph, inputs):
    raise RuntimeError("no kernel for this")

@torch.compile(backend=backend)
def step(x):
    return x + 1

step(torch.ones(1))
"""


def test_the_programs_own_backend_is_run_as_well(tmp_path: Path) -> None:
    need_inductor("a run of each stage")
    status, found, reported = bisected(written(tmp_path, OWN_BACKEND).path)
    assert (status, found["stage"]) == (1, "program"), reported
    assert "no kernel for this" in found["problem"]


def test_a_check_that_is_not_reached_is_no_right_run(tmp_path: Path) -> None:
    program = written(tmp_path, "import os\nok = True\nos._exit(0)\n")
    status, found, reported = bisected(program.path, "--check", "ok")
    assert (status, found) == (2, None)
    assert "the check was not evaluated" in reported
