"""Leaves the main thread untraced until debugpy has a reason to trace it, on Python 3.11 and older.

With ``sys.settrace``, each call and line of a traced thread is slower, even without breakpoints. The requests to
debugpy show when it needs to trace the main thread: for a breakpoint, an exception filter, a step, a pause. Uncaught
exceptions are reported to debugpy without tracing (``uncaught``). debugpy traces other threads from their start.

``IdleTracing`` lives for one session. It runs on debugpy's own threads, and on the main thread when the agent passes on
a step. The main thread's tracing is always changed on the main thread itself.

On every Python version, debugpy also does not trace

- a thread on which Dynamo compiles: Dynamo is plain Python and takes twice as long when traced. While the program's own
  backend, pass, pattern, lowering or fake kernel runs, debugpy traces the thread if it may stop there.
- a thread that imports torch, which makes a million calls without user code.
- generated code. Nor does Dynamo compile debugpy's functions.
"""

from __future__ import annotations

import importlib.machinery
import os
import sys
import threading
import types
from collections.abc import Callable, Iterable
from typing import Any

from dynamo_dap.debuggee.agent.engine import UNCAUGHT
from dynamo_dap.debuggee.agent.interruption import call_on_main_thread
from dynamo_dap.debuggee.agent.tracing import TraceFunction, trace_below
from dynamo_dap.debuggee.agent.user_code import is_user_file
from dynamo_dap.debuggee.eager import own_tracers, pydevd_internals, pydevd_passing, uncaught
from dynamo_dap.debuggee.torch_api.code_objects.generated_names import GeneratedNames
from dynamo_dap.debuggee.torch_api.compiles.compiling import BackendWatcher, CompileWatcher
from dynamo_dap.debuggee.torch_api.compiles.program_code import ProgramCodeWatcher
from dynamo_dap.debuggee.torch_api.features import FeatureMissing
from dynamo_dap.debuggee.torch_api.skipping import never_compile_below

_STEPS_AND_PAUSES = {"goto", "next", "pause", "stepIn", "stepOut"}
_BREAKPOINTS = {"setBreakpoints", "setDataBreakpoints", "setFunctionBreakpoints", "setInstructionBreakpoints"}


class IdleTracing:
    """Decides whether the main thread is traced."""

    def __init__(self) -> None:
        self._function: TraceFunction | None = None
        self._restore: Callable[[], None] | None = None
        self._is_wanted = False
        self.is_idle = False
        """Whether the main thread is untraced until debugpy needs it."""
        self._suspensions = 0

    def pause(self) -> None:
        """Leave the calling main thread untraced until ``begin_program``."""
        if self.is_idle:  # debugpy was configured first
            return
        traced_by: Any = sys.gettrace()
        self._function = None if pydevd_internals.uses_monitoring() else traced_by
        self._restore = own_tracers.suspend_tracing()

    def begin_program(self) -> None:
        """Begin the program, untraced unless debugpy may have to stop it already. Runs on the main thread."""
        restore, self._restore = self._restore, None
        if restore is None:
            return
        if pydevd_internals.uses_monitoring():
            restore()
            return
        self.is_idle = True
        if self._may_be_needed():
            self.want()

    def rest(self) -> None:
        """Stop tracing the calling main thread, which debugpy has begun to trace, until debugpy needs it."""
        traced_by: Any = sys.gettrace()
        if self.is_idle or not _is_main_thread() or not own_tracers.is_tracer_of_debugpy(traced_by):
            return
        if not self._may_be_needed() and uncaught.is_noticed():
            own_tracers.suspend_tracing()
            self._function = traced_by
            self.is_idle = True
            if self._may_be_needed():  # since the check above
                self.want()

    def close(self) -> None:
        """Release debugpy's trace function at the end of the session: it keeps the whole session alive."""
        self._function = None

    def _may_be_needed(self) -> bool:
        # Ask debugpy itself, too: requests during its start have not passed through ``on_request``.
        return self._is_wanted or pydevd_internals.may_stop_this_thread()

    def on_request(self, command: str, arguments: dict[str, object]) -> None:
        """Start tracing if a request to debugpy needs it. Runs on debugpy's reader thread."""
        if _needs_tracing(command, arguments):
            self.want()
        elif command == "configurationDone":
            call_on_main_thread(self.rest)

    def want(self) -> None:
        """Trace the main thread from now on. Runs on any thread."""
        if _is_main_thread():
            self._is_wanted = True
            self._trace()
        elif not self._is_wanted:
            self._is_wanted = True
            if self.is_idle:
                self._is_wanted = call_on_main_thread(self._trace)

    def suspend(self) -> Callable[[], None] | None:
        """Stop tracing the calling thread; return a function that resumes the tracing, or None if nothing changed."""
        restore = own_tracers.suspend_tracing()
        if not self.is_idle or not _is_main_thread():
            return restore
        self._suspensions += 1

        def resume() -> None:
            if restore is not None:
                restore()
            self._suspensions -= 1
            if self._is_wanted:
                self._trace()

        return resume

    def _trace(self) -> None:
        if self.is_idle and not self._suspensions and self._function is not None:
            self.is_idle = False
            if pydevd_internals.debugger() is not None:
                trace_below(self._function, pydevd_internals.set_trace)


