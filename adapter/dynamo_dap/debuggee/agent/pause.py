"""One held thread: it serves requests about its state until it is released.

The held thread runs ``serve``; the agent's reader thread submits work and releases it. A pause lives from the stop to
the resumption.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Sequence

from dynamo_dap.debuggee.agent.frames import Frame
from dynamo_dap.debuggee.agent.interruption import Interruptible
from dynamo_dap.debuggee.agent.stepping import Step, Stop


class Work:
    """One request to be served on a held thread. ``run`` answers the request itself, whatever happens."""

    def __init__(self, seq: int, run: Callable[[Interruptible], None], seconds: float | None) -> None:
        """``seq`` is the request's, by which it can be cancelled; ``seconds`` bounds the work."""
        self.seq = seq
        self.interruptible = Interruptible(seconds)
        self.cancelled = False
        self._run = run

    def run(self) -> None:
        """Serve the request. Held thread."""
        self._run(self.interruptible)

    def cancel(self) -> None:
        """Give the work up: it is not begun, or interrupted if it has. Any thread."""
        self.cancelled = True
        self.interruptible.interrupt()


class Pause:
    """A held thread, from the moment it stops until it goes on."""

    def __init__(self, stop: Stop, thread_id: int) -> None:
        """Made on the thread that is to be held; ``thread_id`` is its DAP id."""
        self.stop = stop
        self.thread_id = thread_id
        self.ident = threading.get_ident()
        self.step: Step | None = None
        """What to do after the release; None to run on."""
        self._queue: queue.SimpleQueue[Work | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._unfinished: dict[int, Work] = {}
        self._released = False
        self._frames: Sequence[Frame] | None = None

    @property
    def frames(self) -> Sequence[Frame]:
        """The stack, top first; made when first asked for. Held thread only."""
        assert threading.get_ident() == self.ident, "frames are made on the thread they belong to"
        if self._frames is None:
            self._frames = self.stop.frames()
        return self._frames

    def submit(self, work: Work) -> bool:
        """Queue ``work`` for the held thread; False when it was released already. Any thread."""
        with self._lock:
            if self._released:
                return False
            self._unfinished[work.seq] = work
        self._queue.put(work)
        return True

    def cancel(self, seq: int) -> bool:
        """Cancel the work for request ``seq``; False when there is none unfinished. Any thread."""
        with self._lock:
            work = self._unfinished.get(seq)
        if work is not None:
            work.cancel()
        return work is not None

    def release(self, step: Step | None) -> None:
        """Let the thread go on once the work queued so far is done. Any thread; only the first release counts."""
        with self._lock:
            if self._released:
                return
            self._released = True
            self.step = step
        self._queue.put(None)

    def interrupt_all(self) -> None:
        """Cancel everything queued or running, so that a release is not held up. Any thread."""
        with self._lock:
            unfinished = list(self._unfinished.values())
        for work in unfinished:
            work.cancel()

    def serve(self) -> None:
        """Serve work until released. Held thread."""
        assert threading.get_ident() == self.ident, "a pause is served by its own thread"
        while (work := self._queue.get()) is not None:
            try:
                work.run()
            finally:
                with self._lock:
                    del self._unfinished[work.seq]
