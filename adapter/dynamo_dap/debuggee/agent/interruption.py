"""Interrupts the program's threads: by an exception that limits or cancels work, or by a call.

The work on a held thread runs user code without deadlines. When its time is up, or on ``interrupt``, an exception is
raised in its thread (``PyThreadState_SetAsyncExc``). It takes effect at the next Python instruction. Work that is stuck
in C code continues until that returns, and a callback reports it. One watchdog thread serves the whole process and
sleeps when there is nothing to watch. A call is put into CPython's queue of pending calls, which only the main thread
serves, between two of its instructions.
"""

from __future__ import annotations

import ctypes
import functools
import operator
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Generator

from dynamo_dap.debuggee.agent.log import log_exception, log_problem
from dynamo_dap.debuggee.values.model import Interrupted
from dynamo_dap.protocol.own_threads import own_thread

_QUEUE_TIMEOUT = 1.0
"""Seconds to wait for a place in CPython's queue, which has 32 places and empties while the main thread runs Python."""
_RETRY_INTERVAL = 0.01
"""Seconds."""

_PendingCall = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)
_PlainCall = ctypes.CFUNCTYPE(ctypes.c_int)
"""The type of ``_PendingCall`` without its argument."""
_raising: deque[object] = deque(maxlen=64)
"""Calls that will send an exception, kept alive until they have returned."""
_waiting: list[object] = []
"""Calls that were not made yet, kept alive until then."""
_made: deque[object] = deque(maxlen=64)
"""The latest calls to begin. Nothing else refers to a running call, and garbage collection would end it."""


def raise_in_thread(ident: int, exception: type[BaseException]) -> None:
    """Raise ``exception`` in the thread with Python's identifier ``ident``, at one of its next instructions.

    While the exception is pending, every thread of CPython 3.12 and older checks for it repeatedly, and a traced thread
    of 3.11 makes no progress. So the main thread, which does nearly all work, is first stopped between two
    instructions. A long call into C then delays only the exception.
    """
    if ident == threading.main_thread().ident:
        _raise_in_main_thread(ident, exception)
    else:
        _send_exception(ident, exception)


def _send_exception(ident: int, exception: type[BaseException]) -> None:
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(ident), ctypes.py_object(exception))


def _raise_in_main_thread(ident: int, exception: type[BaseException]) -> None:
    arrived: queue.SimpleQueue[bool] = queue.SimpleQueue()
    gate: queue.SimpleQueue[int] = queue.SimpleQueue()
    # C functions only: in Python code the exception would be raised here, and be lost.
    steps = map(operator.methodcaller("__call__"), (functools.partial(arrived.put, True), gate.get))
    callback = _PlainCall(functools.partial(any, steps))
    _raising.append(callback)

    def send() -> None:
        if arrived.get():
            _send_exception(ident, exception)
            gate.put(0)

    own_thread("interrupter", send).start()
    if not _add(callback):
        arrived.put(False)


def _calling(function: Callable[[], None], begin: Callable[[], None]) -> Generator[int, object, None]:
    """Call ``function`` when it receives a value.

    It is a generator because an exception that is sent to the main thread can then arrive only inside a ``try``. An
    ``Interrupted`` that arrives here was meant for the evaluation that this call interrupts, so it is sent again.
    """
    was_interrupted = False
    try:
        yield 0
    except Interrupted:
        was_interrupted = True
    begin()
    try:
        function()
    except Interrupted:
        was_interrupted = True
    except Exception:  # noqa: BLE001  (no caller could handle it)
        log_exception("a pending call on the main thread")
    if was_interrupted:
        raise_in_thread(threading.get_ident(), Interrupted)
    yield 0


def call_on_main_thread(function: Callable[[], None]) -> bool:
    """Call ``function`` once the main thread runs Python; ``sys._getframe(2)`` there is the interrupted frame.

    Return False if CPython's queue stays full: then it is not called. Not for the main thread, which would wait for
    itself.
    """

    def begin() -> None:
        _made.append(callback)
        _waiting.remove(callback)

    call = _calling(function, begin)
    next(call)
    callback = _PendingCall(call.send)
    _waiting.append(callback)
    if _add(callback):
        return True
    _waiting.remove(callback)
    return False


def _add(callback: object) -> bool:
    deadline = time.monotonic() + _QUEUE_TIMEOUT
    while ctypes.pythonapi.Py_AddPendingCall(callback, None) != 0:
        if time.monotonic() > deadline:
            log_problem(f"no place in CPython's queue of pending calls within {_QUEUE_TIMEOUT} s")
            return False
        time.sleep(_RETRY_INTERVAL)
    return True


STUCK_SECONDS = 1.0
"""Seconds after which interrupted work counts as stuck in C code."""


