"""Makes debugpy release generated code, and its own earlier sessions.

For each code object, pydevd caches a decision for the life of the process. So generated code would stay alive after
torch drops it, with its graph, its FakeTensors and its names in the program's globals. With this module, on Python 3.11
and older, pydevd caches the decision for a copy of generated code; the copy is dropped when the original is freed. With
``sys.monitoring``, pydevd then caches nothing about generated code. Runs on any thread of the program.
"""

from __future__ import annotations

import functools
import gc
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
    """pydevd's cache of facts about each monitored code object, which does not store generated code."""

    def __init__(self, known: dict[types.CodeType, object], lines: dict[types.CodeType, object]) -> None:
        """Begin with ``known``. pydevd adds a code object to ``lines`` before it adds the code object here."""
        super().__init__(known)
        self._lines = lines

    def __setitem__(self, code: types.CodeType, value: object) -> None:
        if is_generated(code.co_filename):
            self._lines.pop(code, None)
        else:
            super().__setitem__(code, value)


def _forget_monitored_code() -> None:
    """Keep generated code out of pydevd's cache of monitored code.

    Raises:
        AttributeError: this version of debugpy is unknown.
    """
    monitoring = _monitoring()
    known = monitoring._code_to_func_code_info_cache
    if isinstance(known, _MonitoredCode):
        return
    monitoring._code_to_func_code_info_cache = _MonitoredCode(known, _lines_known_to(monitoring))


def _monitoring() -> Any:
    """Return the module with the cache of monitored code: pydevd's C module if there is one."""
    for name, module in list(sys.modules.items()):
        if name.startswith(_MONITORING) and hasattr(module, "_code_to_func_code_info_cache"):
            return module
    raise AttributeError("monitored code is not remembered where it is expected")


def _lines_known_to(monitoring: Any) -> dict[types.CodeType, object]:
    """Return pydevd's dictionary of the lines of code objects. Only the default argument of a C function refers to it.

    So find it by a code object that is one of its keys.
    """
    code = next(iter(monitoring._code_to_func_code_info_cache), None)
    if code is None:  # there has been no session yet
        code = _note_example(monitoring)
    for found in gc.get_referrers(code):
        if type(found) is dict and type(found.get(code)).__name__ == "_CodeLineInfo":
            return found
    raise AttributeError("the lines of monitored code are not where they are expected")


def _note_example(monitoring: Any) -> types.CodeType:
    code = _note_example.__code__
    asked = types.SimpleNamespace(mtime=0, get_cache_file_type=dict[Any, Any], get_file_type=lambda *_: _LIBRARY_FILE)
    holder = monitoring.GlobalDebuggerHolder
    before, holder.global_dbg = holder.global_dbg, asked
    try:
        monitoring._get_func_code_info(code, types.SimpleNamespace(f_code=code))
    finally:
        holder.global_dbg = before
    monitoring._code_to_func_code_info_cache.clear()
    return code


def install() -> None:
    """Wrap pydevd's functions that decide about files, once per process.

    Raises:
        AttributeError: this version of debugpy is unknown.
    """
    pydevd = importlib.import_module("pydevd")
    copies: Copies | None = None
    if pydevd_internals.uses_monitoring():
        try:
            _forget_monitored_code()
        except AttributeError:
            # ``gc.freeze()`` after the import of debugpy hides its dictionary from Python 3.14 on.
            log_exception("generated code that torch drops stays in memory: debugpy's facts about it are not found")
    else:
        copies = Copies(pydevd.global_cache_skips)
    debugger = pydevd.PyDB
    type_of, is_in_scope, is_filtered = debugger.get_file_type, debugger.in_project_scope, debugger.apply_files_filter

    @functools.wraps(type_of)
    def get_file_type(self: object, frame: FrameType, *rest: object, **named: object) -> object:
        if not is_generated(frame.f_code.co_filename):
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
