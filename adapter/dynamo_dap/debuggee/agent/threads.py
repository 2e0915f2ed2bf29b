"""Thread ids for DAP, and the threads to show.

DAP ids are small and stable: the main thread is 1, others count up as they are first seen. In a session with debugpy
its ids are used, so that a thread has the same id in both backends. Any thread may ask. Threads of the debugger are
never shown.
"""

from __future__ import annotations

import itertools
import threading
from typing import Protocol

from dynamo_dap.protocol.own_threads import OWN_THREAD_PREFIX
from dynamo_dap.protocol.types import Thread


class SharedThreadIds(Protocol):
    """Thread ids that another debugger gives."""

    def thread_id_of(self, ident: int) -> int:
        """Return the DAP id of the thread with Python's identifier ``ident``."""

    def ident_of_thread(self, thread_id: int) -> int | None:
        """Return Python's identifier of a DAP thread id, None when there is no such thread."""


class ThreadIds:
    """Maps Python's thread identifiers to DAP thread ids, for the life of the process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._ids: dict[int, int] = {threading.main_thread().ident or 0: 1}
        self._names: dict[int, str] = {}
        self._next = itertools.count(2)
        self.shared: SharedThreadIds | None = None
        """Where ids come from when another debugger gives threads ids, too."""

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
        """Return Python's identifier of a DAP thread id, None when there is no such thread."""
        if self.shared is not None:
            return self.shared.ident_of_thread(thread_id)
        with self._lock:
            return next((ident for ident, known in self._ids.items() if known == thread_id), None)

    def alive(self, held: set[int]) -> list[Thread]:
        """Return the program's threads, and those in ``held`` (Python identifiers) unknown to ``threading``.

        Threads made by C++ (autograd's) show up only while they are held.
        """
        names = {thread.ident: thread.name for thread in threading.enumerate() if thread.ident is not None}
        shown = {ident: name for ident, name in names.items() if not name.startswith(OWN_THREAD_PREFIX)}
        for ident in held:
            shown.setdefault(ident, f"Thread {ident}")
        self._forget_dead(set(shown))
        threads = [Thread(id=self.of(ident), name=name) for ident, name in shown.items()]
        return sorted(threads, key=lambda thread: thread.id)

    def _forget_dead(self, alive: set[int]) -> None:
        # The system reuses identifiers: a new thread must not inherit the id of a dead one.
        with self._lock:
            for ident in [ident for ident in self._ids if ident not in alive and self._ids[ident] != 1]:
                del self._ids[ident]
