"""Requests, withdraws and places pauses of threads in pydevd.

A request marks the thread, which pauses at its next event. Runs on pydevd's reader thread, on threads of the debugger,
and, where a thread pauses, on that thread.
"""

from __future__ import annotations

import functools
import importlib
import sys
import threading
import time
from types import FrameType
from typing import Any

from dynamo_dap.debuggee.agent.frames import walk
from dynamo_dap.debuggee.agent.user_code import calls_program, is_user_file, starts_program
from dynamo_dap.debuggee.eager import pydevd_internals

_OWN_PACKAGE = __name__.partition(".")[0]
_LEAVING_SECONDS = 1.0


def _module(name: str) -> Any:
    return importlib.import_module(f"_pydevd_bundle.{name}")


def forget_stops() -> None:
    """Remove the marks of stopped threads before a session begins.

    An aborted session leaves such marks, with which the next session would stop these threads at once.
    """
    for thread in threading.enumerate():
        information = getattr(thread, "additional_info", None)
        if information is not None and getattr(information, "pydev_state", None) == pydevd_internals.STATE_SUSPEND:
            information.pydev_step_cmd = pydevd_internals.NO_COMMAND
            information.pydev_step_stop = None
            information.pydev_state = pydevd_internals.STATE_RUN
            information.update_stepping_info()


def let_threads_leave() -> None:
    """Wait briefly until resumed threads have left their stop. Runs on any other thread.

    A thread that is asked to pause before it has left its stop would stay there without a ``stopped`` event.
    """
    until = time.monotonic() + _LEAVING_SECONDS
    while any(map(_is_leaving, threading.enumerate())) and time.monotonic() < until:
        time.sleep(0.001)


def _is_leaving(thread: threading.Thread) -> bool:
    information = getattr(thread, "additional_info", None)
    return (
        information is not None
        and bool(information.is_in_wait_loop)
        and information.pydev_state == pydevd_internals.STATE_RUN
    )


def install() -> None:
    """Make threads pause only in the program, in frames that debugpy shows, and at a line.

    Otherwise a thread that waited in C code, called by a library, would pause in the library, and the next step would
    never end. A rank that is asked to pause before its program begins would pause in the debugger.
    """
    debugger = sys.modules["pydevd"].PyDB
    wait, pausing = debugger.do_wait_suspend, _module("pydevd_comm_constants").CMD_THREAD_SUSPEND

    @functools.wraps(wait)
    def do_wait_suspend(
        self: Any, thread: object, frame: FrameType, event: object, *rest: object, **options: object
    ) -> object:
        if getattr(thread, "stop_reason", None) == pausing and (
            _is_run_by_debugger(frame)
            or not frame.f_lineno  # a module begins at line 0, from Python 3.11 on
            or (event == "return" and _hides_library(self, frame))
        ):
            return None  # debugpy tries again at the next event
        return wait(self, thread, frame, event, *rest, **options)

    debugger.do_wait_suspend = do_wait_suspend


def _hides_library(pydb: Any, frame: FrameType) -> bool:
    """Return whether debugpy shows a caller of ``frame``, but not ``frame``, which is in a library."""
    return bool(
        pydb.get_use_libraries_filter()
        and not pydb.in_project_scope(frame)
        and any(pydb.in_project_scope(caller) for caller in walk(frame.f_back))
    )


def _is_run_by_debugger(frame: FrameType) -> bool:
    """Return whether ``frame`` is the debugger's own code, or a library that this code calls."""
    for one in walk(frame):
        path = one.f_code.co_filename
        module = one.f_globals.get("__name__")
        if path == "<string>" and type(module) is str and module.startswith(f"{_OWN_PACKAGE}."):
            return True  # a method that the standard library made for a class of the debugger
        if is_user_file(path) or calls_program(one.f_code):
            return False
        if starts_program(one.f_code):
            return True
    return False


def request_pause(ident: int) -> None:
    """Ask the thread with Python's identifier ``ident`` to pause, unless debugpy has stopped it. Runs on any thread."""
    thread = pydevd_internals.thread_of(ident)
    if thread is not None and not pydevd_internals.information_of(thread).is_in_wait_loop:
        reason = _module("pydevd_comm_constants").CMD_THREAD_SUSPEND
        pydevd_internals.debugger().set_suspend(thread, reason, is_pause=True)


def is_stopping(ident: int) -> bool:
    """Return whether debugpy holds the thread, or is about to for anything but a pause. Runs on any thread."""
    thread = pydevd_internals.thread_of(ident)
    information = getattr(thread, "additional_info", None)
    return (
        information is not None
        and information.pydev_state == pydevd_internals.STATE_SUSPEND
        and not _waits_for_pause(thread, information)
    )


def _waits_for_pause(thread: threading.Thread | None, information: Any) -> bool:
    """Return whether the thread is asked to pause and has not stopped yet."""
    suspended_for = _module("pydevd_comm_constants").CMD_THREAD_SUSPEND
    return (
        information.pydev_state == pydevd_internals.STATE_SUSPEND
        and not information.is_in_wait_loop
        and getattr(thread, "stop_reason", None) == suspended_for
    )


def withdraw_pauses() -> None:
    """Withdraw the pause requests that no thread has answered yet. Runs on any thread."""
    lifecycle = _module("pydevd_thread_lifecycle")
    for thread in pydevd_internals.started_threads():
        information = getattr(thread, "additional_info", None)
        if information is not None and _waits_for_pause(thread, information):
            lifecycle.internal_run_thread(thread, pydevd_internals.information_of)
