"""``dynamo-dap profile``: its times agree with torch's own and with the clock, and its files with each other."""

from __future__ import annotations

import json
import os
import pstats
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest

from dynamo_dap.profile.files import OWN, SPEEDSCOPE, UnreadableProfile, cpu_profile, read_profile
from dynamo_dap.profile.model import FUNCTION, Profile, compile_times, function_times, phase_times, stage_times, totals
from dynamo_dap.protocol.requests.contract import RECORDS_VARIABLE
from tests.client import Session
from tests.client.environments import need_inductor, own_command
from tests.client.fixtures import FIXTURES, Fixture
from tests.client.pages import own_scripts
from tests.client.timeline import DEADLINE
from tests.client.zygote import python
from tests.language_server.editor import Editor

INDUCTOR = """
import json
import time
import torch
import torch._dynamo.utils

def helper(x):
    return torch.relu(x) + 1  #@helper

@torch.compile
def step(x):
    for number in range(3):
        x = helper(x) * number  #@called
    return x.sum()

x = torch.randn(8, 8, requires_grad=True)
began = time.perf_counter()
step(x).backward()
seconds = time.perf_counter() - began
for _ in range(5):
    step(x)
names, columns = torch._dynamo.utils.compile_times(repr="csv", aggregate=True)
print(json.dumps({"seconds": seconds, "torch": dict(zip(names, columns))}))
"""

_HELD = 1.5
_IN_THE_INTERPRETER = {"get_fake_value", "create_proxy", "wrap_to_fake_tensor_and_record", "variable_builder_call"}
"""Torch adds these up over many calls without saying where they begin: they are parts of lines here."""


_IMPORTS_TORCH = ("--python", sys.executable)
"""For a test of a process from its very start: other programs are forked from one that has imported torch."""


def profiled(program: Path, folder: Path, *options: str, check: bool = True, **environment: str) -> tuple[str, Profile]:
    """Run a program with the profiler; return what was printed, and the profile."""
    done = subprocess.run(
        [*own_command(), "profile", "--output", str(folder / "made"), *options, str(program)],
        env={**os.environ, RECORDS_VARIABLE: str(folder / "records"), **environment},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
    )
    assert not check or done.returncode == 0, done.stderr
    return done.stdout + done.stderr, read_profile(folder / f"made{OWN}")


def written(folder: Path, text: str) -> Fixture:
    path = folder / "program.py"
    path.write_text(text)
    return Fixture(path)


@pytest.mark.timeout(480)
def test_the_phases_are_those_of_compile_times(tmp_path: Path) -> None:
    """Each as often and as long as torch says, with Inductor; a second run is served by the caches, and says so."""
    need_inductor("the program")
    program = written(tmp_path, INDUCTOR)
    cache = str(tmp_path / "cache")
    printed, profile = profiled(program.path, tmp_path, TORCHINDUCTOR_CACHE_DIR=cache)
    reported = json.loads(next(line for line in printed.splitlines() if line.startswith("{")))
    phases = {name: spent / 1e9 for name, (_, spent) in phase_times(profile).items()}
    of_torch = {name: float(spent) for name, spent in reported["torch"].items() if name not in _IN_THE_INTERPRETER}
    assert of_torch.keys() <= phases.keys()
    assert len(of_torch) > 20
    assert any(name.startswith("pass.post_grad_passes.") for name in of_torch)
    # On a busy machine the process may wait for its turn between the debugger's look at the clock and torch's.
    alike = [name for name, spent in of_torch.items() if phases[name] == pytest.approx(spent, rel=0.05, abs=0.05)]
    assert len(alike) > len(of_torch) / 2, phases
    compiled = sum(
        spent for stage, spent in stage_times(profile, profile.main).items() if "compiled calls" not in stage
    )
    # The program timed its first call, which is little but compiling.
    imports = stage_times(profile, profile.main)["import of torch"]
    assert reported["seconds"] / 2 < (compiled - imports) / 1e9
    assert {(one.cache, one.state) for one in profile.caches} == {
        ("AOTAutograd cache", "miss"),
        ("FX graph cache", "miss"),
    }
    assert (profile.hits, profile.misses) == (5, 0)
    assert [one.count > 0 and 0 < one.microseconds < 1000 for one in profile.guards] == [True]
    _, again = profiled(program.path, tmp_path, TORCHINDUCTOR_CACHE_DIR=cache)
    assert {(one.cache, one.state) for one in again.caches} == {("AOTAutograd cache", "hit")}


