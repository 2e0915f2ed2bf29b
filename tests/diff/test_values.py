"""``dynamo-dap diff --values``: the first value that differs is named at its line, and equal runs have none."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from dynamo_dap.commands.diff import main
from dynamo_dap.diff.comparing import compare_runs
from dynamo_dap.diff.model import Difference
from dynamo_dap.diff.sides import Run, command_of, read_side
from tests.client.zygote import python
from tests.records.programs import CALLS_IN_DYNAMO

NOISY = """\
import sys, torch
calls = []

@torch.library.custom_op("mine::noisy", mutates_args=())
def noisy(x: torch.Tensor) -> torch.Tensor:
    # As a library's kernel would that is not the same in each process.
    return x + (float(sys.argv[1]) if x.numel() == 30 else 0.0)

@noisy.register_fake
def _(x):
    return torch.empty_like(x)

@noisy.register_autograd
def _(ctx, gradient):
    return gradient * (1 + float(sys.argv[2]))
"""
SCORE = f"""\
{NOISY}
@torch.compile(backend="aot_eager")
def score(x, weight):
    y = torch.nn.functional.dropout(x * weight, 0.5)
    y.add_(1)
    z = noisy(y)
    return (z * 2).sum()

torch.manual_seed(0)
for size in (10, 20, 30):
    weight = torch.ones(size, requires_grad=True)
    score(torch.rand(size), weight).backward()
    print(weight.grad.sum().item())
"""
TRAINING = """\
import threading, torch
torch.manual_seed(0)
model = torch.nn.Sequential(
    torch.nn.Linear(16, 64), torch.nn.GELU(), torch.nn.BatchNorm1d(64), torch.nn.Dropout(0.1), torch.nn.Linear(64, 1)
)
compiled = torch.compile(model)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

