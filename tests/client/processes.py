"""Finds the processes that a session started, even after their parents ended.

Each session puts its own mark into the environment of its server; every process below the server inherits it.
"""

from __future__ import annotations

import contextlib

import psutil

from tests.client.timeline import DEADLINE
from tests.client.zygote import MARK


def marked_with(mark: str) -> list[psutil.Process]:
    """Return the running processes of the session ``mark``, without zombies."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.environ().get(MARK) == mark and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
    return found


def wait_until_gone(mark: str, deadline: float = DEADLINE) -> list[str]:
    """Wait until every process of the session has ended; return the command lines of those that have not."""
    _, alive = psutil.wait_procs(marked_with(mark), timeout=deadline)
    lines = []
    for process in alive:
        with contextlib.suppress(psutil.Error):
            lines.append(f"{process.pid}: {' '.join(process.cmdline())}")
    return lines


def kill_all(mark: str) -> None:
    """Kill all remaining processes of the session."""
    left = marked_with(mark)
    for process in left:
        with contextlib.suppress(psutil.Error):
            process.kill()
    psutil.wait_procs(left, timeout=DEADLINE)
