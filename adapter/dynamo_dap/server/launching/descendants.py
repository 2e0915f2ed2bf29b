"""Finds a program's processes outside the server's process groups: the ranks that a launcher started.

torchrun lets each rank lead its own session, and cannot end the ranks when it is killed. Reads ``/proc``; on systems
without it, no process is found. Runs on the event loop.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Collection
from pathlib import Path

_PROCESSES = Path("/proc")
_RANK = b"LOCAL_RANK="


def ranks_below(process_id: int | None, known: Collection[int]) -> list[int]:
    """Return the descendants of ``process_id`` that are in ``known``, or are ranks of a job.

    Descendants that have got another parent, such as daemons, are not found.
    """
    if process_id is None:
        return []
    children: dict[int, list[int]] = {}
    for entry in _PROCESSES.glob("[0-9]*/stat"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            # The name, in parentheses, may contain any character.
            parent = int(entry.read_text(errors="replace").rpartition(")")[2].split()[1])
            children.setdefault(parent, []).append(int(entry.parent.name))
    found: list[int] = []
    waiting = [process_id]
    while waiting:
        below = children.get(waiting.pop(), [])
        waiting += below
        found += below
    return [each for each in found if each in known or _is_rank(each)]


def _is_rank(process_id: int) -> bool:
    with contextlib.suppress(OSError):
        environment = (_PROCESSES / str(process_id) / "environ").read_bytes()
        return any(variable.startswith(_RANK) for variable in environment.split(b"\0"))
    return False


def kill_all(process_ids: Collection[int]) -> None:
    """Kill processes, each with the group that it leads."""
    for each in process_ids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if os.getpgid(each) == each:
                os.killpg(each, signal.SIGKILL)
            else:
                os.kill(each, signal.SIGKILL)
