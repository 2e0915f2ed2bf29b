"""Which backend has stopped which thread. Used on the loop; one per life of the debugged program.

Exactly one backend owns a stopped thread: whoever reported it stopped. debugpy stops all threads at once and reports
one of them, so it owns every thread that the agent does not hold.
"""

from __future__ import annotations

AGENT = "agent"


class StoppedThreads:
    """Threads by their DAP ids."""

    def __init__(self) -> None:
        self._ever: set[int] = set()
        self._alive: set[int] = set()
        self._owners: dict[int, str] = {}

    def stopped(self, thread_id: int, backend: str) -> None:
        """``backend`` reported the thread stopped."""
        self._ever.add(thread_id)
        self._owners[thread_id] = backend

    def resumed(self, thread_id: int) -> None:
        """The thread runs on."""
        self._owners.pop(thread_id, None)

    def started(self, thread_id: int) -> None:
        """There is a new thread."""
        self._alive.add(thread_id)

    def exited(self, thread_id: int) -> None:
        """The thread is no more."""
        self._alive.discard(thread_id)
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
    def free(self) -> list[int]:
        """Threads that nobody has stopped, as far as is known."""
        return sorted((self._alive | self._ever) - set(self._owners))

    @property
    def ever_stopped(self) -> list[int]:
        """Threads that were reported stopped at some time, and have not exited."""
        return sorted(self._ever)
