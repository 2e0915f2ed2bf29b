"""After many stops, and after many sessions, server and program have what they had after few.

That is: threads, descriptors, memory, and what Dynamo made in traces that are over. ``make soak STOPS=10000
CYCLES=1000`` prints the figures; the suite makes few, and checks memory for no more than what cannot be overlooked.
"""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from dynamo_dap.protocol.wire.types import SourceBreakpoint
from tests.client import Fixture, Session
from tests.client.environments import alone
from tests.client.free_program import FreeProgram
from tests.client.session import Stop
from tests.client.timeline import DEADLINE
from tests.conftest import NewSession
from tests.server.programs import write
from tests.server.test_tcp import TcpServer
from tests.soak.counts import count, is_soaking
from tests.soak.lives import DEFAULTS, PLACES, PROGRAM

STOPS = count("STOPS", 120)
CYCLES = count("CYCLES", 8)
WARM = 4
"""After this part of them it is looked for the first time: caches are full by then."""
TRACES_LEAVE = ("FakeTensor", "InstructionTranslator", "OutputGraph", "TensorVariable", "SubgraphTracer", "ShapeEnv")
SESSIONS_LEAVE = ("PyDB", "ReaderThread", "SuspendedFramesManager", "Listener", "PyDevdAPI", "DebugpyDebugger")
"""What debugpy and the agent make for each session."""
WATCHES_LEAVE = ("OutputGraph", "TracedCode", "_Watcher")
"""What is held while a trace is noted, and an import waited for."""

pytestmark = pytest.mark.timeout(600 + STOPS + 10 * CYCLES)


@dataclass(frozen=True)
class Size:
    """What a process has."""

    threads: int
    descriptors: int
    megabytes: float


def size_of(process_id: int) -> Size:
    """Look from outside."""
    process = psutil.Process(process_id)
    return Size(process.num_threads(), process.num_fds(), process.memory_info().rss / 2**20)


def check_flat(what: str, sizes: list[Size], soaked: bool, alone: float = 0.0) -> None:
    """``sizes`` are those after the first part, and at the end; ``alone`` is what it grows by without a debugger."""
    figures = f"{' '.join(str(size) for size in sizes)}, without a debugger it grows by {alone:.1f} MB"
    print(f"{what}: {figures}")  # noqa: T201  (the figures of a soak, by ``-s``)
    first, last = sizes[0], sizes[-1]
    assert last.threads <= first.threads, f"{what}: threads {sizes}"
    assert last.descriptors <= first.descriptors, f"{what}: descriptors {sizes}"
    allowed = first.megabytes * 0.05 + 2 if soaked else 40
    assert last.megabytes - first.megabytes - alone <= allowed, f"{what}: memory {figures}"


ALONE = """
import sys
import psutil
sys.path.insert(0, sys.argv[1])
import soaked
marks = [int(each) for each in sys.argv[2:]]
for number in range(1, marks[-1] + 1):
    soaked.once()
    if number in marks:
        print(psutil.Process().memory_info().rss)
"""


def grows_alone(rounds: list[str]) -> float:
    """Return by how many megabytes the program grows between two of its rounds: torch keeps something of each."""
    arguments = [sys.executable, "-c", ALONE, str(PROGRAM.path.parent), *rounds]
    sizes = subprocess.run(arguments, capture_output=True, text=True, timeout=1800, check=True).stdout.split()
    return (int(sizes[-1]) - int(sizes[0])) / 2**20


def rounds_at(stop: Stop) -> str:
    """How many rounds the program has made."""
    return stop.frame.evaluate("__import__('sys').modules['__main__'].rounds", context="clipboard").text


def stops_of(session: Session) -> Iterator[Stop]:
    """Stop again and again, in ordinary Python, in a trace and in generated code."""
    for _ in range(STOPS):
        yield (stop := session.wait_for_stop("breakpoint"))
        session.resume(thread_id=stop.thread_id)


