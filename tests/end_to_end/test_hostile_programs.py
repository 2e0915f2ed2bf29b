"""Programs that are hostile by accident print and end as without a debugger.

They run with the default options of a launch, and stop at their markers. At a stop, the user may change torch as the
program itself may.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.client import Fixture, Session, zygote
from tests.client.session import Stop
from tests.client.timeline import DEADLINE

DEFAULTS: dict[str, Any] = {"eager": True, "mode": "both"}
"""The default values of these launch options."""

COMPILED = """
import torch

@torch.compile(backend="eager")
def traced(x):
    y = x + 1  #@trace
    return y * 2
"""

OWN_TRACER = """
import sys
from compiled import torch, traced
events = []
def tracer(frame, event, arg):
    if frame.f_code.co_name == "plain":
        events.append((event, frame.f_lineno))
    return tracer
def plain(x):
    z = x + 1
    return z
print(plain(0))  #@before
sys.settrace(tracer)
print(plain(1), traced(torch.ones(2)).tolist())
mine = sys.gettrace() is tracer
sys.settrace(None)
print(plain(2), mine, events)  #@after
"""

SETTINGS = """
import faulthandler, gc, random, signal, sys, threading, warnings
from compiled import torch, traced
faulthandler.enable()
faulthandler.dump_traceback_later(1000)
gc.disable()
gc.set_threshold(5, 6, 7)
sys.setrecursionlimit(777)
sys.setswitchinterval(0.5)
signal.signal(signal.SIGUSR1, signal.SIG_IGN)
random.seed(3)
torch.manual_seed(3)
warnings.simplefilter("error")
def settings():
    return (
        faulthandler.is_enabled(), gc.isenabled(), gc.get_threshold(), sys.getrecursionlimit(), sys.getswitchinterval(),
        signal.getsignal(signal.SIGUSR1), signal.getsignal(signal.SIGINT), warnings.filters[0], threading.excepthook,
        sys.excepthook, sys.displayhook, sys.getprofile(), torch.is_grad_enabled(), torch.get_default_dtype(),
    )
before = settings()
print(traced(torch.ones(2)).tolist())  #@call
print(traced(torch.ones(2)).tolist())
print(settings() == before, random.random(), torch.rand(1).item())
"""

MANY_THREADS = """
import threading
from compiled import torch, traced
there, leave, results = threading.Barrier(1001), threading.Event(), []
def wait(number):
    there.wait()
    leave.wait()
    results.append(number)
threads = [threading.Thread(target=wait, args=(number,)) for number in range(1000)]
for thread in threads:
    thread.start()
there.wait()
print(traced(torch.ones(2)).tolist())  #@call
leave.set()
for thread in threads:
    thread.join()
print(sorted(results) == list(range(1000)))
"""

FORKS = """
import os, threading
from compiled import torch, traced
def work():
    process = os.fork()
    if process == 0:
        os._exit(int(traced(torch.ones(2)).sum()))
    print("child", os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]))
print(traced(torch.ones(2)).tolist())  #@call
for _ in range(3):
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
"""

ASYNCHRONOUS = """
import asyncio
from compiled import torch, traced
async def one(number):
    await asyncio.sleep(0)
    value = traced(torch.full((2,), float(number)))
    await asyncio.sleep(0)
    return value.tolist()  #@resumed
async def main():
    print(await asyncio.gather(one(1), one(2)))
    print((await asyncio.to_thread(traced, torch.ones(2))).tolist())
asyncio.run(main())
"""

LOADS_DATA = """
from compiled import torch, traced
class Items(torch.utils.data.Dataset):
    def __len__(self):
        return 4
    def __getitem__(self, index):
        return torch.full((2,), float(index))
if __name__ == "__main__":
    for batch in torch.utils.data.DataLoader(Items(), num_workers=2):
        print(traced(batch).tolist())  #@batch
"""

PATCHES_DYNAMO = """
import collections, functools
from compiled import torch, traced
import torch._dynamo.convert_frame, torch._dynamo.output_graph, torch._dynamo.symbolic_convert as symbolic_convert
calls = collections.Counter()
def counted(owner, name):
    original = getattr(owner, name)
    @functools.wraps(original)
    def wrapper(*arguments, **named):
        calls[name] += 1
        return original(*arguments, **named)
    setattr(owner, name, wrapper)
    return owner, name, original, wrapper
