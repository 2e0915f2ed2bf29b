"""``dynamo-dap diff --caches`` names what differs in the key of each compile that a filled cache does not serve."""

from __future__ import annotations

import json
import os
import re
import sys
from dataclasses import dataclass
from pathlib import Path

import jsonschema
import msgspec
import pytest

from dynamo_dap.commands.diff import main
from dynamo_dap.commands.run import main as run
from dynamo_dap.commands.schema import schema_of
from dynamo_dap.diff.cache_trials import trials_of, with_answers
from dynamo_dap.diff.model import JsonCaches, NotCached
from dynamo_dap.diff.sides import Run
from dynamo_dap.records.events import CacheAnswered, CompileBegan, CompileEnded, Record
from dynamo_dap.records.model import CacheLookup, Place
from tests.client.environments import alone
from tests.client.zygote import python


@dataclass(frozen=True)
class Cause:
    """Why a compile is not served in run B."""

    call: str
    """How ``compiled`` is called; ``B`` is whether this is run B."""
    part: str = ""
    """The part of the key that differs; empty for the graph, or for a cache that is bypassed."""
    says: str = ""
    """Something in its texts."""
    line: str = ""
    """The text of the line, where it is not the function's own."""
    advice: str = ""
    options: str = ""
    body: str = "return x @ x"


_PASS = "with config.patch(post_grad_custom_post_pass={}): compiled(ones(8))"
CAUSES = {
    "setting": Cause(
        "with config.patch(coordinate_descent_tuning=B): compiled(ones(8))",
        "inductor_config[coordinate_descent_tuning]",
        advice="Set torch._inductor.config.coordinate_descent_tuning",
    ),
    "option": Cause(
        "compiled(ones(8))",
        "inductor_config[max_fusion_size]",
        options=', options={"max_fusion_size": 32 + B}',
    ),
    "autograd_setting": Cause(
        "with autograd_config.patch(cse=not B): compiled(ones(8))", "autograd_config", advice="torch._functorch.config"
    ),
    "threads": Cause(
        "compiled(ones(8))\ntorch.set_num_threads(2)",
        "cpp_runtime_thread_count",
        advice="OMP_NUM_THREADS",
        body="return (x @ x).sin()",
    ),
    "default_dtype": Cause("compiled(ones(8))", "default_dtype", advice="torch.set_default_dtype"),
    "deterministic": Cause(
        "compiled(ones(8))", "deterministic_algorithms", advice="torch.use_deterministic_algorithms"
    ),
    "precision": Cause("compiled(ones(8))", "cuda_matmul_settings", advice="torch.backends.cuda.matmul"),
    "no_grad": Cause(
        # Torch stores the entry of a call with gradients once it has compiled the backward pass.
        "with torch.set_grad_enabled(not B): y = compiled(ones(8).requires_grad_())\n"
        "y.requires_grad and y.sum().backward()",
        "grad_enabled",
        advice="torch.no_grad",
        body="return (x @ x).tanh()",
    ),
    "tag": Cause("with compiler_config.patch(cache_key_tag=str(B)): compiled(ones(8))", "cache_key_tag"),
    "dtype": Cause("compiled(ones(8).to(torch.float64 if B else torch.float32))", "example_inputs[0]"),
    "shape": Cause("compiled(ones(8 + B))", "example_inputs[0]", advice="shapes"),
    "stride": Cause("compiled(ones(8).t() if B else ones(8))", "example_inputs[0]"),
    "requires_grad": Cause("compiled(ones(8).requires_grad_(B))", "example_inputs[0]"),
    "line": Cause(
        "compiled(ones(8))",
        says="+t = x.t()",
        line="y = x @ (x.t() if B else x)",
        body="y = x @ (x.t() if B else x)\n    return y",
    ),
    "number": Cause(
        "compiled(ones(8))",
        says="alpha",
        line="y = torch.addmm(x, x, x, alpha=1.5 + B)",
        advice="pass it as a tensor",
        body="y = torch.addmm(x, x, x, alpha=1.5 + B)\n    return y",
    ),
    "pass_without_uuid": Cause(
        _PASS.format("(lambda graph: None) if B else None"), says="custom pass", advice="uuid()"
    ),
    "other_uuid": Cause(
        _PASS.format("Pass(str(B))"), "post_grad_custom_post_pass", advice="uuid() of post_grad_custom"
    ),
    "unpicklable": Cause(_PASS.format("Pass(lambda: None) if B else None"), says="pickle", advice="cannot be pickled"),
    "freezing": Cause(
        "with config.patch(freezing=B), torch.no_grad(): compiled(ones(8))", says="freezing", advice="freezing off"
    ),
    "size_guard": Cause(
        "compiled(ones(16) if B else ones(4))",
        says="guards of the entry: 2 <= x.shape[0] <= 8",
        line="if x.shape[0] > 8:",
        options=", dynamic=True",
        body="if x.shape[0] > 8:\n        pass\n    return x @ x",
    ),
    "function_in_graph": Cause(
        "compiled(ones(8))",
        says="double",
        line="y = double(x)",
        advice="unsafe_marked_cacheable_functions",
        body="y = double(x)\n    return y",
    ),
}
_AROUND = {
    "threads": "torch.set_num_threads(1 + B)",
    "default_dtype": "torch.set_default_dtype(torch.float64 if B else torch.float32)",
    "deterministic": "torch.use_deterministic_algorithms(B); torch.set_default_dtype(torch.float32)",
    "precision": "torch.use_deterministic_algorithms(False)\n"
    "torch.set_float32_matmul_precision('high' if B else 'highest')",
    "no_grad": "torch.set_float32_matmul_precision('highest')",
}
HEAD = """\
import os
import torch
import torch._functorch.config as autograd_config
import torch._inductor.config as config
import torch.compiler.config as compiler_config
from torch._inductor.custom_graph_pass import CustomGraphPass

B = os.environ["RUN"] == "B"
ones = lambda n: torch.ones(n, n, dtype=torch.float32)

class Pass(CustomGraphPass):
    def __init__(self, identity):
        self.identity = identity
    def __call__(self, graph):
        pass
    def uuid(self):
        return self.identity

@torch._dynamo.allow_in_graph
def double(x):
    return x @ x

@torch.compile
def served(x):
    return x @ x

served(ones(8))
"""