def test_lines_and_functions_that_were_inlined(tmp_path: Path) -> None:
    """Functions, calls and instructions are those that torch traced by its own log, restarts included."""
    program = written(tmp_path, INDUCTOR.replace("@torch.compile", '@torch.compile(backend="eager")'))
    printed, profile = profiled(program.path, tmp_path, TORCH_LOGS="trace_bytecode")
    traced = len(re.findall(r"\[__trace_bytecode\] TRACE ", printed))
    times = {one.frame.name: one for one in function_times(profile)}
    assert traced > 50
    assert sum(one.instructions for one in times.values()) == traced
    step, helper = times["step"], times["helper"]
    assert (step.calls, helper.calls) == (1, 3)
    assert helper.frame.path == str(program.path)
    assert helper.frame.line == program.line("helper") - 1
    own, total = step.lines[program.line("called")]
    assert total - own == helper.total > 0
    assert helper.own == pytest.approx(sum(own for own, _ in helper.lines.values()))
    assert set(helper.lines) == {program.line("helper") - 1, program.line("helper")}
    assert step.total == step.own + helper.total


def test_a_graph_break_a_restart_and_a_program_that_fails(tmp_path: Path) -> None:
    """Torch's own profiler crashes there; here the profile is whole, and the program's status its own."""
    text = (FIXTURES / "graph_break.py").read_text() + "    import sys\n    sys.exit(7)\n"
    program = written(tmp_path, text)
    printed, profile = profiled(program.path, tmp_path, check=False)
    assert "sum 42.0" in printed
    assert [one.reason.splitlines()[0] for one in profile.restarts] == ["Call to `torch._dynamo.graph_break()`"]
    compiles = [frame.name for frame in profile.frames if frame.kind == "compile"]
    assert [name.partition(" [")[0] for name in compiles] == [
        "compile train_step",
        "compile train_step (resumed at line 16)",
    ]
    (train_step,) = [one for one in function_times(profile) if one.frame.line == 10]
    assert train_step.calls == 3
    done = subprocess.run(
        [*own_command(), "profile", "--json", str(program.path)],
        env={**os.environ, RECORDS_VARIABLE: str(tmp_path / "records")},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
    )
    assert done.returncode == 7
    reported = json.loads(done.stdout)
    assert (reported["restarts"], len(reported["compiles"])) == ([msgspec.to_builtins(profile.restarts[0])], 2)
    assert (tmp_path / "program.cpuprofile").exists()


def test_imports_of_the_program_are_a_stage(tmp_path: Path) -> None:
    """With what they import in turn, but for torch; an import that fails has the traceback that it has."""
    (tmp_path / "helper.py").write_text("import torch\nimport inner\n")
    (tmp_path / "inner.py").write_text("numbers = [number**2 for number in range(300_000)]\nimport no_such_module\n")
    text = "import sys, traceback\ntry:\n    import helper\nexcept ImportError:\n    traceback.print_exc()\n"
    printed, profile = profiled(written(tmp_path, text).path, tmp_path, *_IMPORTS_TORCH)
    assert [line for line in printed.splitlines() if line.startswith("  File")] == [
        f'  File "{tmp_path}/program.py", line 3, in <module>',
        f'  File "{tmp_path}/helper.py", line 2, in <module>',
        f'  File "{tmp_path}/inner.py", line 2, in <module>',
    ]
    imported = {frame.name for frame in profile.frames if frame.kind == "import"}
    assert {"helper", "torch"} <= imported
    assert "inner" not in imported
    times = stage_times(profile, profile.main)
    assert 0 < times["other imports"] < times["import of torch"]


