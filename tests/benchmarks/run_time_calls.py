"""What debugging costs while compiled functions are called: ``make bench``.

10,000 calls of a compiled function, plain and under the debugger in turn, in one run, so that whatever else the machine
does falls on all alike. Medians of ratios; the thread's processor seconds say the same on a busy machine.
"""

from __future__ import annotations

import argparse
import contextlib
import socket
import statistics
import subprocess
import sys
from pathlib import Path
from typing import TextIO

from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.benchmarks.debugged import DebuggedProgram
from tests.client.fixtures import Fixture

PROGRAM = Path(__file__).with_name("programs") / "calls.py"
CALLS = 10_000
TURNS = 10
"""The calls are made in turns, so that plain and debugged ones are as close in time as can be."""


class CallingProgram:
    """The benchmark's end of a process that runs ``programs/calls.py``."""

    def __init__(self, listener: socket.socket) -> None:
        """Wait until the program, which was just started, has connected to ``listener``."""
        listener.settimeout(120)
        self._connection, _ = listener.accept()
        self._lines: TextIO = self._connection.makefile("rw")
        self.taken: list[tuple[float, float]] = []

    def call(self) -> None:
        """Have it make its share of the calls."""
        print(CALLS // TURNS, file=self._lines, flush=True)
        seconds, processor_seconds = map(float, self._lines.readline().split())
        self.taken.append((seconds, processor_seconds))

    def close(self) -> None:
        """Let it end."""
        self._lines.close()
        self._connection.close()


def measure(repeats: int) -> dict[str, list[tuple[float, float]]]:
    """Seconds of each turn: plain, with nothing armed, and with breakpoints that are not hit."""
    fixture = Fixture(PROGRAM)
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        port = str(listener.getsockname()[1])
        plain = subprocess.Popen([sys.executable, str(PROGRAM), port])
        stack.callback(plain.wait)
        programs: dict[str, CallingProgram] = {}

        def connected(name: str) -> None:
            programs[name] = program = CallingProgram(listener)
            stack.callback(program.close)
            program.call()
            program.taken.clear()

        connected("plain")
        debugged = [stack.enter_context(DebuggedProgram(PROGRAM, [port], mode="both"))]
        connected("attached, nothing armed")
        armed = {PROGRAM: [fixture.line("never")]}
        debugged.append(stack.enter_context(DebuggedProgram(PROGRAM, [port], armed, mode="both")))
        connected("a breakpoint elsewhere")
        for _ in range(repeats * TURNS):
            for program in programs.values():
                program.call()
        assert not any(one.has_stopped for one in debugged), "a program has stopped that should not have"
        return {name: program.taken for name, program in programs.items()}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=5, help=f"times {CALLS} calls of each kind")
    options = parser.parse_args()
    measured = measure(options.repeats)
    table = Table(f"{CALLS} calls of a compiled function", "median", "to plain", "processor", "to plain", "aim at most")
    for (name, taken), aim in zip(measured.items(), ("", "1.01", ""), strict=True):
        row = [name]
        for field in range(2):
            row.append(f"{statistics.median(one[field] for one in taken) * TURNS * 1000:.0f} ms")
            ratios = [one[field] / other[field] for one, other in zip(taken, measured["plain"], strict=True)]
            row.append(f"{statistics.median(ratios):.3f}")
        table.add_row(*row, aim)
    Console().print(table)


if __name__ == "__main__":
    main()