patches = [
    counted(symbolic_convert.InstructionTranslatorBase, "step"),
    counted(symbolic_convert.InstructionTranslatorBase, "starts_line"),
    counted(torch._dynamo.output_graph.OutputGraph, "call_user_compiler"),
    counted(torch._dynamo.output_graph.OutputGraph, "create_node"),
    counted(torch._dynamo.convert_frame, "_compile"),
    counted(torch._dynamo.convert_frame, "compile_frame"),
    counted(torch._dynamo.convert_frame.CatchErrorsWrapper, "__call__"),
]
print(traced(torch.ones(2)).tolist())  #@call
print(sorted(calls), calls["_compile"], calls["call_user_compiler"])
print(all(getattr(owner, name) is wrapper for owner, name, _, wrapper in patches))
for owner, name, original, _ in patches:
    setattr(owner, name, original)
torch._dynamo.reset()
print(traced(torch.ones(3)).tolist())
print(all(getattr(owner, name) is original for owner, name, original, _ in patches), calls["_compile"])
"""

LAZY_MODULES = """
import sys, types
from compiled import torch, traced
class Lazy(types.ModuleType):
    def __getattr__(self, name):
        raise ImportError(f"{name} needs a package that is not installed")
class Closed(types.ModuleType):
    def __getattribute__(self, name):
        raise ImportError(f"{name} needs a package that is not installed")
sys.modules["lazy"], sys.modules["closed"], sys.modules["odd"] = Lazy("lazy"), Closed("closed"), object()
print(traced(torch.ones(2)).tolist())  #@call
print(traced(torch.ones(2)).tolist())
"""

PROGRAMS = {
    "settrace": (OWN_TRACER, ("before", "trace", "after")),
    "settings": (SETTINGS, ("call", "trace", "trace")),
    "threads": (MANY_THREADS, ("call", "trace")),
    "forks": (FORKS, ("call", "trace")),
    "asyncio": (ASYNCHRONOUS, ("trace", "trace", "resumed", "resumed", "trace")),
    "data loader": (LOADS_DATA, ("batch", "trace") * 4),
    "lazy modules": (LAZY_MODULES, ("call", "trace", "trace")),
    "patches": (PATCHES_DYNAMO, ("call", "trace", "trace")),
}


def write(folder: Path, text: str) -> Fixture:
    """Write a program, and ``compiled.py`` beside it with the compiled function."""
    (folder / "compiled.py").write_text(COMPILED, encoding="utf-8")
    (folder / "program.py").write_text(text, encoding="utf-8")
    return Fixture(folder / "program.py")


def undebugged(program: Fixture, python: list[str], *arguments: str) -> tuple[str, str, int]:
    """Return a program's output, its standard error and its exit code."""
    ran = subprocess.run(
        [*python, "-u", str(program.path), *arguments], capture_output=True, text=True, timeout=100, check=False
    )
    return ran.stdout, ran.stderr, ran.returncode


@pytest.mark.parametrize("name", PROGRAMS)
def test_it_does_as_without_a_debugger(session: Session, tmp_path: Path, name: str) -> None:
    text, places = PROGRAMS[name]
    program = write(tmp_path, text)
    expected = undebugged(program, zygote.python())
    assert expected[1:] == ("", 0), expected
    compiled = Fixture(tmp_path / "compiled.py")
    with session.launching(program, **DEFAULTS, python=zygote.python()):
        session.set_breakpoints(program, *program.markers)
        session.set_breakpoints(compiled, *compiled.markers)
    found = []
    for _ in places:
        stop = session.wait_for_stop("breakpoint")
        found.append(stop.marker)
        look(session, stop)
        session.resume()
    assert session.wait_for_exit() == 0
    assert tuple(found) == places
    assert session.output("stdout") == expected[0]
    assert session.output("stderr") == ""
    reported = "the program traces itself (sys.settrace in program.py, line 13)"
    assert (reported in session.output("important")) == (name == "settrace" and sys.version_info < (3, 12))


def look(session: Session, stop: Stop) -> None:
    """Request everything at a stop that an editor requests."""
    assert session.client.threads()
    for scope in stop.frame.scopes.values():
        scope.open(1)
    assert stop.frame.evaluate("1 + 1").text == "2"


SAME_FUNCTION = """
import torch
def traced(x):
    y = x + 1  #@trace
    return y * 2  #@second
compiled = torch.compile(traced, backend="eager")
for number in range(3):
    print(compiled(torch.ones(2) * number).tolist())  #@call
"""