def test_the_sum_is_the_time_that_the_clock_shows(tmp_path: Path) -> None:
    program = written(tmp_path, INDUCTOR.replace("@torch.compile", '@torch.compile(backend="eager")'))
    began = time.perf_counter()
    printed, profile = profiled(program.path, tmp_path, *_IMPORTS_TORCH)
    wall = time.perf_counter() - began
    whole = sum(stage_times(profile, profile.main).values())
    assert whole == profile.main.ended
    (reported,) = re.findall(r"The process took ([\d.]+) s. The profiler took ([\d.]+) s of it", printed)
    assert whole / 1e9 < float(reported[0]) < wall
    ours = sum(
        spent for stage, spent in stage_times(profile, profile.main).items() if stage == "recording for this profile"
    )
    assert ours <= profile.cost < whole
    (writing,) = re.findall(r"writing this profile +([\d.]+) s", printed)
    assert float(writing) > 0
    assert float(reported[1]) == pytest.approx(profile.cost / 1e9 + float(writing), abs=0.002)


LIVED = """
import json, os
with open("/proc/self/stat") as file:
    ticks = int(file.read().rpartition(")")[2].split()[19])
with open("/proc/uptime") as file:
    up = float(file.read().split()[0])
print(json.dumps({"lived": up - ticks / os.sysconf("SC_CLK_TCK")}), flush=True)
"""


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="Linux says when a process was started")
def test_the_stages_are_all_of_a_process_s_life(tmp_path: Path) -> None:
    """Up to the program's last line as the kernel counts it, and to the end as the process that started it does."""
    program = written(tmp_path, INDUCTOR.replace("@torch.compile", '@torch.compile(backend="eager")') + LIVED)
    done = subprocess.run(
        [*own_command(), "profile", *_IMPORTS_TORCH, "--json", str(program.path)],
        env={**os.environ, RECORDS_VARIABLE: str(tmp_path / "records")},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    (lived,) = re.findall(r'"lived": ([\d.]+)', done.stderr)
    reported = json.loads(done.stdout)
    ends = {name: reported["stages"].pop(name) for name in ("writing this profile", "interpreter shutdown")}
    # The kernel counts in hundredths of a second. The stages begin before the process, and end after its last line.
    assert float(lived) - 0.05 < sum(reported["stages"].values()) < reported["seconds"]
    assert sum(reported["stages"].values()) + sum(ends.values()) == pytest.approx(reported["seconds"], rel=0.05)
    assert reported["profiler"]["seconds"] >= ends["writing this profile"] > 0


def _validate_speedscope(content: Any) -> dict[int, float]:
    """Every event closes what was opened last; return the time in each frame itself of the active profile."""
    itself: dict[int, float] = {}
    for number, one in enumerate(content["profiles"]):
        stack: list[Any] = []
        last = one["startValue"]
        for event in one["events"]:
            assert event["at"] >= last
            if stack and number == content["activeProfileIndex"]:
                itself[stack[-1]] = itself.get(stack[-1], 0.0) + event["at"] - last
            last = event["at"]
            if event["type"] == "O":
                stack.append(event["frame"])
            else:
                assert stack.pop() == event["frame"]
        assert not stack
        assert last <= one["endValue"]
    return itself


def test_the_files_hold_the_same_times(tmp_path: Path) -> None:
    program = FIXTURES / "graph_break.py"
    _, profile = profiled(program, tmp_path)
    track = profile.main
    own: dict[int, float] = {}
    for node in track.nodes:
        own[node.frame] = own.get(node.frame, 0.0) + node.own / 1000
    speedscope = json.loads((tmp_path / f"made{SPEEDSCOPE}").read_bytes())
    itself = _validate_speedscope(speedscope)
    for frame, spent in own.items():
        assert itself.get(frame, 0.0) == pytest.approx(spent, abs=1)
    made = json.loads((tmp_path / "made.cpuprofile").read_bytes())
    assert made == cpu_profile(profile)
    # What a sample lasts is reported by the next one.
    lasting: dict[int, int] = {}
    for number, node_id in enumerate(made["samples"]):
        later = made["timeDeltas"][number + 1] if number + 1 < len(made["samples"]) else 0
        lasting[node_id] = lasting.get(node_id, 0) + later
    for number, node in enumerate(track.nodes[1:], 1):
        assert lasting[number + 1] == pytest.approx(node.own / 1000, abs=len(made["samples"]))
    (function,) = {
        (each["callFrame"]["url"], each["callFrame"]["lineNumber"])
        for each in made["nodes"]
        if each["callFrame"]["functionName"] == "train_step"
    }
    assert function == (program.as_uri(), 9)
    assert {frame["line"] for frame in speedscope["shared"]["frames"] if frame["name"] == "train_step"} == {10}
    assert totals(track)[0] == track.ended - track.began
    stats = pstats.Stats(str(tmp_path / "made.prof"))
    whole = sum(node.own for each in profile.tracks for node in each.nodes) / 1e9
    assert stats.total_tt == pytest.approx(whole)  # type: ignore[attr-defined]
    calls = stats.get_stats_profile().func_profiles["train_step"]
    assert (calls.file_name, calls.line_number) == (str(program), 10)
    assert 0 < calls.tottime <= calls.cumtime <= whole
    assert FUNCTION in {frame.kind for frame in profile.frames}


def test_printed_paths_begin_at_the_folder_or_at_home(tmp_path: Path) -> None:
    program = FIXTURES / "plain.py"
    below, elsewhere = tmp_path / "work", tmp_path / "other"
    for folder in (below, elsewhere):
        folder.mkdir()
    printed, _ = profiled(program, below)
    assert f" made{SPEEDSCOPE}\n" in printed
    printed, _ = profiled(program, below, "--output", str(elsewhere / "made"), check=False, HOME=str(tmp_path))
    assert f" ~/other/made{SPEEDSCOPE}\n" in printed


def test_why_a_cache_was_bypassed(tmp_path: Path) -> None:
    need_inductor("the program")
    text = "import torch\ntorch._inductor.config.post_grad_custom_pre_pass = lambda graph: None\n"
    text += "@torch.compile\ndef f(x): return x + 1\nf(torch.ones(2))\n"
    printed, profile = profiled(written(tmp_path, text).path, tmp_path)
    (answer,) = [one for one in profile.caches if one.cache == "FX graph cache"]
    assert answer.state == "bypass"
    assert answer.reason is not None
    assert f"bypassed: {answer.reason.splitlines()[0]}" in printed


def test_a_debug_session_writes_one_without_the_time_at_stops(session: Session, tmp_path: Path) -> None:
    program = written(tmp_path, INDUCTOR.replace("@torch.compile", '@torch.compile(backend="eager")'))
    began = time.perf_counter()
    session.launch(program, "helper", cwd=str(tmp_path), profile=True)
    session.wait_for_stop("breakpoint", at="helper")
    time.sleep(_HELD)  # how long the stop lasts, so that it would be seen in the sums
    session.request("setBreakpoints", {"source": {"path": str(program.path)}, "breakpoints": []})
    assert session.run_to_end() == 0
    wall = time.perf_counter() - began
    assert f"compile time is in {tmp_path / 'program.cpuprofile'}" in session.output()
    profile = read_profile(tmp_path / f"program{OWN}")
    assert sum(stage_times(profile, profile.main).values()) == profile.main.ended
    assert 0 < profile.main.ended / 1e9 < wall - _HELD
    times = {one.frame.name: one.calls for one in function_times(profile)}
    assert (times["step"], times["helper"]) == (1, 3)


def test_without_the_option_nothing_is_written(session: Session, tmp_path: Path) -> None:
    program = written(tmp_path, (FIXTURES / "graph_break.py").read_text())
    session.launch(program, cwd=str(tmp_path))
    assert session.wait_for_exit() == 0
    assert [path.name for path in tmp_path.iterdir() if "profile" in path.name] == []


def test_a_lens_shows_how_often_a_function_was_traced_and_how_long(tmp_path: Path) -> None:
    """Inlined functions, too; the graph break is reported by the same record."""
    text = (FIXTURES / "graph_break.py").read_text()
    text = text.replace("total = total + x * index", "total = added(total, x)")
    text = text.replace("@torch.comp", "def added(total, x):  # @added\n    return total + x\n\n\n@torch.comp")
    program = written(tmp_path, text)
    _, profile = profiled(program.path, tmp_path)
    (added,) = [one for one in function_times(profile) if one.frame.name == "added"]
    with Editor(tmp_path, tmp_path / "records") as editor:
        editor.open(program.path)
        editor.wait("the record", lambda: bool(editor.diagnostics.get(program.path)))
        line = program.line("added") - 1
        commands = [one.command for one in editor.lenses(program.path) if one.range.start.line == line]
        titles = [command.title for command in commands if command is not None]
        assert titles == [f"traced 6 times, {added.total / 1e9:.1f} s"]
        assert added.calls == 6  # three rounds, and again after the restart


def test_the_page_runs_nothing_but_its_own_script(tmp_path: Path) -> None:
    """A name of the program's ends no element, and the page says by its policy which script it has."""
    folder = tmp_path / "<img src=x onerror=alert(1)>"
    folder.mkdir()
    printed, profile = profiled(written(folder, "import sys\n").path, folder, "--html")
    page = (folder / "made.profile.html").read_text()
    assert "a flame chart:" in printed
    assert "<img" not in page
    assert page.count("</script>") == 2
    assert len(own_scripts(page)) == 1
    assert {frame.kind for frame in profile.frames} <= {"program", "import", "torch import"}


def test_what_is_no_profile(tmp_path: Path) -> None:
    path = tmp_path / "a.profile.json"
    path.write_text('{"version": 1}')
    with pytest.raises(UnreadableProfile, match="is not a profile"):
        read_profile(path)
    path.write_bytes(msgspec.json.encode(Profile(99, [], [], [])))
    with pytest.raises(UnreadableProfile, match="newer version"):
        read_profile(path)


WITH_CHILDREN = """
import multiprocessing, os, signal, subprocess, sys

def f(x):
    return x + 1

def work(size):
    import torch
    torch.compile(f, backend="eager")(torch.ones(size))

if __name__ == "__main__":
    work(3)
    if sys.argv[1:] == ["killed"]:
        os.kill(os.getpid(), signal.SIGKILL)
    if not sys.argv[1:]:
        for argument in ("ends", "killed"):
            subprocess.run([PYTHON, __file__, argument])
        process = multiprocessing.get_context("fork").Process(target=work, args=(4,))
        process.start()
        process.join()
"""


def test_processes_that_the_program_starts(tmp_path: Path) -> None:
    """They are profiled, recorded and explored as it is; a forked one has no profile, and a killed one is reported."""
    (interpreter,) = python()
    program = written(tmp_path, WITH_CHILDREN.replace("PYTHON", repr(interpreter)))
    output, profile = profiled(program.path, tmp_path, "--python", interpreter)
    assert profile.program == [str(program.path)]
    (ended,) = re.findall(r"program.py ends +(\d+) +1 +\d", output)
    assert re.search(r"killed, or still running: it wrote no profile +\d+", output), output
    assert read_profile(tmp_path / f"made.{ended}{OWN}").program == [str(program.path), "ends"]
    assert len(list(tmp_path.glob(f"made*{OWN}"))) == 2

    def command(*arguments: str) -> str:
        done = subprocess.run(
            [*own_command(), *arguments],
            env={**os.environ, RECORDS_VARIABLE: str(tmp_path / "records")},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=DEADLINE,
            check=True,
        )
        return done.stdout

    # The record of the program is the newest, and says where those of the others are.
    report = command("report")
    assert report.startswith(f"{program.path}\n")
    assert "3 of its child processes" in report
    (other,) = [path for path in re.findall(r"  dynamo-dap report (\S+)", report) if f"-{ended}." in path]
    assert command("report", other).startswith(f"{program.path} ends\n")

    explored = command("explore", "--python", interpreter, "program.py")
    assert explored.count("dynamo  Dynamo's graph  1 operation") == 4
    assert len(re.findall(r"^f \[0/\d of process \d+\]", explored, re.MULTILINE)) == 3
    assert command("explore") == explored


POOL = """
import multiprocessing
import torch

def f(x):
    return x + 1

def work(size):
    return torch.compile(f, backend="eager")(torch.ones(size)).sum().item()

if __name__ == "__main__":
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        print(pool.map(work, [3, 3]))
"""


def test_workers_of_a_pool_are_profiled_and_compared(tmp_path: Path) -> None:
    """The pool kills them at its end."""
    (interpreter,) = python()
    program = written(tmp_path, POOL)
    profiled(program.path, tmp_path, "--python", interpreter)
    (worker,) = tmp_path.glob(f"made.*{OWN}")
    assert [name for name, _ in compile_times(read_profile(worker))] == ["compile f [0/0]"]
    compared = subprocess.run(
        [*own_command(), "compare", "--python", interpreter, "--json", str(program.path)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=True,
    )
    found = [json.loads(line) for line in compared.stdout.splitlines() if line.startswith("{")]
    assert [(each["function"], each.get("compared", True), each["same"]) for each in found] == [("f", True, True)] * 2