def train():
    for _ in range(3):
        x = torch.randn(64, 16)
        loss = (compiled(x) - x.sum(1, keepdim=True)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(loss.item().hex())

train()
thread = threading.Thread(target=train)
thread.start()
thread.join()
"""
SUM = """\
import sys, torch
torch.set_num_threads(int(sys.argv[1]))

@torch.compile(backend="aot_eager")
def total(x):
    y = x.exp()
    return y.sum() * 2

total(torch.linspace(0, 5, 1_000_003))
"""
THREADS = f"""\
{NOISY}
{CALLS_IN_DYNAMO}
import threading, time

def score(x):
    return noisy(x.cos()).sum()

def backend(graph, inputs):
    while threads and "together" in sys.argv and calls_in_dynamo() < len(threads):
        time.sleep(0.01)
    threads.clear()
    return graph

threads = []
compiled = torch.compile(score, backend=backend, dynamic=False)
compiled(torch.ones(10))
started = [threading.Thread(target=compiled, args=(torch.full((30,), float(at)),)) for at in range(4)]
threads = list(started)
for each in started:
    each.start()
    if "together" not in sys.argv:
        each.join()
for each in started:
    each.join()
"""


def _run(path: Path, text: str, arguments: str = "", *, with_values: bool = True, variables: str = "") -> Run:
    path.write_text(text)
    given = f"{variables}{path} {arguments}"
    (interpreter,) = python()
    return read_side(given, command_of(given, interpreter), with_values=with_values)


def _values(one: Run, other: Run) -> list[Difference]:
    return [each for each in compare_runs(one, other).differences if each.kind == "value"]


def _line(found: Difference, text: str) -> str:
    assert found.place is not None
    return text.splitlines()[found.place.line - 1].strip()


def test_the_first_operation_and_the_first_gradient_that_differ_are_named(tmp_path: Path) -> None:
    one = _run(tmp_path / "a.py", SCORE, "0 0")
    assert not compare_runs(one, _run(tmp_path / "b.py", SCORE, "0 0")).differs
    (found,) = _values(one, _run(tmp_path / "b.py", SCORE, "0.5 0"))
    assert re.match(r"torch.ops.mine.noisy.default in call \d of score gives another result from the", found.text)
    assert _line(found, SCORE) == "z = noisy(y)"
    (found,) = _values(one, _run(tmp_path / "b.py", SCORE, "0 0.5"))
    assert found.text.startswith("the backward pass of call 1 of ")
    assert "score gives another gradient of weight" in found.text
    (found,) = _values(one, _run(tmp_path / "b.py", SCORE.replace("manual_seed(0)", "manual_seed(1)"), "0 0"))
    assert found.text.startswith("call 1 of score gets another")
    assert "another x; compiled results" in found.text
    assert found.text.endswith("before it are the same")
    (found,) = _values(one, _run(tmp_path / "b.py", SCORE.replace("(10, 20, 30)", "(10, 20)"), "0 0"))
    assert found.text.startswith("only A has")
    assert found.text.endswith("call 5: score")


def test_float64_says_which_of_two_results_is_nearer(tmp_path: Path) -> None:
    one, other = (_run(tmp_path / "program.py", SUM, str(threads)) for threads in (1, 2))
    (found,) = _values(one, other)
    assert _line(found, SUM) == "return y.sum() * 2"
    assert found.text.startswith("sum in call 1 of total gives"), found
    assert "another result from the same operands" in found.text
    errors = [float(line.rpartition(" ")[2]) for line in found.diff[:2]]
    nearer = "A is nearer" if errors[0] < errors[1] else "B is nearer" if errors[1] < errors[0] else "equally near"
    assert nearer in found.diff[2], found.diff


def test_calls_on_other_threads_are_compared_by_what_they_are_given(tmp_path: Path) -> None:
    one = _run(tmp_path / "a.py", THREADS, "0")
    assert not compare_runs(one, _run(tmp_path / "b.py", THREADS, "0")).differs
    (found,) = _values(one, _run(tmp_path / "b.py", THREADS, "0.5"))
    assert "mine.noisy" in found.text
    assert _line(found, THREADS) == "return noisy(x.cos()).sum()"


def test_threads_that_compile_the_same_call_at_once_make_no_difference(tmp_path: Path) -> None:
    one, other = _run(tmp_path / "a.py", THREADS, "0"), _run(tmp_path / "b.py", THREADS, "0 together")
    counts = [len(list(run.records[0].compiles())) for run in (one, other)]
    assert counts == [2, 5], "torch compiles the call once for each thread that waits"
    found = compare_runs(one, other)
    assert not found.differs, found.differences
    assert any("an earlier compile accepts" in text for text in found.not_compared)


@pytest.mark.long
def test_training_by_inductor_gives_the_same_numbers_twice_also_from_a_cache(tmp_path: Path) -> None:
    variables = f"TORCHINDUCTOR_CACHE_DIR={tmp_path / 'cache'} "
    cold, warm = (_run(tmp_path / "program.py", TRAINING, variables=variables) for _ in range(2))
    found = compare_runs(cold, warm)
    assert not found.differs, found.differences
    assert any("the compile was a cache hit" in text for text in found.not_compared)
    assert cold.calls is not None
    (calls,) = cold.calls.values()
    assert [call.is_backward for call in calls] == [False, True] * 6
    assert [call.is_on_main_thread for call in calls] == [True] * 6 + [False] * 6
    assert calls[0].operations
    plain = _run(tmp_path / "program.py", TRAINING, variables=variables, with_values=False)
    assert plain.output == cold.output == warm.output, "looking changes no number of the program"


def test_a_record_has_no_values(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "record.jsonl").write_text("")
    assert main(["--values", str(tmp_path / "record.jsonl")]) == 2
    assert "a record has no values" in capsys.readouterr().err


def test_runs_without_a_hashed_value_are_not_called_equal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    program = tmp_path / "program.py"
    program.write_text("import torch\nprint(torch.ones(2).sum())\n", encoding="utf-8")
    assert main([str(program), "--values"]) == 2
    shown = capsys.readouterr()
    assert "No difference" not in shown.out
    assert "omit --values" in shown.err
