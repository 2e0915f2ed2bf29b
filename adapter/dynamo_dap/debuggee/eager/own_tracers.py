"""Chooses a thread's trace function: debugpy's, the program's own (coverage, a profiler), or temporarily none.

A thread has only one trace function. This matters on Python 3.11 and older, since debugpy uses ``sys.monitoring`` on
newer versions. debugpy replaces ``sys.settrace`` by a function that writes a warning to the program's stderr, and then
no longer debugs that thread. This module writes to the user's console instead, once for each line that sets a trace
function. When the program removes its function, this module restores debugpy's. A trace function that C code sets is
noticed only if the program also sets one for new threads, as coverage does. Runs on the thread that calls
``sys.settrace``. Lives as long as the process.
"""

from __future__ import annotations

import ctypes
import importlib
import os
import sys
import threading
import types
from collections.abc import Callable
from typing import Any

from dynamo_dap.debuggee.agent.frames import walk
from dynamo_dap.debuggee.agent.tracing import chained
from dynamo_dap.debuggee.agent.user_code import is_debugger_file
from dynamo_dap.debuggee.eager import pydevd_internals
from dynamo_dap.debuggee.torch_api.import_hooks import when_imported

_report: Callable[[str], None] | None = None
_reported: set[tuple[str, int]] = set()
_replaced = threading.local()
"""``function`` is debugpy's trace function, if the program has replaced it on this thread."""


def install(report: Callable[[str], None]) -> None:
    """Replace debugpy's substitute for ``sys.settrace``; ``report`` shows a text to the user."""
    global _report
    is_first, _report = _report is None, report
    tracing: Any = importlib.import_module("pydevd_tracing")
    if not is_first:
        return
    replaced = tracing._internal_set_trace
    tracing.TracingFunctionHolder._warn = False
    tracing._internal_set_trace = _set_trace
    if sys.settrace is replaced:  # the program has begun debugpy itself
        sys.settrace = _set_trace
    _notice_functions_set_in_c()


def move_bdb_to_free_tool() -> None:
    """Let ``pdb.set_trace()`` work on Python 3.14 and newer, where ``bdb`` needs debugpy's monitoring tool."""
    when_imported("bdb", _patch_bdb)


def _patch_bdb() -> None:
    tracer = getattr(sys.modules["bdb"], "_MonitoringTracer", None)
    if tracer is not None:
        tracer._tool_id = property(_tool_of, lambda tracer, tool: None)


def _tool_of(tracer: Any) -> int:
    """Return the number of a ``bdb`` tracer's monitoring tool, else of a free one, preferably ``bdb``'s default."""
    monitoring = sys.__dict__["monitoring"]
    tools = (monitoring.DEBUGGER_ID, 4, 3)
    names = [monitoring.get_tool(tool) for tool in tools]
    for name in (tracer._name, None):
        if name in names:
            return int(tools[names.index(name)])
    return int(tools[0])


def _notice_functions_set_in_c() -> None:
    set_for_threads = threading.settrace

    def settrace(func: Any) -> None:
        set_for_threads(func)
        caller, current = sys._getframe(1), sys.gettrace()
        if is_debugger_file(caller.f_code.co_filename):
            return
        if func is None and current is None:
            _restore(caller)
        elif current is not None and not is_own_tracer(current):
            debugger = pydevd_internals.debugger()
            if debugger is not None and pydevd_internals.may_stop_this_thread():
                _replaced.function = debugger.trace_dispatch
            _report_once("threading.settrace", caller.f_code.co_filename, caller.f_lineno)

    threading.settrace = settrace


def _set_trace(function: object) -> None:
    """Set a trace function for the program. Replaces ``sys.settrace`` while debugpy traces the program."""
    tracing = sys.modules["pydevd_tracing"]
    set_trace = tracing.TracingFunctionHolder._original_tracing or tracing._original_settrace
    caller, before = sys._getframe(1), sys.gettrace()
    is_programs = not is_debugger_file(caller.f_code.co_filename) and caller.f_globals.get("__name__") != "threading"
    if is_programs and function is not None and not is_own_tracer(function):
        if before is not None and is_own_tracer(before):
            _replaced.function = before
        _report_once("sys.settrace", caller.f_code.co_filename, caller.f_lineno)
    # Set the function last, or it would get events of calls that the debugger makes here.
    set_trace(function)
    if is_programs and function is None:
        _restore(caller)