def test_stops_leave_nothing(session: Session) -> None:
    """All scopes are opened at each."""
    with session.launching(PROGRAM, **DEFAULTS, args=["--long"]):
        wanted = [SourceBreakpoint(line=PROGRAM.line(place), mode=mode) for mode, place in PLACES.items()]
        session.set_breakpoints(PROGRAM, *wanted)
    events = session.timeline.events
    program = next(one["body"]["systemProcessId"] for one in events if one["event"] == "process")
    servers, programs, left, rounds = [], [], [], []
    marks = {STOPS // WARM, STOPS - 4}
    wants_mark = False
    for number, stop in enumerate(stops_of(session)):
        for scope in stop.frame.scopes.values():
            scope.open(1)
        session.timeline.forget()
        wants_mark = wants_mark or number in marks
        if wants_mark and stop.marker == "eager":
            wants_mark = False
            left.append(what_is_left(stop))
            rounds.append(rounds_at(stop))
            servers.append(size_of(session.server_process_id))
            programs.append(size_of(program))
    assert len(left) == len(marks)
    check_flat("server", servers, is_soaking("STOPS"))
    check_flat("program", programs, is_soaking("STOPS"), grows_alone(rounds))
    assert left[0] == left[-1], f"what Dynamo made in traces that are over: {left}"
    session.disconnect(terminateDebuggee=True)


def what_is_left(stop: Stop) -> str:
    """How many objects there are that Dynamo makes in a trace."""
    return objects_at(stop, TRACES_LEAVE)


def objects_at(stop: Stop, kinds: tuple[str, ...]) -> str:
    """How many objects of each of these kinds there are, as a list in JSON."""
    names = "__import__('collections').Counter(type(each).__name__ for each in gc.get_objects())"
    counts = f"(lambda found: [found[name] for name in {kinds!r}])({names})"
    return stop.frame.evaluate(f"(lambda gc: (gc.collect(), {counts})[1])(__import__('gc'))", context="clipboard").text


DROPS = """
import gc, json, re
import torch
def plain(number):
    return number + 1  #@eager
def traced(x, log):
    y = x + 1  #@trace
    log.append(2)  #@generated
    torch._dynamo.graph_break()
    return y * 2  #@again
def names():
    return sorted(re.sub(r"_[0-9a-f]{8}_.*", "", name) for name in globals())
def objects():
    gc.collect()
    kinds = [type(each).__name__ for each in gc.get_objects()]
    return [kinds.count(kind) for kind in KINDS]
def once():
    compiled = torch.compile(traced, backend="eager")
    plain(1)
    for _ in range(3):
        compiled(torch.ones(2), [])
KINDS = ("FakeTensor", "GraphModule", "OutputGraph", "InstructionTranslator", "ShapeEnv")
for number in range(4):
    once()
    in_use = names()
    torch.compiler.reset()
    print(json.dumps([in_use, names(), objects()]))
"""


@pytest.mark.parametrize("mode", [*PLACES, None])
def test_what_torch_drops_is_gone_as_without_a_debugger(session: Session, tmp_path: Path, mode: str | None) -> None:
    """Compiled code with its names in the program's globals, its graphs and FakeTensors, whatever was inspected."""
    program = Fixture(write(tmp_path, DROPS))
    plain = alone(program.path)
    with session.launching(program, **DEFAULTS):
        wanted = [
            SourceBreakpoint(line=program.line(place), mode=mode) for place in program.markers if place != "eager"
        ]
        session.set_breakpoints(program, SourceBreakpoint(line=program.line("eager")), *wanted)
    stops = 0
    while session.timeline.expect_first("stopped", "terminated")[0] == "stopped":
        stop = Stop(session, [event["body"] for event in session.timeline.events if event["event"] == "stopped"][-1])
        for scope in stop.frame.scopes.values():
            scope.open(1)
        stops += 1
        session.resume(thread_id=stop.thread_id)
    assert stops >= (4 if mode == "eager" else 12)
    expected, found = (
        [json.loads(line) for line in text.splitlines()] for text in (plain.stdout, session.output("stdout"))
    )
    assert [names for *names, _ in found] == [names for *names, _ in expected]
    beside = [
        [one - other for one, other in zip(has[-1], plainly[-1], strict=True)]
        for has, plainly in zip(found, expected, strict=True)
    ]
    # Torch itself keeps code with a graph break: the trace of its cached calls stays as well, until there is another.
    assert beside == ([[0] * 5] * 4 if mode else beside[:1] * 4)


def test_sessions_leave_nothing_in_a_server(tmp_path: Path) -> None:
    server = TcpServer("--listen", "127.0.0.1:0")
    program = write(tmp_path, "print('ran')")
    sizes: list[Size] = []
    for number in range(CYCLES):
        client = server.connect()
        client.run(program, server.token)
        client.wait_for("terminated")
        client.connection.request("disconnect", timeout=DEADLINE)
        client.wait_for_end()
        client.connection.close()
        if number in (CYCLES // WARM, CYCLES - 1):
            sizes.append(settled(server.process.pid, sizes))
    check_flat("server", sizes, is_soaking("CYCLES"))
    server.end()


def test_debuggers_leave_nothing_in_a_program(new_session: NewSession) -> None:
    """One after the other attaches, stops in each kind of code, and leaves."""
    program = FreeProgram(PROGRAM.path, "--listen", "--long")
    sizes: list[Size] = []
    left: list[str] = []
    watched: list[list[int]] = []
    rounds: list[str] = []
    try:
        host, port = program.address()
        modes = itertools.cycle(PLACES)
        for number in range(CYCLES):
            session = new_session()
            with session.configuring("attach", {"connect": {"host": host, "port": port}, **DEFAULTS}):
                session.set_breakpoints(PROGRAM, PLACES[mode := next(modes)], mode=mode)
            stop = session.wait_for_stop("breakpoint")
            assert stop.frame.evaluate("1 + 1").text == "2"
            left.append(objects_at(stop, SESSIONS_LEAVE))
            watched.append(json.loads(objects_at(stop, WATCHES_LEAVE)))
            rounds.append(rounds_at(stop))
            session.disconnect()
            session.close()
            if number in (CYCLES // WARM, CYCLES - 1):
                sizes.append(settled(program.process_id, sizes))
    finally:
        program.end()
    check_flat("program", sizes, is_soaking("CYCLES"), grows_alone([rounds[CYCLES // WARM], rounds[-1]]))
    assert len(left) == CYCLES
    for name, *counts in zip(SESSIONS_LEAVE, *map(json.loads, left), strict=True):
        assert min(counts) >= 1, f"{name}: nothing is counted"
        # The one or two before it may be held by frames that were entered in their time.
        assert max(counts) <= 5, f"{name}: {counts}"
    for name, *found in zip(WATCHES_LEAVE, *watched, strict=True):
        # One of each mode, when torch is imported: they leave in the middle of a trace, too.
        assert max(found[-3:]) <= max(found[3:6]), f"{name}: {found}"
    assert max(traces for traces, *_ in watched) == 1, "no trace was stopped in"


def settled(process_id: int, before: list[Size]) -> Size:
    """The size of a process when the session before is over in it, too: the last thread ends after the last message."""
    for _ in range(200):
        size = size_of(process_id)
        if before and (size.threads, size.descriptors) <= (before[0].threads, before[0].descriptors):
            return size
        psutil.Process(process_id).cpu_percent(interval=0.02)
    return size_of(process_id)
