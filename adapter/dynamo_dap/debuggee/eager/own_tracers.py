"""Programs that trace themselves while debugpy traces them: coverage, profilers, tests of debuggers.

A thread has one trace function (Python 3.11 and older; debugpy uses ``sys.monitoring`` on newer ones). debugpy replaces
``sys.settrace`` by a function that writes a warning of its own to the program's stderr, and debugs that thread no more.
Here the user is told instead, once for each place that sets one, and when the program takes its trace function out
again, debugpy's is put back. One that is set in C is seen when the program has it set for new threads, too, as coverage
does. On whichever thread calls ``sys.settrace``. For the life of the process.
"""

from __future__ import annotations

import importlib
import os
import sys
import threading
import types
from collections.abc import Callable
from typing import Any

from dynamo_dap.debuggee.agent.frames import walk
from dynamo_dap.debuggee.agent.user_code import is_debugger_file
from dynamo_dap.debuggee.eager import pydevd_internals

_tell: Callable[[str], None] | None = None
_told: set[tuple[str, int]] = set()
_replaced = threading.local()
"""Its ``function``: debugpy's, in the place of which the program has put its own on a thread."""


def install(tell: Callable[[str], None]) -> None:
    """Take the place of debugpy's function; ``tell`` tells the user."""
    global _tell
    is_first, _tell = _tell is None, tell
    tracing: Any = importlib.import_module("pydevd_tracing")
    if not is_first:
        return
    replaced = tracing._internal_set_trace
    tracing.TracingFunctionHolder._warn = False
    tracing._internal_set_trace = _set_trace
    if sys.settrace is replaced:  # the program has begun debugpy itself
        sys.settrace = _set_trace
    _see_those_set_in_c()


def _see_those_set_in_c() -> None:
    set_for_threads = threading.settrace

    def settrace(func: Any) -> None:
        set_for_threads(func)
        caller, current = sys._getframe(1), sys.gettrace()
        if is_debugger_file(caller.f_code.co_filename):
            return
        if func is None and current is None:
            _put_back(caller)
        elif current is not None and not pydevd_internals.is_own_tracer(current):
            debugger = pydevd_internals.debugger()
            if debugger is not None and pydevd_internals.looks_out():
                _replaced.function = debugger.trace_dispatch
            _tell_once("threading.settrace", caller.f_code.co_filename, caller.f_lineno)

    threading.settrace = settrace


def _set_trace(function: Any) -> None:
    """``sys.settrace`` of the program, while debugpy traces it."""
    before = sys.gettrace()
    tracing: Any = sys.modules["pydevd_tracing"]
    (tracing.TracingFunctionHolder._original_tracing or tracing._original_settrace)(function)
    caller = sys._getframe(1)
    if not is_debugger_file(caller.f_code.co_filename) and caller.f_globals.get("__name__") != "threading":
        if function is None:
            _put_back(caller)
        elif not pydevd_internals.is_own_tracer(function):
            if before is not None and pydevd_internals.is_own_tracer(before):
                _replaced.function = before
            _tell_once("sys.settrace", caller.f_code.co_filename, caller.f_lineno)


def _tell_once(how: str, path: str, line: int) -> None:
    if (path, line) in _told or _tell is None:
        return
    _told.add((path, line))
    _tell(
        f"dynamo-dap: the program traces itself ({how} in {os.path.basename(path)}, line {line}): until that is "
        "over, this thread is not stopped in ordinary Python; in compiled functions it is\n"
    )


def _put_back(caller: types.FrameType) -> None:
    """Where a frame has the program's function still, that would be called by debugpy's events: nothing is done."""
    function = _replaced.__dict__.pop("function", None)
    if function is not None and all(
        frame.f_trace is None or pydevd_internals.is_own_tracer(frame.f_trace) for frame in walk(caller)
    ):
        pydevd_internals.set_trace(function)
