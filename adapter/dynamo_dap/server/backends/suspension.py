"""Recognizes a program that a signal has suspended, and repeats its earlier answers.

Such a program answers no request until it gets SIGCONT. Runs on the event loop; lives as long as its session.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import msgspec

from dynamo_dap.protocol.requests.contract import ErrorId
from dynamo_dap.protocol.wire.messages import Request
from dynamo_dap.server.client.errors import RequestRefused

POLL_SECONDS = 2.0
"""Seconds without an answer after which to check whether the program is suspended."""
_LOOKING = frozenset({"exceptionInfo", "loadedSources", "modules", "scopes", "source", "stackTrace", "variables"})
_MOST = 128
_LONGEST = 64 * 1024
_PS_SECONDS = 2.0


class Suspension:
    """Checks whether a signal has suspended the program, and keeps the program's answers."""

    def __init__(self, process_id: Callable[[], int | None], changes: Callable[[], int]) -> None:
        """Watch a process. ``process_id`` returns its id, or None if it runs on another machine.

        ``changes`` returns how often threads have stopped and resumed so far.
        """
        self._process_id = process_id
        self._changes = changes
        self._kept: dict[tuple[str, bytes], msgspec.Raw] = {}
        self._kept_at = -1
        self._threads: msgspec.Raw | None = None

    def is_seen_at_once(self) -> bool:
        """Return whether the program is suspended; False on systems where a check for each request is too expensive."""
        return _HAS_PROC and self.is_suspended()

    def is_suspended(self) -> bool:
        """Return whether a signal keeps the program from running, if it is on this machine."""
        process_id = self._process_id()
        return process_id is not None and _state_of(process_id) == "T"

    def keep(self, request: Request, body: msgspec.Raw) -> None:
        """Remember an answer until a thread resumes or stops, or a request may change values."""
        if request.command == "threads":
            self._threads = body
        elif request.command not in _LOOKING:
            # The request may have changed the shown values.
            self._kept.clear()
        elif len(bytes(body)) <= _LONGEST:
            self._forget_old()
            while len(self._kept) >= _MOST:
                del self._kept[next(iter(self._kept))]
            self._kept[request.command, bytes(request.arguments)] = body

    def known(self, request: Request) -> msgspec.Raw | None:
        """Return the program's earlier answer to the same request."""
        if request.command == "threads":
            return self._threads
        self._forget_old()
        return self._kept.get((request.command, bytes(request.arguments)))

    def refusal(self, command: str, *, was_sent: bool) -> RequestRefused:
        """Return the error to answer with if the program cannot answer a request."""
        later = " The request takes effect then." if was_sent else ""
        text = (
            f"'{command}': a signal (SIGSTOP, or Ctrl-Z in its terminal) has suspended the program. "
            f"Resume it with: kill -CONT {self._process_id()}.{later}"
        )
        return RequestRefused(ErrorId.SUSPENDED, text)

    def _forget_old(self) -> None:
        changes = self._changes()
        if changes != self._kept_at:
            self._kept.clear()
            self._kept_at = changes


_HAS_PROC = Path("/proc/self/stat").exists()


def _state_of(process_id: int) -> str:
    """Return the letter for the state of a process of this user; empty if unknown."""
    if _HAS_PROC:
        # Runs for each request of a stopped program.
        path = Path(f"/proc/{process_id}/stat")
        with contextlib.suppress(OSError, IndexError), path.open("rb", buffering=0) as file:
            if os.fstat(file.fileno()).st_uid == os.getuid():
                # The name, in parentheses, may contain any character.
                return file.read().rpartition(b")")[2].split()[0].decode()
        return ""
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        command = ["ps", "-o", "state=", "-p", str(process_id)]
        found = subprocess.run(command, capture_output=True, text=True, timeout=_PS_SECONDS, check=False)
        return found.stdout.strip()[:1]
    return ""
