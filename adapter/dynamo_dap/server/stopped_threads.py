"""Which backend has stopped which thread. Used on the loop; one per run of the debugged program.

Exactly one backend owns a stopped thread: the one that reported it stopped. Threads stop and resume individually. A
thread that is resumed may be stopped by the other backend, on another connection, before the first has answered the
resuming request: events about such a thread wait for that answer.
"""

from __future__ import annotations

from collections.abc import Callable

from dynamo_dap.server.backend import AGENT


class StoppedThreads:
    """Threads by their DAP ids."""

    def __init__(self) -> None:
        self._ever: set[int] = set()
        self._owners: dict[int, str] = {}
        self._unanswered: dict[int, list[Callable[[], None]]] = {}
        """What waits for the answer to a request that lets the thread go on, by the thread."""

    def stopped(self, thread_id: int, backend: str) -> None:
        """``backend`` reported the thread stopped."""
        self._ever.add(thread_id)
        self._owners[thread_id] = backend

    def resumed(self, thread_id: int) -> None:
        """The thread runs on."""
        self._owners.pop(thread_id, None)

    def begin_resuming(self, thread_id: int) -> str | None:
        """A request that lets the thread go on is being sent; return who holds it, None when nobody does."""
        self._unanswered.setdefault(thread_id, [])
        return self._owners.pop(thread_id, None)

    def end_resuming(self, thread_id: int, owner: str | None) -> None:
        """The request has been answered, and the answer passed on; ``owner`` is who holds the thread in spite of it."""
        if owner is not None:
            self._owners.setdefault(thread_id, owner)
        for action in self._unanswered.pop(thread_id, ()):
            action()

    def after_answer(self, thread_id: int, action: Callable[[], None]) -> None:
        """Do ``action`` when no request that lets the thread go on is without an answer: now, or then."""
        if thread_id in self._unanswered:
            self._unanswered[thread_id].append(action)
        else:
            action()

    def exited(self, thread_id: int) -> None:
        """The thread is no more."""
        self._ever.discard(thread_id)
        self._owners.pop(thread_id, None)

    def resumed_by(self, backend: str) -> None:
        """All threads that ``backend`` has stopped run on."""
        for thread_id in self.of(backend):
            del self._owners[thread_id]

    def of(self, backend: str) -> list[int]:
        """The threads that ``backend`` holds."""
        return sorted(thread_id for thread_id, owner in self._owners.items() if owner == backend)

    def is_agents(self, thread_id: int) -> bool:
        """Whether the agent holds the thread."""
        return self._owners.get(thread_id) == AGENT

    @property
    def held(self) -> list[int]:
        """The threads that were reported stopped and have not gone on since."""
        return sorted(self._owners)

    @property
    def ever_stopped(self) -> list[int]:
        """Threads that were reported stopped at some time, and have not exited."""
        return sorted(self._ever)
