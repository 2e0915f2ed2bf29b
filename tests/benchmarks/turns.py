"""The benchmark's end of a program that does something each time it is told to, so that programs can take turns."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
from pathlib import Path
from typing import TextIO


class TurnTaker:
    """A program that connected to the benchmark: it reads a line per turn, and answers with what that took."""

    def __init__(self, listener: socket.socket) -> None:
        """Wait until the program, which was just started, has connected to ``listener``."""
        listener.settimeout(120)
        self._connection, _ = listener.accept()
        self._lines: TextIO = self._connection.makefile("rw")

    def do(self, what: object) -> list[float]:
        """Have it do something once; return the seconds that it tells."""
        print(what, file=self._lines, flush=True)
        return [float(seconds) for seconds in self._lines.readline().split()]

    def close(self) -> None:
        """Let it end."""
        self._lines.close()
        self._connection.close()


class TurnTakers:
    """Where programs connect, as ``python PROGRAM PORT``. A context manager, which ends them."""

    def __init__(self, program: Path) -> None:
        self._program = program
        self._stack = contextlib.ExitStack()
        self._listener = self._stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        self.port = str(self._listener.getsockname()[1])

    def start_plainly(self) -> TurnTaker:
        """Start the program without a debugger."""
        process = subprocess.Popen([sys.executable, str(self._program), self.port])
        self._stack.callback(process.wait)
        return self.accept()

    def accept(self) -> TurnTaker:
        """Wait for the program that was just started."""
        taker = TurnTaker(self._listener)
        self._stack.callback(taker.close)
        return taker

    def start(self, debugged: contextlib.AbstractContextManager[object]) -> TurnTaker:
        """Start the program by entering ``debugged``."""
        self._stack.enter_context(debugged)
        return self.accept()

    def __enter__(self) -> TurnTakers:
        return self

    def __exit__(self, *raised: object) -> None:
        self._stack.close()