def _program(folder: Path) -> Path:
    parts = [HEAD]
    for name, cause in CAUSES.items():
        parts.append(f"def {name}(x):\n    {cause.body}\n")
        parts.append(f"compiled = torch.compile({name}{cause.options})")
        parts += [_AROUND[name]] if name in _AROUND else []
        parts.append(cause.call)
    path = folder / "program.py"
    path.write_text("\n".join(parts) + "\n")
    return path


@pytest.fixture(scope="module")
def program_and_report(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, JsonCaches]:
    """Compare two runs of a program with all causes: a run for each would take minutes."""
    path = _program(tmp_path_factory.mktemp("caches"))
    with pytest.MonkeyPatch.context() as patched:
        written: list[str] = []
        patched.setattr(sys.stdout, "write", written.append)
        status = main(["--caches", "--json", "--python", *python(), f"RUN=A {path}", f"RUN=B {path}"])
    assert status == 1
    printed = "".join(written)
    jsonschema.validate(json.loads(printed), schema_of("diff-caches"), cls=jsonschema.Draft202012Validator)
    return path, msgspec.json.decode(printed, type=JsonCaches)


@pytest.mark.parametrize("name", CAUSES)
def test_a_planted_cause_is_named(name: str, program_and_report: tuple[Path, JsonCaches]) -> None:
    path, found = program_and_report
    cause, missed = CAUSES[name], _of(found, name)
    if cause.part:
        assert cause.part in [part.name for part in missed.parts]
        assert not missed.diff
    assert cause.says in "\n".join([*missed.reasons, *missed.diff, missed.text or ""])
    assert cause.advice in "\n".join(missed.advice)
    assert missed.place is not None
    assert path.read_text().splitlines()[missed.place.line - 1].strip() == (cause.line or f"def {name}(x):")


@pytest.mark.long
def test_each_compile_hits_once_its_cause_is_gone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The named causes are all that kept the compiles of run B from the cache."""
    path = _program(tmp_path)
    marked = "\nconfig.unsafe_marked_cacheable_functions = {'__main__.double': '1'}\n"
    path.write_text(path.read_text().replace("\nB = ", f"{marked}B = "))
    assert main(["--caches", "--json", "--python", *python(), f"RUN=A {path}", f"RUN=A {path}"]) == 0
    found = msgspec.json.decode(capsys.readouterr().out, type=JsonCaches)
    assert (found.hits, found.not_cached) == (len(CAUSES) + 1, [])


def test_what_the_cache_serves_is_not_listed(program_and_report: tuple[Path, JsonCaches]) -> None:
    _, found = program_and_report
    assert found.hits == 1
    assert [each.function for each in found.not_cached] == list(CAUSES)


def test_values_are_shown_where_they_differ(program_and_report: tuple[Path, JsonCaches]) -> None:
    _, found = program_and_report
    values = {name: (_of(found, name).parts[0].in_a, _of(found, name).parts[0].in_b) for name in ("dtype", "option")}
    assert values == {"dtype": ("dtype=torch.float32", "dtype=torch.float64"), "option": ("32", "33")}


def _of(found: JsonCaches, name: str) -> NotCached:
    return next(each for each in found.not_cached if each.function == name)


COLD = """\
import sys, time, torch

@torch.compile
def scaled(x):
    return torch.addmm(x, x, x, alpha=FACTOR)