@pytest.mark.parametrize(
    "done",
    ["torch._dynamo.reset()", "torch.compiler.set_stance('force_eager')", "torch._dynamo.config.suppress_errors"],
)
@pytest.mark.parametrize("place", ["call", "trace"])
def test_what_is_done_to_torch_at_a_stop(session: Session, tmp_path: Path, done: str, place: str) -> None:
    """The stops are in ordinary Python and in a trace. Later breakpoints still stop, and the results are the same."""
    program = write(tmp_path, SAME_FUNCTION)
    with session.launching(program, **DEFAULTS):
        session.set_breakpoints(program, "call", "trace")
    for _ in range(3):
        for marker in ("call", "trace"):
            stop = session.wait_for_stop("breakpoint", at=marker)
            if marker == place:
                if "reset" in done and place == "trace":
                    # torch would free memory that it still uses, and the program would crash.
                    assert "cannot be reset while it traces" in stop.frame.refusal(done, context="repl")
                else:
                    stop.frame.evaluate(done, context="repl")
            session.resume()
    assert session.wait_for_exit() == 0
    assert session.output("stdout") == "[2.0, 2.0]\n[4.0, 4.0]\n[6.0, 6.0]\n"


MEASURED = """
from compiled import torch, traced
def plain(x):
    if x > 1:
        return 2
    return x + 1
print(plain(0))  #@before
print(traced(torch.ones(2)).tolist(), traced(torch.zeros(2)).tolist())
@torch.compile(backend="eager")
def broken(x):
    y = x + 1
    print("a graph break")
    return y * 2
print(broken(torch.ones(2)).tolist(), broken(torch.zeros(2)).tolist())
"""


@pytest.mark.parametrize("stops", [True, False], ids=["stops", "runs"])
def test_coverage_measures_as_without_a_debugger(session: Session, tmp_path: Path, stops: bool) -> None:
    """Compare the executed and missed lines of ``python -m coverage run``."""
    program, compiled = write(tmp_path, MEASURED), Fixture(tmp_path / "compiled.py")
    arguments = {name: ["run", "--branch", f"--data-file={tmp_path / name}", str(program.path)] for name in "ab"}
    plain = subprocess.run(
        [sys.executable, "-m", "coverage", *arguments["a"]],
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=True,
    )
    launch = {"module": "coverage", "args": arguments["b"], "cwd": str(tmp_path), **DEFAULTS}
    with session.configuring("launch", launch):
        if stops:
            session.set_breakpoints(program, "before")
            session.set_breakpoints(compiled, "trace")
    if stops and sys.version_info >= (3, 12):
        session.wait_for_stop("breakpoint", at="before")
        session.resume()
    for _ in range(2 if stops else 0):
        look(session, session.wait_for_stop("breakpoint", at="trace"))
        session.resume()
    assert session.wait_for_exit() == 0
    assert session.output("stdout") == plain.stdout
    assert session.output("stderr") == plain.stderr == ""
    reported = "the program traces itself (threading.settrace in collector.py" in session.output("important")
    assert reported == (sys.version_info < (3, 12))
    expected, found = (measured(tmp_path / name) for name in "ab")
    assert found == expected
    assert expected["program.py"]["missing_lines"]


def measured(data: Path) -> dict[str, Any]:
    """Return coverage's data about each file."""
    command = [sys.executable, "-m", "coverage", "json", "-q", f"--data-file={data}", "-o", "-"]
    reported = json.loads(
        subprocess.run(command, cwd=data.parent, capture_output=True, check=True, timeout=DEADLINE).stdout
    )
    return {path: one for path, one in reported["files"].items() if path in ("program.py", "compiled.py")}


CLOSES_DESCRIPTORS = """
import os, sys, time
print("before")  #@before
os.closerange(3, 4096)
for _ in range(20):
    time.sleep(0.05)
print("after")
sys.exit(5)
"""


@pytest.mark.parametrize("eager", [True, False], ids=["eager", "not eager"])
@pytest.mark.parametrize("console", ["internalConsole", "integratedTerminal"])
def test_a_program_that_closes_all_descriptors_runs_on(
    session: Session, tmp_path: Path, eager: bool, console: str
) -> None:
    program = write(tmp_path, CLOSES_DESCRIPTORS)
    with session.launching(program, mode="both", eager=eager, console=console):
        session.set_breakpoints(program, *(("before",) if eager else ()))
    if eager:
        session.wait_for_stop("breakpoint", at="before")
        session.resume()
    assert session.wait_for_exit() == 5
    if console == "internalConsole":
        assert session.output("stdout") == "before\nafter\n"
        assert session.output("stderr") == ""


