"""Tracks the program's threads: their DAP ids, the ones to show, and the pauses of held ones.

DAP ids are small and stable: the main thread is 1, and others get the next number when they are first seen. In a
session with debugpy, threads have debugpy's ids, so that both backends use the same. Threads of the debugger are never
shown. Runs on any thread.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from typing import Protocol

from dynamo_dap.debuggee.agent.engine import RequestError
from dynamo_dap.debuggee.agent.pause import Pause
from dynamo_dap.debuggee.wrapping.locks import Level, lock
from dynamo_dap.protocol.own_threads import OWN_THREAD_PREFIX
from dynamo_dap.protocol.requests.contract import ErrorId
from dynamo_dap.protocol.wire.types import Thread


class SharedThreadIds(Protocol):
    """Thread ids that debugpy has assigned."""

    def thread_id_of(self, ident: int) -> int:
        """Return the DAP id of the thread with Python's identifier ``ident``."""

    def ident_of_thread(self, thread_id: int) -> int | None:
        """Return Python's identifier of a DAP thread id; None if unknown."""


class Threads:
    """Maps Python's thread identifiers to DAP's ids and to pauses, for the life of the process."""

    def __init__(self, is_hidden: Callable[[threading.Thread], bool]) -> None:
        """Show a thread for which ``is_hidden`` is true only while it is held."""
        self._is_hidden = is_hidden
        self._lock = lock("threads", Level.DATA)
        self._ids: dict[int, int] = {threading.main_thread().ident or 0: 1}
        self._names: dict[int, str] = {}
        self._next = itertools.count(2)
        self.shared: SharedThreadIds | None = None
        """debugpy's thread ids, in a session with debugpy; they replace ``_ids``."""
        self._pauses: dict[int, Pause] = {}

    def current(self) -> int:
        """Return the DAP id of the calling thread."""
        return self.of(threading.get_ident())

    def of(self, ident: int) -> int:
        """Return the DAP id of the thread with Python's identifier ``ident``."""
        if self.shared is not None:
            return self.shared.thread_id_of(ident)
        with self._lock:
            if ident not in self._ids:
                self._ids[ident] = next(self._next)
            return self._ids[ident]

    def ident_of(self, thread_id: int) -> int | None:
        """Return Python's identifier of a DAP thread id; None if unknown."""
        if self.shared is not None:
            return self.shared.ident_of_thread(thread_id)
        with self._lock:
            return next((ident for ident, known in self._ids.items() if known == thread_id), None)

    def alive(self) -> list[Thread]:
        """Return the program's threads, the hidden ones only while they are held."""
        own = [each for each in threading.enumerate() if not self._is_hidden(each) or each.ident in self._pauses]
        names = {thread.ident: thread.name for thread in own if thread.ident is not None}
        shown = {ident: name for ident, name in names.items() if not name.startswith(OWN_THREAD_PREFIX)}
        for ident in list(self._pauses):
            shown.setdefault(ident, f"Thread {ident}")
        self._forget_dead(set(shown))
        threads = [Thread(id=self.of(ident), name=name) for ident, name in shown.items()]
        return sorted(threads, key=lambda thread: thread.id)

    def _forget_dead(self, alive: set[int]) -> None:
        # The system reuses Python's identifiers, but a new thread must not inherit the DAP id of a dead one.
        with self._lock:
            for ident in [ident for ident in self._ids if ident not in alive and self._ids[ident] != 1]:
                del self._ids[ident]

    # -- held threads ----------------------------------------------------------------------------------------------

    def add_pause(self, pause: Pause) -> None:
        """Add the pause of a thread that is held from now on. Runs on that thread."""
        with self._lock:
            self._pauses[pause.ident] = pause

    def drop_pause(self, pause: Pause) -> None:
        """Drop the pause of a thread that resumes. Runs on that thread."""
        with self._lock:
            self._pauses.pop(pause.ident, None)

    def pause_of(self, thread_id: int) -> Pause:
        """Return the pause of a thread by its DAP id.

        Raises:
            RequestError: the thread does not exist, or is running.
        """
        ident = self.ident_of(thread_id)
        if ident is None:
            raise RequestError(f"unknown thread {thread_id}", error_id=ErrorId.NO_SUCH_THREAD)
        pause = self._pauses.get(ident)
        if pause is None:
            raise RequestError(f"thread {thread_id} is running", error_id=ErrorId.NOT_STOPPED, message="notStopped")
        return pause

    def pause_on(self, ident: int) -> Pause | None:
        """Return the pause of the thread with Python's identifier ``ident``; None if it is not held."""
        return self._pauses.get(ident)

    def pauses(self) -> list[Pause]:
        """Return the pauses of the held threads, the newest last."""
        with self._lock:
            return list(self._pauses.values())
