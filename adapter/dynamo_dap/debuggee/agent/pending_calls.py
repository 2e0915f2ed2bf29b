"""Has the main thread call a function between two of its instructions (``Py_AddPendingCall``, CPython C API).

Requested on any thread. The main thread pays nothing while there is no request. If it is in a long call into C, it
calls the function afterwards.
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
"""Seconds to wait for a place in CPython's queue: it holds 32 calls, and empties when the main thread runs Python."""
_RETRY_INTERVAL = 0.01
"""Seconds."""

_PendingCall = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)
_PlainCall = ctypes.CFUNCTYPE(ctypes.c_int)
"""The same with its argument left out."""
_raising: deque[object] = deque(maxlen=64)
"""Calls in whose course an exception is sent: each is needed until it has returned."""
_waiting: list[object] = []
"""Calls that were not made yet, kept alive until they are."""


def raise_in_thread(ident: int, exception: type[BaseException]) -> None:
    """Raise ``exception`` in the thread with Python's identifier ``ident``, at one of its next instructions.

    While it is on its way, CPython 3.12 and older have every thread look again and again whether it is meant, and a
    traced thread of 3.11 never gets any further. So the main thread, where nearly all work is done, is caught between
    two instructions first: a long call into C delays the exception, and nobody else.
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
    # Nothing but C: in Python code the exception would arrive there, and be lost.
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
    """Call ``function`` when sent something: a generator, since it can be interrupted inside its ``try`` only.

    An evaluation that took too long is interrupted between two instructions of the main thread, too: that comes first.
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
    except Exception:  # noqa: BLE001  (there is no caller that could be told)
        log_exception("a pending call on the main thread")
    if was_interrupted:
        raise_in_thread(threading.get_ident(), Interrupted)  # it was meant for what goes on below
    yield 0


def call_on_main_thread(function: Callable[[], None]) -> bool:
    """Have ``function`` called as soon as the main thread runs Python; ``sys._getframe(2)`` there is what it ran.

    Returns False when CPython's queue stays full: then it is not called. Not to be called on the main thread, which
    would wait for itself.
    """
    call = _calling(function, lambda: _waiting.remove(callback))
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
