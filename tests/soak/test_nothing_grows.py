"""After many sessions, server and program have what they had after few.

That is: threads, descriptors and memory. ``make soak CYCLES=1000 ARGUMENTS=-s`` prints the figures; the suite makes
few, and looks at memory for no more than what cannot be overlooked.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from tests.client.free_program import FreeProgram
from tests.conftest import NewSession
from tests.server.programs import write
from tests.server.test_tcp import TcpServer
from tests.soak.counts import count, is_soaking
from tests.soak.lives import DEFAULTS, PLACES, PROGRAM

CYCLES = count("CYCLES", 8)
WARM = 4
"""After this part of them it is looked for the first time: caches are full by then."""

pytestmark = pytest.mark.timeout(600 + 10 * CYCLES)


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


def check_flat(what: str, sizes: list[Size], soaked: bool) -> None:
    """``sizes`` are those after the first part, and at the end."""
    print(f"{what}: {' '.join(str(size) for size in sizes)}")  # noqa: T201  (the figures of a soak, by ``-s``)
    first, last = sizes[0], sizes[-1]
    assert last.threads <= first.threads, f"{what}: threads {sizes}"
    assert last.descriptors <= first.descriptors, f"{what}: descriptors {sizes}"
    allowed = first.megabytes * 0.05 + 2 if soaked else 40
    assert last.megabytes - first.megabytes <= allowed, f"{what}: memory {sizes}"


def test_sessions_leave_nothing_in_a_server(tmp_path: Path) -> None:
    server = TcpServer("--listen", "127.0.0.1:0")
    program = write(tmp_path, "print('ran')")
    sizes = []
    for number in range(CYCLES):
        client = server.connect()
        client.run(program, server.token)
        client.wait_for("terminated")
        client.connection.request("disconnect", timeout=30)
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
    try:
        host, port = program.address()
        modes = itertools.cycle(PLACES)
        for number in range(CYCLES):
            session = new_session()
            with session.configuring("attach", {"connect": {"host": host, "port": port}, **DEFAULTS}):
                session.set_breakpoints(PROGRAM, PLACES[mode := next(modes)], mode=mode)
            stop = session.wait_for_stop("breakpoint")
            assert stop.frame.evaluate("1 + 1").text == "2"
            session.disconnect()
            session.close()
            if number in (CYCLES // WARM, CYCLES - 1):
                sizes.append(settled(program.process_id, sizes))
    finally:
        program.end()
    check_flat("program", sizes, is_soaking("CYCLES"))


def settled(process_id: int, before: list[Size]) -> Size:
    """The size of a process when the session before is over in it, too: the last thread ends after the last message."""
    for _ in range(200):
        size = size_of(process_id)
        if before and (size.threads, size.descriptors) <= (before[0].threads, before[0].descriptors):
            return size
        psutil.Process(process_id).cpu_percent(interval=0.02)
    return size_of(process_id)