FACTOR = time.time() if sys.argv[1:] else 2.0
scaled(torch.ones(4, 4))
"""


@pytest.mark.parametrize(("argument", "status"), [([], 0), (["noise"], 1)])
def test_run_cold_and_warm(
    argument: list[str], status: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "program.py"
    path.write_text(COLD)
    assert run(["--cold", "--warm", "--python", *python(), str(path), *argument]) == status
    printed = capsys.readouterr().out
    assert f", {1 - status} hit the caches" in printed
    # The costs of both starts are side by side, by phase.
    assert re.search(r"^compile time +\d+\.\d\d s +\d+\.\d\d s$", printed, re.MULTILINE), printed
    assert re.search(r"^  backend +\d+\.\d\d s +\d+\.\d\d s$", printed, re.MULTILINE), printed
    if status:
        assert "program.py:5  return torch.addmm(x, x, x, alpha=FACTOR)" in printed
        assert "Do (not tried): A number" in printed
        assert "pass it as a tensor." in printed


TRIED = """\
import os, torch
import torch._inductor.config as config

B = os.environ["RUN"] == "B"
config.coordinate_descent_tuning = B

@torch.compile
def tuned(x):
    return x @ x

@torch.compile
def large(x):
    return x @ x + x

tuned(torch.ones(4, 4))
config.coordinate_descent_tuning = False
large(torch.ones(4 + B, 4 + B))
"""


def test_a_setting_that_differs_is_tried(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "program.py"
    path.write_text(TRIED)
    assert main(["--caches", "--try", "--python", *python(), f"RUN=A {path}", f"RUN=B {path}"]) == 1
    printed, errors = capfd.readouterr()
    assert "running B again with torch._inductor.coordinate_descent_tuning=False" in errors
    assert "(tried, it is a hit): Set torch._inductor.config.coordinate_descent_tuning" in printed
    assert "(not tried): The inputs differ" in printed


def test_a_trial_that_does_not_help_is_reported_as_such(program_and_report: tuple[Path, JsonCaches]) -> None:
    path, found = program_and_report
    trials = {name: each for each in trials_of(found) for name, _ in each.compiles}
    assert trials.keys() == {"setting", "option", "threads", "freezing"}
    assert [name for name, trial in trials.items() if trial.is_of_both] == ["freezing"]
    assert trials["threads"].variables == {"OMP_NUM_THREADS": "1"}
    assert trials["option"].settings == {"_inductor.max_fusion_size": 32}
    missed = _of(found, "threads")
    run = Run(str(path), [_compiled(missed)])
    still = _of(with_answers(found, trials["threads"], found, run, run), "threads")
    assert still.served_when_tried is False
    nothing = with_answers(found, trials["threads"], found, Run(str(path), []), run)
    assert _of(nothing, "threads").served_when_tried is None, "it was not compiled"


def _compiled(missed: NotCached) -> Record:
    record = Record()
    record.apply(CompileBegan(missed.compile, missed.function, missed.function, Place("x", 1), Place("x", 1), 0.0))
    record.apply(CacheAnswered(missed.compile, CacheLookup("FX graph cache", "miss")))
    record.apply(CompileEnded(missed.compile, "compiled", seconds=0.1))
    return record


TRAINED = """\
import os, sys, torch

@torch.compile
def trained(x):
    return (x @ x).tanh()

y = trained(torch.ones(8, 8, requires_grad=True))
if sys.argv[1:]:
    y.sum().backward()
"""


def test_an_entry_that_waits_for_the_backward_pass(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "program.py"
    path.write_text(TRAINED)
    assert run(["--cold", "--warm", "--python", *python(), str(path)]) == 1
    printed = capsys.readouterr().out
    assert "AOTAutograd cache miss, FX graph cache hit" in printed
    assert "has compiled the backward pass" in printed
    assert "Run the backward pass" in printed
    assert run(["--cold", "--warm", "--python", *python(), str(path), "backward"]) == 0
    assert "1 hit" in capsys.readouterr().out


def test_trace_logs_of_two_processes_are_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "program.py"
    path.write_text(COLD)
    for folder, argument in (("a", []), ("b", ["noise"])):
        environment = {**os.environ, "TORCH_TRACE": str(tmp_path / folder), "TORCHINDUCTOR_CACHE_DIR": str(tmp_path)}
        alone(path, *argument, env=environment)
    assert main(["--caches", str(tmp_path / "a"), str(tmp_path / "b")]) == 1
    printed = capsys.readouterr().out
    assert re.search(r"\+addmm\w* = torch.addmm\(.*alpha = ", printed), printed
    assert "program.py:5" in printed


def test_a_run_without_caches_cannot_be_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "program.py"
    path.write_text(COLD.replace("@torch.compile", '@torch.compile(backend="eager")'))
    assert main(["--caches", "--python", *python(), str(path)]) == 2
    assert "reports no caches" in capsys.readouterr().err
