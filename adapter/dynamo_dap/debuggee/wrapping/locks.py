"""Makes the debugger's locks in the debugged program, each with a name and a level.

A thread that holds a lock takes further locks only of higher levels (``Level``), so no two threads can wait for each
other. Without waiting, a thread may try locks in any order. Dynamo's compile lock comes before all levels but
``STOPS``, since a tracing thread holds it while it takes the debugger's locks. The tests check the order
(``check_order``); otherwise these are plain locks of Python. Runs on any thread; most locks live as long as the
process.
"""

from __future__ import annotations

import os
import sys
import threading
import types
from enum import IntEnum
from typing import Protocol

CHECKED = "_dynamo_dap_checks_locks"
"""The attribute of ``sys`` in programs under test: their locks check the order."""


class Level(IntEnum):
    """A lock's level: a thread that holds a lock takes further locks only of higher levels."""

    STOPS = 1
    """A saved trace or an interpreted kernel in which the user has stopped a thread: held during the stop."""
    PROCESS = 2
    """Things that a process has once: the agent, the listener, a recording."""
    SETTINGS = 3
    """The client's settings: breakpoints, options of torch."""
    SOURCES = 4
    """Facts about source files."""
    FEATURES = 5
    """Features' facts about traces, compiles and calls."""
    OBSERVERS = 6
    """Listeners for compiles."""
    HOOKS = 7
    """Which hooks are installed."""
    PATCHES = 8
    """Wrapped functions."""
    DATA = 9
    """Tables. A thread that holds such a lock takes no other."""


class Lock(Protocol):
    """A lock's interface."""

    def __enter__(self) -> bool:
        """Wait for the lock, and take it."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: types.TracebackType | None, /
    ) -> None:
        """Release it."""

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        """Take it; return False if another thread holds it until the timeout."""

    def release(self) -> None:
        """Release it."""


def lock(name: str, level: Level) -> Lock:
    """Make a lock that a thread can take once."""
    plain = threading.Lock()
    return _Checked(name, level, plain) if _is_checked else plain


def reentrant_lock(name: str, level: Level, *, is_new_in_forks: bool = False) -> Lock:
    """Make a lock that its thread may take again.

    ``is_new_in_forks``: it is free in a forked process, which lacks the thread that held it.
    """
    plain = threading.RLock()
    if is_new_in_forks:
        os.register_at_fork(after_in_child=plain._at_fork_reinit)  # type: ignore[attr-defined]  # not in the stubs
    return _Checked(name, level, plain, is_reentrant=True) if _is_checked else plain


_is_checked = hasattr(sys, CHECKED)
_held = threading.local()


def check_order() -> None:
    """Make each later lock raise if it is taken in a wrong order."""
    global _is_checked
    _is_checked = True


class _Checked:
    """A lock that knows which locks its thread holds."""

    def __init__(self, name: str, level: Level, plain: Lock, *, is_reentrant: bool = False) -> None:
        self.name, self.level = name, level
        self._plain, self._is_reentrant = plain, is_reentrant

    def _check(self, held: list[_Checked]) -> None:
        if self._is_reentrant and self in held:
            return
        for each in held:
            if each.level >= self.level:
                raise AssertionError(
                    f"the lock '{self.name}' ({self.level.name}) is taken under '{each.name}' ({each.level.name})"
                )

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        try:
            held: list[_Checked] = _held.locks
        except AttributeError:
            held = _held.locks = []
        if held and blocking:
            self._check(held)
        is_taken = self._plain.acquire(blocking, timeout)
        if is_taken:
            held.append(self)
        return is_taken

    def release(self) -> None:
        held: list[_Checked] = getattr(_held, "locks", [])
        if self in held:  # a lock may be released by another thread
            held.reverse()
            held.remove(self)
            held.reverse()
        self._plain.release()

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *exception: object) -> None:
        self.release()