def _report_once(how: str, path: str, line: int) -> None:
    if (path, line) in _reported or _report is None:
        return
    _reported.add((path, line))
    _report(
        f"dynamo-dap: the program traces itself ({how} in {os.path.basename(path)}, line {line}). Until it "
        "removes its trace function, this thread stops only in compiled functions.\n"
    )


def has_program_tracer() -> bool:
    """Return whether the program is known to have replaced debugpy's trace function."""
    return bool(_reported)


def _restore(caller: types.FrameType) -> None:
    """Restore debugpy's trace function, unless a frame still has the program's local one, which would get events."""
    function = _replaced.__dict__.pop("function", None)
    if function is not None and all(frame.f_trace is None or is_own_tracer(frame.f_trace) for frame in walk(caller)):
        pydevd_internals.set_trace(function)


# -- trace functions of debugpy and the agent --------------------------------------------------------------------------


def is_own_tracer(function: object) -> bool:
    """Return whether a thread's trace function belongs to debugpy or the agent."""
    return is_tracer_of_debugpy(function) or any(name.startswith("dynamo_dap.") for name in _modules_of(function))


def is_tracer_of_debugpy(function: object) -> bool:
    """Return whether a thread's trace function belongs to debugpy."""
    return any(name.startswith(("_pydevd", "pydevd")) for name in _modules_of(function))


def _modules_of(function: object) -> tuple[str, str]:
    owner = getattr(function, "__self__", function)
    return str(getattr(function, "__module__", None)), type(owner).__module__


def may_trace_this_thread() -> bool:
    """Return whether debugpy can trace the calling thread, on which the program has no trace function."""
    function = sys.gettrace()
    return pydevd_internals.uses_monitoring() or function is None or is_own_tracer(function)


def suspend_tracing() -> Callable[[], None] | None:
    """Stop tracing the calling thread; return a function that restores its exact state, or None if nothing changed."""
    if pydevd_internals.uses_monitoring():
        resume: Callable[[], None] = pydevd_internals.monitoring().resume_current_thread_tracing
        return resume if pydevd_internals.monitoring().suspend_current_thread_tracing() else None
    traced_by = sys.gettrace()
    if not is_own_tracer(traced_by):
        return None  # the program's trace function: coverage, a profiler
    importlib.import_module("pydevd_tracing").SetTrace(None)
    return lambda: _resume_tracing(traced_by)


def _resume_tracing(function: Any) -> None:
    """Resume tracing like pydevd's ``SetTrace``, but without the thread that ``SetTrace`` starts.

    That thread makes CPython check for trace functions, which ``sys.settrace`` does, too. As in ``SetTrace``, pydevd's
    C library then replaces the function by a faster one. A ``ChainingTracer`` that was set meanwhile stays.
    """
    current: Any = sys.gettrace()
    meanwhile, resumed = chained(current), chained(function)
    if meanwhile and meanwhile[0] not in resumed:
        if not resumed:
            meanwhile[-1].before = function
            return
        meanwhile[-1].before, resumed[0].before = resumed[0].before, current
    tracing = importlib.import_module("pydevd_tracing")
    tracing._last_tracing_func_thread_local.tracing_func = function
    set_trace = tracing.TracingFunctionHolder._original_tracing or sys.settrace
    set_trace(function)
    library = tracing._load_python_helper_lib()
    if library is not None:
        thread = ctypes.c_uint(threading.get_ident())
        library.AttachDebuggerTracing(
            ctypes.c_int(0), ctypes.py_object(set_trace), ctypes.py_object(function), thread, ctypes.py_object(None)
        )


def restores_tracing() -> bool:
    """Return whether to resume the tracing of a thread: in a session, or at any time with ``sys.monitoring``."""
    return pydevd_internals.uses_monitoring() or pydevd_internals.debugger() is not None
