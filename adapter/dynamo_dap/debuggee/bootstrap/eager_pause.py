"""Pauses the main thread while it runs ordinary Python, where no engine can.

It uses a pending call, so that no trace function is needed and a program that is not paused pays nothing. Requested on
the agent's reader thread.
"""

from __future__ import annotations

import functools
import sys
import threading

from dynamo_dap.debuggee.agent.agent import Agent
from dynamo_dap.debuggee.agent.frames import walk
from dynamo_dap.debuggee.agent.interruption import call_on_main_thread
from dynamo_dap.debuggee.agent.stepping import Stop
from dynamo_dap.debuggee.agent.user_code import is_torch_file
from dynamo_dap.debuggee.bootstrap.breakpoint_hook import EAGER


def pause_eager(agent: Agent, ident: int) -> bool:
    """Pause the thread with Python's identifier ``ident`` if it is the main thread, at its next Python instruction.

    Returns False for any other thread. A thread that is inside a trace is left to the engine, whose stop shows more.
    """
    if ident != threading.main_thread().ident:
        return False
    return call_on_main_thread(functools.partial(_hold_if_asked, agent))


def _is_in_trace(filename: str) -> bool:
    """Whether a frame of this file is there only while Dynamo compiles, as its wrappers of calls are not."""
    return filename.endswith(("/convert_frame.py", "/symbolic_convert.py")) and is_torch_file(filename)


def _hold_if_asked(agent: Agent) -> None:
    frame = sys._getframe(2)
    if any(_is_in_trace(one.f_code.co_filename) for one in walk(frame)):
        return
    if agent.steps.take_pause_request():
        agent.hold(
            Stop(
                engine=EAGER,
                reason="pause",
                description="Paused in ordinary Python",
                frames=lambda: agent.python_stack(frame),
            )
        )
