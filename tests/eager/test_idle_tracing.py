"""The main thread of a program or child process is traced only while debugpy needs it, such as for a breakpoint."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.client import Fixture, Session
from tests.client.free_program import FreeProgram
from tests.conftest import NewSession
from tests.eager.test_child_processes import DEADLINE, Family

PROGRAM = Fixture("eager/untraced")

Start = Callable[..., None]


@pytest.fixture
def start(session: Session, tmp_path: Path) -> Iterator[Start]:
    """Starts the program with the filter that VS Code sets by default. Ends it after the test."""
    file = tmp_path / "continues"
    file.touch()

    def start(*compile_time: str, mode: str = "compile-time", **options: object) -> None:
        with session.launching(PROGRAM, mode=mode, args=[str(file)], **options):
            session.request("setExceptionBreakpoints", {"filters": ["uncaught"]})
            if compile_time:
                session.set_breakpoints(PROGRAM, *compile_time, mode="compile-time")

    yield start
    session.set_breakpoints(PROGRAM)
    file.unlink()
    assert session.run_to_end() == 0
    assert session.output("stdout") == "traced by None\nended\n"


def test_a_breakpoint_that_is_set_while_it_runs_is_hit(session: Session, start: Start) -> None:
    start()
    session.wait_for_output("traced by None")
    assert session.set_breakpoints(PROGRAM, "after")[0].verified
    stop = session.wait_for_stop("breakpoint", at="after")
    assert stop.frame["Locals"]["result"]["0"].text == "2.0"
    session.next()


SLOW_START = """
import os, sys, threading, time

def slow_down():
    debugger = None
    while debugger is None:
        time.sleep(0.001)
        debugger = getattr(sys.modules.get("dynamo_dap.debuggee.eager.debugpy_debugger"), "DebugpyDebugger", None)
    pause = debugger.pause_until_program_runs

    def pause_later(self):
        print("debugpy has started", flush=True)
        until = time.monotonic() + 1
        while time.monotonic() < until:
            pass
        pause(self)

    debugger.pause_until_program_runs = pause_later

