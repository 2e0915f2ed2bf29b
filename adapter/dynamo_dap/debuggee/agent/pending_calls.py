"""Has the main thread call something between two of its instructions (``Py_AddPendingCall``, CPython C API).

Asked for on any thread. A thread that nobody asks pays nothing. A thread in a long call into C comes to it afterwards.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable

from dynamo_dap.debuggee.agent.log import log_exception, log_problem

_QUEUE_TIMEOUT = 1.0
"""Seconds to wait for a place in CPython's queue: it holds 32 calls, and empties when the main thread runs Python."""
_RETRY_INTERVAL = 0.01
"""Seconds."""

_PendingCall = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)
_waiting: list[object] = []
"""Calls that were not made yet, kept alive until they are."""


def call_on_main_thread(function: Callable[[], None]) -> bool:
    """Have ``function`` called as soon as the main thread runs Python; ``sys._getframe(2)`` there is what it ran.

    Returns False when CPython's queue stays full: then it is not called. Not for the main thread itself, which would
    wait in vain.
    """

    def run(_argument: object) -> int:
        _waiting.remove(callback)
        try:
            function()
        except Exception:  # noqa: BLE001  (there is no caller that could be told)
            log_exception("a pending call on the main thread")
        return 0

    callback = _PendingCall(run)
    _waiting.append(callback)
    deadline = time.monotonic() + _QUEUE_TIMEOUT
    while ctypes.pythonapi.Py_AddPendingCall(callback, None) != 0:
        if time.monotonic() > deadline:
            _waiting.remove(callback)
            log_problem(f"no place in CPython's queue of pending calls within {_QUEUE_TIMEOUT} s")
            return False
        time.sleep(_RETRY_INTERVAL)
    return True
