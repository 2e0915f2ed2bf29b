"""``dynamo-dap diff --ranks`` compares two ranks of a job; two logs need not name the program."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from dynamo_dap.commands.diff import main
from dynamo_dap.diff.comparing import compare_runs
from dynamo_dap.diff.sides import Run
from dynamo_dap.protocol.requests.ranks import Rank
from dynamo_dap.records.events import CompileBegan, CompileEnded, GraphMade, GuardsMade, Record, Started
from dynamo_dap.records.model import Graph, Guard, Node, Place
from tests.diff.test_diff_page import NEW, OLD


def test_two_ranks_of_a_folder_of_logs_are_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for rank, folder in ((0, OLD), (1, OLD), (3, NEW)):
        (log,) = folder.iterdir()
        shutil.copy(log, tmp_path / f"dedicated_log_torch_trace_rank_{rank}_abc.log")
    assert main(["--ranks", "0", "3", str(tmp_path)]) == 1
    # Only the log of B has callers, and so the name of the program.
    assert "graph breaks of weighted" in capsys.readouterr().out
    assert main(["--ranks", "0", "1", str(tmp_path)]) == 0
    capsys.readouterr()
    assert main(["--ranks", "0", "7", str(tmp_path)]) == 2
    assert "no rank 7; there are: 0, 1, 3" in capsys.readouterr().err


def test_the_number_of_a_device_is_not_a_difference_of_ranks() -> None:
    one, other = (_run(number, Rank(number)) for number in range(2))
    found = compare_runs(one, other)
    assert not found.differs
    assert [text for text in found.not_compared if "devices" in text]
    kinds = [each.kind for each in compare_runs(_run(0, None), _run(1, None)).differences]
    assert kinds == ["guard", "graph"]


def _run(device: int, rank: Rank | None) -> Run:
    record, place = Record(), Place("/job/train.py", 1)
    record.apply(Started(1, 0.0, 1, ["train.py"], "/job", "3.11", rank=rank))
    record.apply(CompileBegan("0/0", "f", "f", place, place, 0.0))
    guard = Guard(f"check_tensor(L['x'], Tensor, torch.float32, device={device}, size=[3])", "TENSOR_MATCH")
    record.apply(GuardsMade("0/0", 1, [guard], []))
    record.apply(
        GraphMade("0/0", Graph(0, "graph", 1, 0, [Node("x", "placeholder", "x", value=f"f32[3] cuda:{device}")]))
    )
    record.apply(CompileEnded("0/0", "compiled", 1.0))
    return Run("", [record])
