"""Interrupts the program's threads: raises an exception in them, or makes the main thread call a function.

A request on a held thread may run user code that never ends. When the request's time is up or the user cancels it,
``PyThreadState_SetAsyncExc`` raises an exception in the thread, at its next Python instruction. Code stuck in C
continues until the C function returns; a callback reports that. One watchdog thread serves the whole process, and
sleeps while there is nothing to watch.

To call a function on the main thread, this module adds it to CPython's queue of pending calls. Only the main thread
serves that queue, between two of its instructions.
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
"""Pending calls, kept alive until they begin."""
_made: deque[object] = deque(maxlen=64)
"""The latest calls that have begun. A running call that nothing refers to could be garbage collected."""


def raise_in_thread(ident: int, exception: type[BaseException]) -> None:
    """Raise ``exception`` in the thread with Python's identifier ``ident``, at one of its next instructions.

    While the exception is pending, every thread of CPython 3.12 and older checks for it repeatedly, and a traced thread
    of 3.11 makes no progress. To keep that time short, the main thread gets the exception only once it waits in a
    pending call, between two instructions. A long C function then delays the exception without slowing other threads.
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
    # Use C functions only: Python code here would receive the exception itself.
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
    """Call ``function`` when this generator receives a value.

    In a generator, an exception that is sent to the main thread arrives inside a ``try`` in every case. An
    ``Interrupted`` that arrives here was meant for the code that the call interrupts, so it is raised again there.
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
    """Call ``function`` on the main thread, once that runs Python.

    In ``function``, ``sys._getframe(2)`` is the interrupted frame. Return False, without the call, if CPython's queue
    stays full. Must not run on the main thread, which would wait for itself.
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
    """One piece of work that may be interrupted. The working thread enters and leaves it; any thread may interrupt."""

    def __init__(self, seconds: float | None, on_stuck: Callable[[], None] | None = None) -> None:
        """Limit the work to ``seconds``; with None, only ``interrupt`` ends it.

        The watchdog's thread calls ``on_stuck`` once if the interrupted work has not ended after ``STUCK_SECONDS``.
        """
        self.timed_out = False
        self._on_stuck = on_stuck
        self._seconds = seconds
        self._lock = threading.Lock()
        self._ident: int | None = None
        self._is_over = False
        self._raised = False

    def running(self) -> Interruptible:
        """Return the context in which to do the work, once.

        The context raises ``Interrupted`` if the work is interrupted, also before it begins.
        """
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
        """Raise ``Interrupted`` in the working thread: now, or when the work begins. Do nothing after its end."""
        with self._lock:
            if self._raised or self._is_over:
                return
            self._raised = True
            if self._ident is not None:
                raise_in_thread(self._ident, Interrupted)

    def time_out(self) -> None:
        """Interrupt the work, whose time is up; in a second call, report that it is stuck.

        Runs on the watchdog's thread.
        """
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
            # If the work ended just before, the exception is still pending. It must not reach the user's program.
            _receive_pending_exception()


class Guard:
    """Limits the time of short pieces of work on one thread, one after the other, at almost no cost.

    An example is a condition that is evaluated at every instruction. The watchdog checks a guard only twice a second,
    so work may run half a second too long.
    """

    __slots__ = ("_deadline", "_ident", "_lock", "_raised", "is_watched")

    def __init__(self) -> None:
        self.is_watched = False
        """Whether the watchdog checks this guard."""
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
        """End the piece of work; call it also after an exception. Runs on the thread that made the guard."""
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

    ``PyThreadState_SetAsyncExc`` with NULL would withdraw the exception, but leave a flag of CPython 3.12 and older
    set. All threads would then check for an exception repeatedly, and a traced thread of 3.11 would make no progress.
    """
    try:
        for _ in range(100):
            # CPython raises a pending exception at the end of a loop's turn.
            pass
    except Interrupted:
        pass


_GUARD_INTERVAL = 0.5
"""Seconds between two checks of the watched guards."""
_IDLE_LOOKS = 4


class _Watchdog:
    """A daemon thread that interrupts work after its time limit."""

    def __init__(self) -> None:
        # Entering a lock calls C code only. Entering its condition would call Python code, which a tracer could see.
        self._lock = threading.RLock()
        self._condition = threading.Condition(self._lock)
        self._deadlines: dict[Interruptible, float] = {}
        self._thread: threading.Thread | None = None
        self._wakes_at: float | None = None
        """When the thread wakes by itself; None while there is nothing to watch."""
        self._guards: dict[Guard, int] = {}
        """The watched guards, each with the number of its latest checks, in a row, that found no work."""

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
            # Wake the thread only for an earlier deadline: a wake-up costs more than evaluating most conditions.
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