OWN_DEBUGGER = """
import pdb
def traced(x):
    {call}
    return x + 1
print(traced(1))
"""


@pytest.mark.parametrize("call", ["pdb.set_trace()", "pdb.Pdb().set_trace()", "__import__('bdb').Bdb().set_trace()"])
def test_a_debugger_of_the_programs_own_stops_in_the_users_line(session: Session, tmp_path: Path, call: str) -> None:
    """Its prompt gets no command, which ends the program."""
    program = write(tmp_path, OWN_DEBUGGER.format(call=call))
    with Path(os.devnull).open("rb") as nothing:
        expected = subprocess.run(
            [sys.executable, str(program.path)], stdin=nothing, capture_output=True, text=True, timeout=100, check=False
        )
    session.expects_program_traceback = True
    session.launch(program, **DEFAULTS)
    assert session.wait_for_exit() == expected.returncode
    assert session.output("stdout") == expected.stdout
    assert session.output("stderr") == expected.stderr


def test_a_debugger_of_the_programs_own_steps(session: Session, tmp_path: Path) -> None:
    program = write(tmp_path, OWN_DEBUGGER.format(call="pdb.set_trace()"))
    typed = tmp_path / "typed"
    typed.write_text("next\np x + 41\nnext\ncontinue\n", encoding="utf-8")
    with typed.open("rb") as commands:
        expected = subprocess.run(
            [sys.executable, str(program.path)], stdin=commands, capture_output=True, text=True, timeout=100, check=True
        )
    assert "42" in expected.stdout
    session.launch(program, **{**DEFAULTS, "inputFile": str(typed)})
    assert session.wait_for_exit() == 0
    assert session.output("stdout") == expected.stdout
    assert session.output("stderr") == expected.stderr


INTERRUPTS = """
import os, signal, sys, time
def deep(number):
    if number == 0:
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(5)
    deep(number - 1)
try:
    deep(2)
except KeyboardInterrupt:
    print("caught")
{how}
"""


@pytest.mark.parametrize("how", ["deep(3)", "raise SystemExit('over')", "raise BaseException('other')"])
def test_interrupts_are_reported_as_without_a_debugger(session: Session, tmp_path: Path, how: str) -> None:
    """The traceback of ``KeyboardInterrupt``, or of another ``BaseException``, has no frame of the debugger."""
    program = write(tmp_path, INTERRUPTS.format(how=how))
    expected = undebugged(program, [sys.executable])
    session.expects_program_traceback = True
    session.launch(program, **DEFAULTS)
    code = session.wait_for_exit()
    assert session.output("stdout") == expected[0] == "caught\n"
    assert session.output("stderr") == expected[1]
    assert code == expected[2]


INTERRUPTED = """
import os, signal
import torch
def interrupt():
    os.kill(os.getpid(), signal.SIGINT)
    for _ in range(10**7):
        pass
def backend(graph, inputs):
    if where == "backend":
        interrupt()
    return graph.forward
def called(x):
    if where == "called":
        interrupt()
    return x
@torch.compile(backend=backend)
def traced(x):
    y = x + 1  #@trace
    z = torch.compiler.disable(called)(y)
    return y * z
where = "{where}"
try:
    traced(torch.ones(2))
except KeyboardInterrupt:
    print("caught")
traced(torch.ones(3))
"""


@pytest.mark.parametrize("stops", [True, False], ids=["stops", "runs"])
@pytest.mark.parametrize("where", ["backend", "called"])
def test_an_interrupt_below_a_compiled_function(session: Session, tmp_path: Path, where: str, stops: bool) -> None:
    """The interrupt comes while Dynamo compiles the function, or while it runs."""
    program = write(tmp_path, INTERRUPTED.format(where=where))
    expected = undebugged(program, [sys.executable])
    session.expects_program_traceback = True
    with session.launching(program, **DEFAULTS):
        session.set_breakpoints(program, *(["trace"] if stops else []))
    while session.timeline.expect_first("stopped", "exited")[0] == "stopped":
        look(session, Stop(session, [one["body"] for one in session.timeline.events if one["event"] == "stopped"][-1]))
        session.client.resume("continue", 1, None)
    session.timeline.expect_event("terminated")
    assert session.output("stdout") == expected[0]
    assert session.output("stderr") == expected[1]