def _is_main_thread() -> bool:
    # ``current_thread`` would make an object for a thread that Python did not start.
    return threading.get_ident() == threading.main_thread().ident


def _needs_tracing(command: str, arguments: dict[str, Any]) -> bool:
    if command in _STEPS_AND_PAUSES:
        return True
    if command in _BREAKPOINTS:
        return bool(arguments.get("breakpoints"))
    if command == "setExceptionBreakpoints":
        options = [one.get("filterId") for one in arguments.get("filterOptions") or ()]
        filters = {*arguments.get("filters", ()), *options}
        return bool(filters - {UNCAUGHT} or arguments.get("exceptionOptions"))
    return command in ("attach", "launch") and bool(arguments.get("stopOnEntry"))


class Imports:
    """Leaves imports of torch untraced, unless a breakpoint could stop in them."""

    def __init__(self, tracing: IdleTracing) -> None:
        self._tracing = tracing
        self._restores: dict[str, Callable[[], None]] = {}

    def report(self, name: str, is_done: bool, *, is_wanted: Callable[[], bool]) -> None:
        """Suspend tracing while the part ``name`` of torch is imported, if ``is_wanted``; resume it if ``is_done``."""
        restore = self._restores.pop(name, None)
        if restore is not None and own_tracers.restores_tracing():
            restore()
        if not is_done and is_wanted() and not any(map(_may_be_imported_by_torch, pydevd_passing.breakpoint_files())):
            restore = self._tracing.suspend()
            if restore is not None:
                self._restores[name] = restore


def _may_be_imported_by_torch(path: str) -> bool:
    """Return whether a user's file shadows an installed module, so that torch may import it instead."""
    directory, name = os.path.split(os.path.splitext(os.path.realpath(path))[0])
    while os.path.isfile(os.path.join(directory, "__init__.py")):
        directory, name = os.path.split(directory)
    others = [one for one in sys.path if os.path.realpath(one) != directory]
    return len(others) < len(sys.path) and (
        name in sys.stdlib_module_names or importlib.machinery.PathFinder.find_spec(name, others) is not None
    )


class Compiles:
    """Leaves compiles and generated code untraced, and debugpy's own functions uncompiled."""

    def __init__(self, tracing: IdleTracing) -> None:
        self._tracing = tracing
        self._of_thread = _Suspended()
        self._watcher = CompileWatcher(self._suspend)
        self._backends = BackendWatcher(self._in_backend)
        self._program_code = ProgramCodeWatcher(self._in_program_code, lambda code: is_user_file(code.co_filename))
        self._on_problem: Callable[[str], None] = lambda problem: None
        self._names = GeneratedNames(pydevd_internals.never_trace, own_tracers.may_trace_this_thread)

    def watch(self, on_problem: Callable[[str], None]) -> None:
        """Install the hooks; ``on_problem`` gets a text for each that this torch does not support."""
        self._on_problem = on_problem
        never_compile_below(pydevd_internals.package(), os.path.dirname(__file__))
        for install in (self._watcher.install, self._backends.install, self._names.install):
            try:
                install()
            except FeatureMissing as missing:
                on_problem(str(missing))

    def close(self) -> None:
        """Remove the hooks."""
        self._watcher.remove()
        self._backends.remove()
        self._program_code.remove()
        self._names.remove()

    def _suspend(self) -> Callable[[], None]:
        self._of_thread.restore = self._tracing.suspend()
        self._watch_program_code()
        return self._resume

    def _watch_program_code(self) -> None:
        """Install the hooks around the program's code if debugpy may stop in it, else remove them."""
        if pydevd_internals.may_stop_this_thread():
            self._program_code.install(self._on_problem)
        else:
            self._program_code.remove()

    def _resume(self) -> None:
        restore, self._of_thread.restore = self._of_thread.restore, None
        if restore is not None and own_tracers.restores_tracing():
            restore()

    def _in_backend(self, codes: Iterable[types.CodeType]) -> Callable[[], None] | None:
        """Trace the thread while a backend runs, if the user wrote the backend and debugpy may stop in it."""
        self._watch_program_code()  # the user may have set the first breakpoint at a stop in this compile
        return self._in_program_code() if any(is_user_file(code.co_filename) for code in codes) else None

    def _in_program_code(self) -> Callable[[], None] | None:
        """Trace the thread while the program's code runs, if debugpy may stop in it."""
        if self._of_thread.restore is None or not pydevd_internals.may_stop_this_thread():
            return None
        self._resume()

        def suspend() -> None:
            self._of_thread.restore = self._tracing.suspend()

        return suspend


class _Suspended(threading.local):
    restore: Callable[[], None] | None = None
    """Resumes the tracing of the thread, which compiles; None if it was not traced or does not compile."""
