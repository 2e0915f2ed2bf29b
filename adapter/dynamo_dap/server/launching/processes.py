"""The interface of a process that the server started, itself or through a terminal. Used on the loop."""

from __future__ import annotations

import asyncio
import signal
from typing import Protocol


class OwnedProcess(Protocol):
    """A process that belongs to the session: it does not outlive it unless let go."""

    exited: asyncio.Future[int | None]
    """Its exit code once it ended and its output was passed on: ``-N`` for death by signal N, None when unknown."""

    @property
    def recent_errors(self) -> str:
        """The last lines that it wrote to stderr, empty when they went elsewhere."""

    def flush_output(self, *, whole_lines: bool) -> None:
        """Pass on what it has written so far."""

    def terminate(self) -> None:
        """Ask it to end: SIGTERM to its whole group."""

    def kill(self) -> None:
        """End it and its whole group at once."""

    def let_go(self) -> None:
        """Leave it running when the session ends, its output going nowhere."""

    def close(self) -> None:
        """The session is over: kill what is left of the group, unless let go, and release everything."""


def death_by_signal(exit_code: int) -> str | None:
    """Return ``SIGSEGV (signal 11)`` for exit code -11, None for an exit code that is no signal."""
    if exit_code >= 0:
        return None
    try:
        return f"{signal.Signals(-exit_code).name} (signal {-exit_code})"
    except ValueError:
        return f"signal {-exit_code}"
