"""Pauses the main thread while it runs ordinary Python, where no engine can.

A pending call (``Py_AddPendingCall``, CPython C API) runs on the main thread before its next instruction: no trace
function is needed, and a program that is not paused pays nothing. Scheduled on the agent's reader thread.
"""

from __future__ import annotations

import ctypes
import sys
import threading
import types

from dynamo_dap.debuggee.agent.agent import Agent
from dynamo_dap.debuggee.agent.eager_frames import walk
from dynamo_dap.debuggee.agent.stepping import Stop
from dynamo_dap.debuggee.agent.user_code import is_torch_file
from dynamo_dap.debuggee.bootstrap.breakpoint_hook import EAGER

_PendingCall = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)
_waiting: list[object] = []
"""Pending calls that were not made yet, kept alive until they are."""


def pause_eager(agent: Agent, ident: int) -> bool:
    """Pause the thread with Python's identifier ``ident`` if it is the main thread, at its next Python instruction.

    Returns False for any other thread. A thread that is inside a trace is left to the engine, whose stop shows more.
    """
    if ident != threading.main_thread().ident:
        return False

    def run(_argument: object) -> int:
        _waiting.remove(callback)
        _hold_if_asked(agent, sys._getframe(1))
        return 0

    callback = _PendingCall(run)
    _waiting.append(callback)
    if ctypes.pythonapi.Py_AddPendingCall(callback, None) != 0:
        _waiting.remove(callback)
        return False
    return True


def _is_in_trace(filename: str) -> bool:
    """Whether a frame of this file is there only while Dynamo compiles, as its wrappers of calls are not."""
    return filename.endswith(("/convert_frame.py", "/symbolic_convert.py")) and is_torch_file(filename)


def _hold_if_asked(agent: Agent, frame: types.FrameType) -> None:
    if any(_is_in_trace(one.f_code.co_filename) for one in walk(frame)):
        return
    if agent.take_pause_request():
        agent.hold(
            Stop(
                engine=EAGER,
                reason="pause",
                description="Paused in ordinary Python",
                frames=lambda: agent.python_stack(frame),
            )
        )
