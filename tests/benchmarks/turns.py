"""The benchmark's end of a program that does something each time it is asked to, so that programs can take turns."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TextIO

ENDING = 60.0
"""Seconds that a program has to end in, once its connection is closed."""
TURN = 600.0
"""Seconds that one turn may take."""


class TurnTaker:
    """A program that connected to the benchmark: it reads a line per turn, and answers with what that took."""

    def __init__(self, listener: socket.socket) -> None:
        """Wait until the program, which was just started, has connected to ``listener``."""
        listener.settimeout(120)
        self._connection, _ = listener.accept()
        self._connection.settimeout(TURN)
        self._lines: TextIO = self._connection.makefile("rw")

    def do(self, what: object) -> list[float]:
        """Have it do something once; return the seconds that it reports."""
        print(what, file=self._lines, flush=True)
        taken = [float(seconds) for seconds in self._lines.readline().split()]
        if not taken:
            raise EOFError(f"the program ended when it was told: {what}")
        return taken

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

    def start_plainly(
        self,
        environment: Mapping[str, str] | None = None,
        command: Sequence[str] = (),
        arguments: Sequence[str] = (),
    ) -> TurnTaker:
        """Start the program without a debugger; with more in its environment, or by a command instead of Python."""
        process = subprocess.Popen(
            [*(command or [sys.executable]), str(self._program), self.port, *arguments],
            env={**os.environ, **(environment or {})},
            stdout=subprocess.DEVNULL,
            stderr=None if environment is None else subprocess.DEVNULL,
        )
        self._stack.callback(self._end, process)
        return self.accept()

    def _end(self, process: subprocess.Popen[bytes]) -> None:
        try:
            process.wait(ENDING)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

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
