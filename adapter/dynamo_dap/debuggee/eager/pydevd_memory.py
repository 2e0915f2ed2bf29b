"""Makes debugpy release generated code, and its own earlier sessions.

For each code object, pydevd caches a decision for the life of the process. So generated code would stay alive after
torch drops it, with its graph, its FakeTensors and its names in the program's globals. With this module, on Python 3.11
and older, pydevd caches the decision for a copy of generated code; the copy is dropped when the original is freed. With
``sys.monitoring``, pydevd then caches nothing about generated code. Runs on any thread of the program.
"""

from __future__ import annotations

import functools
import importlib
import sys
import threading
import types
import weakref
from types import FrameType
from typing import Any

from dynamo_dap.debuggee.agent.log import log_exception
from dynamo_dap.debuggee.eager import pydevd_internals
from dynamo_dap.debuggee.torch_api.code_objects.generated_names import is_generated

_MONITORING = "_pydevd_sys_monitoring."
_NOT_TRACED = 1
"""pydevd's decision for a code object whose file is not traced."""
_LIBRARY_FILE = 1
"""``LIB_FILE``: pydevd's category for generated code."""


class Copies:
    """Copies of code objects, as keys of pydevd's cache. Each lives as long as its original."""

    def __init__(self, remembered: dict[object, int]) -> None:
        """Store decisions in ``remembered``, pydevd's cache, which pydevd may empty at any time."""
        self._remembered = remembered
        self._copies: dict[int, tuple[weakref.ref[types.CodeType], types.CodeType]] = {}
        """Each original and its copy, by ``id`` of the original."""

    def remember(self, code: types.CodeType) -> None:
        """Store the decision that ``code`` is not traced. A copy that equals the code is the key for all threads."""
        key = id(code)
        known = self._copies.get(key)
        if known is None:
            known = weakref.ref(code, lambda _: self._forget(key)), code.replace()
            self._copies[key] = known
        self._remembered.setdefault(known[1], _NOT_TRACED)

    def _forget(self, key: int) -> None:
        _, copy = self._copies.pop(key)
        self._remembered.pop(copy, None)


class _MonitoredCode(dict[types.CodeType, Any]):
    """pydevd's cache of facts about each monitored code object; all generated code has those of ``_skipped``.

    pydevd would otherwise find the frame of generated code by its depth, which is wrong for the caller of a function
    that returns during a step: an assertion fails and ends the program.
    """

    def __init__(self, monitoring: Any) -> None:
        """Begin with the facts of ``monitoring``, pydevd's module."""
        super().__init__(monitoring._code_to_func_code_info_cache)
        self._find = monitoring._get_func_code_info

    def get(self, code: types.CodeType, default: Any = None) -> Any:
        """Return the facts about ``code``. pydevd computes them again after each change of breakpoints."""
        if is_generated(code.co_filename):
            return self._find(_skipped.__code__, types.SimpleNamespace(f_code=_skipped.__code__))
        return super().get(code, default)


def _skipped() -> None:
    """Represent generated code, whose file is never traced."""


def _forget_monitored_code() -> None:
    """Keep generated code out of pydevd's cache of monitored code.

    Raises:
        AttributeError: this version of debugpy is unknown.
    """
    monitoring = _monitoring()
    if not isinstance(monitoring._code_to_func_code_info_cache, _MonitoredCode):
        monitoring._code_to_func_code_info_cache = _MonitoredCode(monitoring)


def _monitoring() -> Any:
    """Return the module with the cache of monitored code: pydevd's C module if there is one."""
    for name, module in list(sys.modules.items()):
        if name.startswith(_MONITORING) and hasattr(module, "_code_to_func_code_info_cache"):
            return module
    raise AttributeError("monitored code is not remembered where it is expected")


def install() -> None:
    """Wrap pydevd's functions that decide about files, once per process.

    Raises:
        AttributeError: this version of debugpy is unknown.
    """
    pydevd = importlib.import_module("pydevd")
    copies: Copies | None = None
    if pydevd_internals.uses_monitoring():
        _forget_monitored_code()
    else:
        copies = Copies(pydevd.global_cache_skips)
    debugger = pydevd.PyDB
    type_of, is_in_scope, is_filtered = debugger.get_file_type, debugger.in_project_scope, debugger.apply_files_filter

    @functools.wraps(type_of)
    def get_file_type(self: object, frame: FrameType, *rest: object, **named: object) -> object:
        if frame.f_code is not _skipped.__code__ and not is_generated(frame.f_code.co_filename):
            return type_of(self, frame, *rest, **named)
        if copies is not None:
            copies.remember(frame.f_code)
        return _LIBRARY_FILE

    @functools.wraps(is_in_scope)
    def in_project_scope(self: object, frame: FrameType, *rest: object, **named: object) -> object:
        return not is_generated(frame.f_code.co_filename) and is_in_scope(self, frame, *rest, **named)

    @functools.wraps(is_filtered)
    def apply_files_filter(self: Any, frame: FrameType, file_name: str, force: bool) -> object:
        if not is_generated(frame.f_code.co_filename):
            return is_filtered(self, frame, file_name, force)
        return force or self.get_use_libraries_filter()

    debugger.get_file_type, debugger.in_project_scope = get_file_type, in_project_scope
    debugger.apply_files_filter = apply_files_filter


def forget_earlier_sessions() -> None:
    """Release pydevd's debuggers of ended sessions, whose functions every traced thread keeps.

    Otherwise threads would report uncaught exceptions to the first session's debugger forever. Also, pydevd reuses
    cached facts about code if two sessions have changed breakpoints equally often; the new one would miss breakpoints.
    Call this when another session has begun. Code that is running keeps its old debugger.
    """
    try:
        if pydevd_internals.uses_monitoring():
            _monitoring()._code_to_func_code_info_cache.clear()
        for thread in threading.enumerate():
            known = getattr(thread, "additional_info", None)
            if known is None:
                continue
            tracers = known.top_level_thread_tracer_no_back_frames
            tracers[:] = [tracer for tracer in tracers if not _is_over(tracer)]
            if _is_over(known.top_level_thread_tracer_unhandled):
                known.top_level_thread_tracer_unhandled = None
            if _is_over(known.thread_tracer):
                known.thread_tracer = None
        # pydevd keeps every thread object alive, so that no other object gets its ``id``. Drop pydevd's own threads
        # that have ended: no client knows their ids.
        seen = importlib.import_module("_pydevd_bundle.pydevd_constants")._thread_id_to_thread_found
        for key, thread in list(seen.items()):
            if getattr(thread, "is_pydev_daemon_thread", False) and not thread.is_alive():
                seen.pop(key, None)
    except AttributeError:
        log_exception("memory of debugpy's earlier sessions is not freed: unknown version")


def _is_over(tracer: Any) -> bool:
    return tracer is not None and bool(tracer._args[0].pydb_disposed)