class Interruptible:
    """One piece of work that may be interrupted. Entered and left on the working thread, interrupted from any."""

    def __init__(self, seconds: float | None, on_stuck: Callable[[], None] | None = None) -> None:
        """Limit the work to ``seconds``; None leaves only ``interrupt``.

        ``on_stuck`` is called once, on the watchdog's thread, if the work continues after its time.
        """
        self.timed_out = False
        self._on_stuck = on_stuck
        self._seconds = seconds
        self._lock = threading.Lock()
        self._ident: int | None = None
        self._is_over = False
        self._raised = False

    def running(self) -> Interruptible:
        """Run the work inside this context, once. Raise ``Interrupted`` if it was interrupted, even before it began."""
        return self

    def __enter__(self) -> None:
        # Start the watchdog first: until a new thread runs, CPython gives it the identifier of the starting thread, and
        # our exception would be raised there.
        if self._seconds is not None:
            _watchdog.watch(self, time.monotonic() + self._seconds)
        with self._lock:
            if not self._raised:
                self._ident = threading.get_ident()
                return
            self._is_over = True
        _watchdog.forget(self)
        raise Interrupted

    def interrupt(self) -> None:
        """Raise ``Interrupted`` in the working thread, now or when it begins the work; not after its end."""
        with self._lock:
            if self._raised or self._is_over:
                return
            self._raised = True
            if self._ident is not None:
                raise_in_thread(self._ident, Interrupted)

    def time_out(self) -> None:
        """Interrupt because the time is up, or report that this had no effect. Runs on the watchdog's thread."""
        with self._lock:
            is_first = not self._is_over and not self.timed_out
            is_stuck = not self._is_over and self.timed_out
            self.timed_out = self.timed_out or is_first
        if is_first:
            self.interrupt()
            if self._on_stuck is not None:
                _watchdog.watch(self, time.monotonic() + STUCK_SECONDS)
        elif is_stuck and self._on_stuck is not None:
            self._on_stuck()

    def __exit__(self, *exception: object) -> None:
        with self._lock:
            self._is_over = True
            raised = self._raised
        if self._seconds is not None:
            _watchdog.forget(self)
        if raised:
            # The exception may still be pending: the work could have ended just before. It must not reach the user's
            # program.
            _receive_pending_exception()


class Guard:
    """Limits short pieces of work, one after the other on one thread, at almost no cost.

    For example a condition that is evaluated at every instruction. The watchdog checks a guard twice a second, so a
    piece of work may run half a second too long.
    """

    __slots__ = ("_deadline", "_ident", "_lock", "_raised", "is_watched")

    def __init__(self) -> None:
        self.is_watched = False
        """Whether the watchdog checks it."""
        self._lock = threading.Lock()
        self._ident = threading.get_ident()
        self._deadline: float | None = None
        self._raised = False

    @property
    def is_busy(self) -> bool:
        """Whether a piece of work is in progress."""
        return self._deadline is not None

    def begin(self, seconds: float) -> None:
        """Begin a piece of work that may take ``seconds``. Runs on the thread that made the guard."""
        self._deadline = time.monotonic() + seconds
        if not self.is_watched:
            _watchdog.watch_guard(self)

    def end(self) -> None:
        """End the piece of work, also after an exception. Runs on the thread that made the guard."""
        with self._lock:
            self._deadline = None
            raised, self._raised = self._raised, False
        if raised:
            _receive_pending_exception()

    def look(self, now: float) -> None:
        """Interrupt overdue work. Runs on the watchdog's thread."""
        with self._lock:
            if self._deadline is not None and self._deadline <= now and not self._raised:
                self._raised = True
                raise_in_thread(self._ident, Interrupted)


def _receive_pending_exception() -> None:
    """Receive this thread's pending exception here, if there is one.

    Withdrawing it (``PyThreadState_SetAsyncExc`` with NULL) leaves the interpreter's flag set on 3.12 and older: it
    then checks for an exception repeatedly, and a traced thread of 3.11 makes no progress.
    """
    try:
        for _ in range(100):
            # The interpreter checks for exceptions at the end of each turn.
            pass
    except Interrupted:
        pass


_GUARD_INTERVAL = 0.5
"""Seconds between two checks of guards in use."""
_IDLE_LOOKS = 4


class _Watchdog:
    """A daemon thread that interrupts work after its time limit."""

    def __init__(self) -> None:
        # The lock itself is entered without a call of Python code, the condition around it is not.
        self._lock = threading.RLock()
        self._condition = threading.Condition(self._lock)
        self._deadlines: dict[Interruptible, float] = {}
        self._thread: threading.Thread | None = None
        self._wakes_at: float | None = None
        """When the thread wakes by itself; None while there is nothing to watch."""
        self._guards: dict[Guard, int] = {}
        """Guards in use, each with the number of times in a row it was idle."""

    def watch(self, work: Interruptible, deadline: float) -> None:
        with self._lock:
            self._deadlines[work] = deadline
            self._start_or_wake(deadline)

    def watch_guard(self, guard: Guard) -> None:
        with self._lock:
            guard.is_watched = True
            self._guards[guard] = 0
            self._start_or_wake(time.monotonic() + _GUARD_INTERVAL)

    def _start_or_wake(self, deadline: float) -> None:
        if self._thread is None or not self._thread.is_alive():
            self._thread = own_thread("watchdog", self._run)
            self._thread.start()
        elif self._wakes_at is None or deadline < self._wakes_at:
            # Waking it for every piece of work would cost more than most conditions of breakpoints.
            self._wakes_at = deadline
            self._condition.notify()

    def _check_guards(self, now: float) -> None:
        for guard, idle in list(self._guards.items()):
            guard.look(now)
            self._guards[guard] = 0 if guard.is_busy else idle + 1
            if self._guards[guard] > _IDLE_LOOKS:
                guard.is_watched = False
                del self._guards[guard]

    def forget(self, work: Interruptible) -> None:
        with self._lock:
            self._deadlines.pop(work, None)

    def _next_deadline(self) -> float | None:
        looks = [time.monotonic() + _GUARD_INTERVAL] if self._guards else []
        return min([*self._deadlines.values(), *looks], default=None)

    def _run(self) -> None:
        while True:
            with self._lock:
                self._wakes_at = self._next_deadline()
                self._condition.wait(None if self._wakes_at is None else max(0.0, self._wakes_at - time.monotonic()))
                now = time.monotonic()
                due = [work for work, deadline in self._deadlines.items() if deadline <= now]
                for work in due:
                    del self._deadlines[work]
                self._check_guards(now)
            for work in due:
                work.time_out()


_watchdog = _Watchdog()
