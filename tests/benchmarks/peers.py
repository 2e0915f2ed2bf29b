"""Peers that a benchmark drives by their terminal: torch's own debugger in ``comptime.breakpoint()``, which is pdb.

Runs on the benchmark's thread, in a process of its own; every wait for the prompt has an end.
"""

from __future__ import annotations

import os
import select
import subprocess
import sys
import time
from pathlib import Path

_PROMPT = b"(Pdb) "
_DEADLINE = 120.0


class TerminalDebugger:
    """A program that stops at a prompt again and again; a context manager, which ends it."""

    def __init__(self, program: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-u", str(program)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "TERM": "dumb"},
        )
        self._wait_for_prompt()

    def stop(self) -> float:
        """Continue to the next stop and have the local variables printed; return how many milliseconds that took."""
        began = time.perf_counter()
        self._say(b"c\n")
        self._wait_for_prompt()
        self._say(b"ctx.print_locals()\n")
        reported = self._wait_for_prompt()
        seconds = time.perf_counter() - began
        assert b"total" in reported, f"it printed no locals: {reported[-200:]!r}"
        return 1000 * seconds

    def _say(self, line: bytes) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line)
        self._process.stdin.flush()

    def _wait_for_prompt(self) -> bytes:
        assert self._process.stdout is not None
        descriptor = self._process.stdout.fileno()
        found = b""
        end = time.monotonic() + _DEADLINE
        while not found.endswith(_PROMPT):
            ready, _, _ = select.select([descriptor], [], [], max(0.0, end - time.monotonic()))
            if not ready:
                raise TimeoutError(f"pdb gave no prompt within {_DEADLINE:g} s; it printed {found[-200:]!r}")
            part = os.read(descriptor, 65536)
            if not part:
                raise EOFError(f"the program with pdb has ended; it printed {found[-200:]!r}")
            found += part
        return found

    def __enter__(self) -> TerminalDebugger:
        return self

    def __exit__(self, *raised: object) -> None:
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()
