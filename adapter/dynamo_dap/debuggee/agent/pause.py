"""Holds one thread, which serves requests about its state until it is released.

The held thread runs ``serve``. The agent's reader thread submits work, and releases the thread. A pause lives until the
thread resumes.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Sequence

from dynamo_dap.debuggee.agent.engine import RequestError
from dynamo_dap.debuggee.agent.frames import Frame
from dynamo_dap.debuggee.agent.interruption import Interruptible
from dynamo_dap.debuggee.agent.stepping import Step, Stop
from dynamo_dap.debuggee.wrapping.locks import Level, lock
from dynamo_dap.protocol.connection import Connection
from dynamo_dap.protocol.requests.contract import ErrorId
from dynamo_dap.protocol.wire.messages import Request


class Reply:
    """The answer to one request, sent once: later answers are dropped. Runs on any thread."""

    def __init__(self, client: Connection, request: Request) -> None:
        self._client = client
        self._request = request
        self._lock = lock("answer", Level.DATA)
        self._is_sent = False

    def _take(self) -> bool:
        with self._lock:
            is_first, self._is_sent = not self._is_sent, True
        return is_first

    def respond(self, body: object) -> None:
        """Answer with success."""
        if self._take():
            self._client.respond(self._request, body)

    def refuse(self, text: str, *, error_id: ErrorId, message: str = "") -> None:
        """Answer with a failure; see ``Connection.respond_error``."""
        if self._take():
            self._client.respond_error(self._request, text, error_id=error_id, message=message)


class Work:
    """One request to be served on a held thread."""

    def __init__(self, seq: int, name: str, reply: Reply, seconds: float | None) -> None:
        """Keep the request's ``seq``, by which it can be cancelled, the ``name`` to show, and its time limit."""
        self.seq = seq
        self.name = name
        self.reply = reply
        self.run: Callable[[], None] = lambda: None
        """Serves and answers the request, whatever happens. Runs on the held thread."""
        self.on_stuck: Callable[[], None] = lambda: None
        """Reports that the work is stuck in C code after its time. Runs on the watchdog's thread."""
        self.interruptible = Interruptible(seconds, self._report_stuck)

    def _report_stuck(self) -> None:
        self.on_stuck()

    def end(self) -> None:
        """Drop the references to the pause: a reference cycle would keep the objects in its frames alive."""
        self.run = self.on_stuck = lambda: None

    def cancel(self) -> None:
        """Interrupt the work, also before it begins. Runs on any thread."""
        self.interruptible.interrupt()


class Pause:
    """A held thread, from its stop until it resumes."""

    def __init__(self, stop: Stop, thread_id: int) -> None:
        """Prepare to hold the calling thread; ``thread_id`` is its DAP id."""
        self.stop = stop
        self.thread_id = thread_id
        self.ident = threading.get_ident()
        self.step: Step | None = None
        """The step by which the user resumed the thread; None to continue."""
        self.is_leaving = False
        """Whether the user has resumed the thread; it may not run yet. Read on any thread."""
        self._queue: queue.SimpleQueue[Work | None] = queue.SimpleQueue()
        self._lock = lock("pause", Level.DATA)
        self._unfinished: dict[int, Work] = {}
        self._released = False
        self._stuck: Work | None = None
        self._frames: Sequence[Frame] | None = None

    @property
    def frames(self) -> Sequence[Frame]:
        """The stack, top first; made at the first request. Runs on the held thread."""
        assert threading.get_ident() == self.ident, "frames are made on the thread they belong to"
        if self._frames is None:
            self._frames = self.stop.frames()
        return self._frames

    def submit(self, work: Work) -> None:
        """Queue ``work`` for the held thread. Runs on any thread.

        Raises:
            RequestError: the thread was released already, or is stuck in other work.
        """
        with self._lock:
            if self._released:
                raise RequestError("the thread has resumed since", error_id=ErrorId.NOT_STOPPED, message="notStopped")
            if self._stuck is not None:
                raise RequestError(busy_text(self._stuck), error_id=ErrorId.THREAD_STUCK)
            self._unfinished[work.seq] = work
        self._queue.put(work)

    def refuse_others(self, work: Work) -> bool:
        """Refuse all other requests: the thread is stuck in ``work``. Return False if the work has ended after all."""
        with self._lock:
            if work.seq not in self._unfinished:
                return False
            self._stuck = work
            waiting = [other for other in self._unfinished.values() if other is not work]
        for other in waiting:
            other.reply.refuse(busy_text(work), error_id=ErrorId.THREAD_STUCK)
            other.cancel()
        return True

    def cancel(self, seq: int) -> None:
        """Cancel the work for request ``seq``, unless it has ended. Runs on any thread."""
        with self._lock:
            work = self._unfinished.get(seq)
        if work is not None:
            work.cancel()

    def release(self, step: Step | None) -> None:
        """Resume the thread once the work queued so far is done. Runs on any thread; later calls have no effect."""
        with self._lock:
            if self._released:
                return
            self._released = self.is_leaving = True
            self.step = step
        self._queue.put(None)

    def interrupt_all(self) -> None:
        """Cancel all queued and running work, so that the thread can be released at once. Runs on any thread."""
        with self._lock:
            unfinished = list(self._unfinished.values())
        for work in unfinished:
            work.cancel()

    def serve(self, on_unstuck: Callable[[Work], None]) -> None:
        """Serve requests until the thread is released; report stuck work that has ended. Runs on the held thread."""
        assert threading.get_ident() == self.ident, "a pause is served by its own thread"
        while (work := self._queue.get()) is not None:
            try:
                work.run()
            finally:
                work.end()
                with self._lock:
                    del self._unfinished[work.seq]
                    was_stuck, self._stuck = self._stuck is work, None
            if was_stuck:
                on_unstuck(work)


def busy_text(work: Work) -> str:
    """Return why a thread that is stuck in ``work`` cannot serve requests."""
    return f"{work.name} still runs in this thread, in a call that cannot be interrupted; try again when it has ended"