threading.Thread(target=slow_down, daemon=True).start()
"""


def test_a_program_that_begins_after_its_configuration_is_stopped_in(session: Session, tmp_path: Path) -> None:
    """A busy machine can delay the main thread between the start of debugpy and the program."""
    (tmp_path / "sitecustomize.py").write_text(SLOW_START)
    (tmp_path / "continues").touch()
    options = {"args": [str(tmp_path / "continues")], "env": {"PYTHONPATH": str(tmp_path)}, "python": [sys.executable]}
    with session.launching(PROGRAM, **options):
        session.wait_for_output("debugpy has started")
    session.wait_for_output("traced by None")
    session.set_breakpoints(PROGRAM, "after")
    session.wait_for_stop("breakpoint", at="after")
    session.set_breakpoints(PROGRAM)
    (tmp_path / "continues").unlink()
    assert session.run_to_end() == 0


def test_it_pauses(session: Session, start: Start) -> None:
    start()
    session.wait_for_output("traced by None")
    session.client.pause(session.client.threads()[0].id)
    stop = session.wait_for_stop("pause")
    assert stop.frames[-1].name == "<module>"


def test_a_step_out_of_a_trace_lands_on_the_eager_line(session: Session, start: Start) -> None:
    start("traced")
    session.wait_for_stop("breakpoint", at="traced")
    session.step_out(at="call")
    session.next(at="after")


def test_a_breakpoint_that_is_set_while_dynamo_traces_is_hit(session: Session, start: Start) -> None:
    start("traced")
    session.wait_for_stop("breakpoint", at="traced")
    session.set_breakpoints(PROGRAM, "count", mode="eager")
    session.resume()
    session.wait_for_stop("breakpoint", at="count")


def test_a_breakpoint_that_is_set_in_generated_code_is_hit(session: Session, start: Start) -> None:
    """On Python 3.11, the run-time engine then traces the thread, and passes events on to debugpy."""
    start(mode="run-time", stopOnGeneratedCode=True)
    session.wait_for_stop("entry")
    session.set_breakpoints(PROGRAM, "after", mode="eager")
    session.next(granularity="instruction")
    session.resume()
    session.wait_for_stop("breakpoint", at="after")


@pytest.fixture
def importing(tmp_path: Path) -> Fixture:
    """A program with its own module torch, which reports its trace function, and imports a module with a known name."""
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text(
        "import sys\nimport colorsys\ntraced_by = sys.gettrace()  #@inside\n", encoding="utf-8"
    )
    (tmp_path / "colorsys.py").write_text("value = 3  #@module\n", encoding="utf-8")
    program = tmp_path / "program.py"
    program.write_text(
        "import torch  #@import\nprint('traced by', torch.traced_by)  #@after\nprint('ended')\n", encoding="utf-8"
    )
    return Fixture(program)


def test_the_import_of_torch_is_untraced_and_what_follows_is_not(session: Session, importing: Fixture) -> None:
    session.launch(importing, "import", python=[sys.executable])
    session.wait_for_stop("breakpoint", at="import")
    session.next(at="after")
    assert session.run_to_end() == 0
    assert session.output("stdout") == "traced by None\nended\n"


@pytest.mark.parametrize(("file", "place"), [("torch/__init__.py", "inside"), ("colorsys.py", "module")])
def test_a_file_of_the_users_that_torch_may_import_is_stopped_in(
    session: Session, importing: Fixture, file: str, place: str
) -> None:
    session.launch(importing.path.parent / file, place, program=str(importing.path), python=[sys.executable])
    session.wait_for_stop("breakpoint", at=place)
    assert session.run_to_end() == 0


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="from 3.12 on sys.monitoring tells nobody of other code")
def test_a_whole_compile_is_untraced_with_its_metrics_and_the_lines_around_it_are_not(
    session: Session, tmp_path: Path
) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        """
import sys, torch
from torch._dynamo import utils
noted, end = [], utils.MetricsContext.__exit__
def note(self, *problem):
    noted.append(sys.gettrace())
    return end(self, *problem)
utils.MetricsContext.__exit__ = note
@torch.compile(backend="eager")
def double(x):
    return x * 2
for size in 2, 3:
    double(torch.ones(size, 2))
    print(size, *set(noted), sys.gettrace() is None)  #@after
""",
        encoding="utf-8",
    )
    fixture = Fixture(program)
    with session.launching(fixture):
        session.set_breakpoints(fixture, "after", mode="eager")
    for _ in range(2):
        session.wait_for_stop("breakpoint", at="after")
        session.resume()
    assert session.wait_for_exit() == 0
    assert session.output("stdout") == "2 None False\n3 None False\n"


WAYS = """
import multiprocessing, os, subprocess, sys, time

def turn(number):
    return number + 1  #@turn

def work(file, problem=None):
    print("traced by", sys.gettrace(), flush=True)
    number = 0
    while os.path.exists(file):
        number = turn(number)
        time.sleep(0.01)
    if problem is not None:
        raise ValueError(problem)  #@raises

if __name__ == "__main__":
    way, *arguments = sys.argv[1:]
    if way == "work":
        work(*arguments)
    elif way == "command":
        subprocess.run([sys.executable, __file__, "work", *arguments])
    elif way == "by_hand":
        child = os.fork()
        if child:
            os.waitpid(child, 0)
        else:
            work(*arguments)
    else:
        process = multiprocessing.get_context(way).Process(target=work, args=arguments)
        process.start()
        process.join()
