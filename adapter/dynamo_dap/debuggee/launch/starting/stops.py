"""Stops in ordinary Python without debugpy: at ``breakpoint()``, at ``pause`` and on entry.

``sys.breakpointhook`` is replaced once, for the life of the process, and called on whichever thread calls
``breakpoint()``. Without a client it does nothing: a program must not hang in an invisible prompt. A pause uses a
pending call, which needs no trace function and costs nothing until then. The agent's reader thread requests it for the
main thread. ``stopOnEntry`` traces the main thread until the program's first line.
"""

from __future__ import annotations

import functools
import os
import sys
import threading
import types
from typing import Any

from dynamo_dap.debuggee.agent.agent import Agent
from dynamo_dap.debuggee.agent.frames import walk
from dynamo_dap.debuggee.agent.interruption import call_on_main_thread
from dynamo_dap.debuggee.agent.stepping import Stop
from dynamo_dap.debuggee.agent.user_code import is_torch_file

EAGER = "eager"


def install_breakpoint_hook(agent: Agent) -> None:
    """Make ``breakpoint()`` stop in the client of ``agent``, unless ``PYTHONBREAKPOINT`` chooses another debugger."""
    if os.environ.get("PYTHONBREAKPOINT") in (None, ""):
        sys.breakpointhook = lambda *args, **kwargs: stop_at(agent, sys._getframe(1))


def pass_breakpoint_calls() -> None:
    """Make ``breakpoint()`` do nothing, unless the program chooses a debugger: its prompt would be invisible."""
    if os.environ.get("PYTHONBREAKPOINT") in (None, ""):
        sys.breakpointhook = lambda *args, **kwargs: None


def stop_at(agent: Agent, frame: types.FrameType) -> None:
    """Stop where ``frame`` called ``breakpoint()``."""
    if agent.client is None or agent.is_holding:
        return
    if any(engine.stop_for_breakpoint_call(frame) for engine in agent.engines):
        return
    if agent.eager_debugger.is_active:
        agent.eager_debugger.stop_at(frame)
        return
    _hold(agent, frame, "breakpoint", "Paused on breakpoint()")


def _hold(agent: Agent, frame: types.FrameType, reason: str, description: str) -> None:
    agent.hold(Stop(EAGER, reason, frames=lambda: agent.python_stack(frame), description=description))


def pause_eager(agent: Agent, ident: int) -> bool:
    """Pause the main thread at its next Python instruction, if ``ident`` is its identifier.

    Return False for any other thread. The engine stops a thread inside a trace, and shows its symbolic state.
    """
    if ident != threading.main_thread().ident:
        return False
    return call_on_main_thread(functools.partial(_hold_if_requested, agent))


def _is_in_trace(filename: str) -> bool:
    """Return whether a frame of this file exists only while Dynamo compiles; wrappers of calls do not count."""
    return filename.endswith(("/convert_frame.py", "/symbolic_convert.py")) and is_torch_file(filename)


def _hold_if_requested(agent: Agent) -> None:
    frame = sys._getframe(2)
    if any(_is_in_trace(one.f_code.co_filename) for one in walk(frame)):
        return
    if agent.steps.take_pause_request():
        _hold(agent, frame, "pause", "Paused in ordinary Python")


def stop_on_entry(agent: Agent, filename: str) -> None:
    """Stop the calling thread at the first line of the module code of ``filename``."""

    def trace_call(frame: types.FrameType, _event: str, _argument: object) -> Any:
        if frame.f_code.co_filename == filename and frame.f_code.co_name == "<module>":
            return trace_line
        return None

    def trace_line(frame: types.FrameType, _event: str, _argument: object) -> object:
        sys.settrace(None)
        frame.f_trace = None
        _hold(agent, frame, "entry", "Paused on entry")
        return None

    sys.settrace(trace_call)