"""


@pytest.fixture
def family(new_session: NewSession) -> Family:
    return Family(new_session)


def launch_child(family: Family, folder: Path, way: str, *arguments: str) -> tuple[Session, Fixture, Path]:
    """Start a child that runs while a file exists; return its session, the program and the file."""
    program, file = Fixture(folder / "program.py"), folder / "continues"
    program.path.write_text(WAYS)
    file.touch()
    with family.parent.launching(program, args=[way, str(file), *arguments]):
        pass
    with family.child() as child:
        child.request("setExceptionBreakpoints", {"filters": ["uncaught"]})
    return child, program, file


@pytest.mark.parametrize("way", ["command", "spawn", "forkserver", "fork", "by_hand"])
def test_a_child_is_traced_from_its_first_breakpoint_on(family: Family, tmp_path: Path, way: str) -> None:
    child, program, file = launch_child(family, tmp_path, way)
    family.parent.wait_for_output("traced by None")
    child.set_breakpoints(program, "turn")
    stop = child.wait_for_stop("breakpoint", at="turn")
    assert "work" in [frame.name for frame in stop.frames]
    child.set_breakpoints(program)
    file.unlink()
    child.resume()
    assert family.parent.wait_for_exit() == 0


@pytest.mark.parametrize("way", ["command", "by_hand"])
def test_an_untraced_child_stops_for_the_exception_that_ends_it(family: Family, tmp_path: Path, way: str) -> None:
    child, _, file = launch_child(family, tmp_path, way, "no more")
    child.expects_program_traceback = family.parent.expects_program_traceback = True
    family.parent.wait_for_output("traced by None")
    file.unlink()
    stop = child.wait_for_stop("exception", at="raises")
    assert stop.frame["Locals"]["problem"].text == "'no more'"
    child.resume()
    assert family.parent.wait_for_exit() == 0
    assert "ValueError: no more" in family.parent.output("stderr")


LISTENS = """
import os, sys, time
import dynamo_dap

print("listening on %s:%s" % dynamo_dap.listen(0, access_token="token"))
file, how = sys.argv[1:]
if how == "waits":
    dynamo_dap.wait_for_client()

def turn(number):
    return number + 1  #@turn

number = 0
while os.path.exists(file):
    number = turn(number)
    if os.path.exists("attached") and sys.gettrace() is None:
        os.remove("attached")
        print("untraced")
    time.sleep(0.01)
raise ValueError("no more")  #@raises
"""


@pytest.fixture
def listening(tmp_path: Path) -> Iterator[Callable[[str], FreeProgram]]:
    """Starts a program that runs while a file exists. Ends it after the test."""
    started: list[FreeProgram] = []

    def start(how: str) -> FreeProgram:
        (tmp_path / "program.py").write_text(LISTENS)
        (tmp_path / "continues").touch()
        started.append(FreeProgram(tmp_path / "program.py", "continues", how, folder=tmp_path))
        return started[-1]

    yield start
    for program in started:
        program.process.kill()
        program.process.wait()


@pytest.mark.parametrize("is_traced", [False, True])
@pytest.mark.parametrize("how", ["waits", "runs"])
def test_an_attached_program_is_traced_from_its_first_breakpoint_on(
    session: Session, tmp_path: Path, listening: Callable[[str], FreeProgram], how: str, is_traced: bool
) -> None:
    """Traced or not, it stops for the exception that ends it."""
    fixture, program = Fixture(tmp_path / "program.py"), listening(how)
    host, port = program.address()
    with session.configuring("attach", {"connect": {"host": host, "port": port}, "accessToken": "token"}):
        session.request("setExceptionBreakpoints", {"filters": ["uncaught"]})
    (tmp_path / "attached").touch()
    program.wait_for_line("untraced")
    if is_traced:
        session.set_breakpoints(fixture, "turn")
        session.wait_for_stop("breakpoint", at="turn")
        session.set_breakpoints(fixture)
        session.resume()
    (tmp_path / "continues").unlink()
    stop = session.wait_for_stop("exception", at="raises")
    assert "ValueError" in str(stop.body)
    session.resume()
    assert program.process.wait(DEADLINE) == 1
    assert program.lines[-1] == "ValueError: no more"
