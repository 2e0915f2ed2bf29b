"""Implements the agent's ``EagerDebugger`` with debugpy, for one session.

The session begins on the thread that will run the program (launch), or on the agent's reader thread (attach).
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import socket
import sys
import threading
import types
import weakref
from collections.abc import Callable, Collection, Iterator, Mapping

from dynamo_dap.debuggee.agent.agent import Agent
from dynamo_dap.debuggee.agent.engine import UNCAUGHT, USER_UNHANDLED, FunctionKey
from dynamo_dap.debuggee.agent.frames import walk
from dynamo_dap.debuggee.agent.log import log_exception
from dynamo_dap.debuggee.agent.stepping import Step, StepKind
from dynamo_dap.debuggee.agent.user_code import is_debugger_file, is_user_file, normalized_path
from dynamo_dap.debuggee.eager import (
    own_tracers,
    pydevd_guards,
    pydevd_internals,
    pydevd_memory,
    pydevd_notes,
    pydevd_passing,
    pydevd_pauses,
    pydevd_variables,
    uncaught,
)
from dynamo_dap.debuggee.eager.idle_tracing import Compiles, IdleTracing, Imports
from dynamo_dap.debuggee.eager.presentation import Presentation, install_names
from dynamo_dap.debuggee.eager.step_sharing import StepSharing
from dynamo_dap.debuggee.torch_api.code_objects.dynamo_names import restores_state
from dynamo_dap.debuggee.torch_api.code_objects.generated_names import is_generated

_OWN_PACKAGE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


class DebugpyDebugger:
    """Debugs ordinary Python with debugpy, inside the program."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent
        self._tracing = IdleTracing()
        self._compiles = Compiles(self._tracing)
        self._imports = Imports(self._tracing)
        self._gone = threading.Event()
        self._handing_over: StepSharing | None = None
        self._stopped_for: tuple[weakref.ref[BaseException], frozenset[str]] | None = None

    # -- start and end ---------------------------------------------------------------------------------------------

    def start(self, address: str, token: str, greet: Callable[[socket.socket], None] | None = None) -> None:
        """Load debugpy and connect it to the server at ``address``, which checks ``token``.

        ``greet`` is as for ``pydevd_internals.connect``.

        Raises:
            pydevd_internals.DebugpyMissing: debugpy is not installed, or is in use by another client.
            OSError: no server listens at the address.
        """
        self._load()
        _release_frames_at_exit()
        pydevd_pauses.forget_stops()
        host, _, port = address.rpartition(":")
        pydevd_internals.connect(host.strip("[]"), int(port), token, own_package=_OWN_PACKAGE, greet=greet)
        pydevd_memory.forget_earlier_sessions()
        self._install_hooks()

    def adopt(self) -> None:
        """Use a debugpy that debugs this process already.

        Raises:
            pydevd_internals.DebugpyMissing: debugpy has stopped debugging this process.
        """
        self._load()
        if pydevd_internals.debugger() is None:
            raise pydevd_internals.DebugpyMissing("debugpy has stopped debugging this process")
        pydevd_internals.adopt(_OWN_PACKAGE)
        self._install_hooks()

    def _report_if_untraced(self, error: BaseException) -> None:
        if self._tracing.is_idle:
            self.report_uncaught(error)

    def _load(self) -> None:
        pydevd_internals.load()
        pydevd_guards.install(
            lambda: self._agent.options.evaluation_timeout,
            lambda error: self._has_stopped_for(error, USER_UNHANDLED),
        )
        install_names()
        if pydevd_internals.uses_monitoring():
            own_tracers.move_bdb_to_free_tool()
        else:
            own_tracers.install(lambda text: self._agent.print(text, "important"))

    def _install_hooks(self) -> None:
        self._handing_over = handing_over = StepSharing(self._agent, self._tracing)
        pydevd_internals.listen_to_messages(handing_over.after_receive, handing_over.before_send)
        pydevd_internals.show_in_stacks(is_generated)
        uncaught.call_for_uncaught(self._report_if_untraced)
        pydevd_passing.pass_frames(restores_state)
        pydevd_passing.continue_steps_in_frames(restores_state)
        pydevd_passing.pass_reported(
            lambda frame, enters: self._agent.take_reported(frame, enters=enters),
            lambda frame, enters: self._agent.breakpoints.counting_at(frame, enters=enters),
        )
        presentation = Presentation(lambda: self._agent.is_for_vs_code)
        if not pydevd_variables.present_values(presentation, lambda: self.is_active):
            self._agent.print(
                "dynamo-dap: values are shown as debugpy shows them: this version of debugpy is unknown\n",
                "console",
            )
        elif not pydevd_variables.add_scopes(presentation):
            self._agent.print(
                "dynamo-dap: frames of Triton kernels do not show their program: this version of debugpy is unknown\n",
                "console",
            )
        _leave_in_forks(self)
        self._agent.threads.shared = self
        self._agent.eager_debugger = self

    def watch_compiles(self) -> None:
        """Leave Dynamo's compiles untraced from now on; Dynamo has been imported."""
        if self.is_active:
            self._compiles.watch(lambda problem: self._agent.print(f"dynamo-dap: {problem}\n", "important"))

    def torch_is_imported(self, name: str, is_done: bool) -> None:
        """Leave the import of the part ``name`` of torch untraced, until ``is_done``: it runs no user code."""
        if self.is_active:
            self._imports.report(name, is_done, is_wanted=lambda: self._agent.options.just_my_code)

    def pause_until_program_runs(self) -> None:
        """Leave the calling thread, which runs the debugger's code, untraced until ``trace_program``."""
        self._tracing.pause()

    def trace_program(self) -> None:
        """Trace the program, which begins now on the calling thread."""
        if self.is_active:
            pydevd_notes.note_code_from_here()
            self._tracing.begin_program()

    def wait_until_configured(self) -> None:
        """Block until its client has set its breakpoints or disconnected."""
        if self.is_active:
            pydevd_internals.wait_until_configured(lambda: not self.is_active)
            try:
                self._tracing.rest()
            except Exception:  # noqa: BLE001  (the program waits here, and must run on)
                log_exception("leaving the program untraced")

    def close(self) -> None:
        """Detach from the program at the end of the session. Runs on any thread; may be called again."""
        self._gone.set()
        self._tracing.close()
        self._compiles.close()

    def leave_forked_process(self) -> None:
        """Stop debugging in a forked process: no client would resume a thread that stops there."""
        if self.is_active:
            self.close()
            pydevd_internals.forget()

    def report_uncaught(self, error: BaseException) -> None:
        """Report that ``error`` is about to end the program."""
        if self.is_active and not self._has_stopped_for(error, UNCAUGHT):
            # On Python 3.12, debugpy would stop in its own code if that were traced.
            with self.disabled_on_this_thread():
                pydevd_internals.report_uncaught(error)

    @property
    def exception_filters(self) -> frozenset[str]:
        """The exception filters that debugpy's client has requested."""
        if self._handing_over is None or not self.is_active:
            return frozenset()
        asked_for = self._handing_over.exception_filters
        return pydevd_internals.exception_filters() if asked_for is None else asked_for

    def stopped_for(self, error: BaseException, filters: frozenset[str]) -> None:
        """Remember ``error`` by a weak reference: an exception keeps all frames of its traceback alive."""
        with contextlib.suppress(TypeError):
            self._stopped_for = weakref.ref(error), filters

    def _has_stopped_for(self, error: BaseException, filter_name: str) -> bool:
        if self._stopped_for is None:
            return False
        stopped_for, filters = self._stopped_for
        return stopped_for() is error and filter_name in filters

    # -- EagerDebugger ---------------------------------------------------------------------------------------------

    @property
    def is_active(self) -> bool:
        """Whether debugpy's session continues."""
        return not self._gone.is_set() and pydevd_internals.debugger() is not None

    @contextlib.contextmanager
    def disabled_on_this_thread(self) -> Iterator[None]:
        """Return a context in which debugpy does not trace the calling thread."""
        restore = self._tracing.suspend() if self.is_active else None
        try:
            yield
        finally:
            if restore is not None and (self.is_active or pydevd_internals.uses_monitoring()):
                restore()

    @property
    def holds_this_thread(self) -> bool:
        """Whether debugpy has stopped the calling thread."""
        return self.is_active and pydevd_internals.holds_this_thread()

    def resume(self, step: Step | None, stopped: types.FrameType | None = None) -> None:
        """Begin ``step`` in debugpy, too; without a step, cancel debugpy's own."""
        if not self.is_active:
            return
        if step is None:
            pydevd_internals.drop_step()
            return
        self._tracing.want()
        if stopped is not None:
            begin = {StepKind.IN: pydevd_internals.step_in, StepKind.OVER: pydevd_internals.step_over}
            begin.get(step.kind, pydevd_internals.step_back_into_caller)(stopped)
            return
        caller, callee = _innermost_user_frame(sys._getframe())
        if step.kind is StepKind.IN or callee is None:
            pydevd_internals.step_in(caller)
        else:
            pydevd_internals.step_back_into_caller(callee)

    def step_into_next_call(self) -> None:
        """Make the step in progress end in the next user function that runs as ordinary Python."""
        if self.is_active:
            self._tracing.want()
            pydevd_internals.step_in(None)

    def stop_at(self, frame: types.FrameType | None) -> None:
        """Stop at the next line of ``frame``, which called ``breakpoint()``; None: at the thread's next line."""
        if self.is_active:
            pydevd_internals.stop_at(frame)

    def functions_seen(self) -> Collection[FunctionKey] | None:
        """Return the functions that debugpy has seen; None if it may have missed some."""
        seen = None if own_tracers.has_program_tracer() else pydevd_notes.functions_seen()
        return (
            None
            if seen is None
            else {(normalized_path(path), line, name) for path, line, name in seen if is_user_file(path)}
        )

    def conditions_met(self) -> Mapping[tuple[str, int], bool]:
        """Return, by path and line of each breakpoint that was reached, whether its condition ever held."""
        # Make a copy: threads that outlive the main program still reach breakpoints.
        met = dict(pydevd_passing.conditions_met)
        return {(normalized_path(path), line): held for (path, line), held in met.items()}

    def pause_taken(self) -> None:
        """Note that a thread has paused: the requests to the other threads are then withdrawn."""
        if self._handing_over is not None:
            self._handing_over.pause_taken()

    def withdraw_pauses(self) -> None:
        """Withdraw the pause requests that no thread has answered yet."""
        if self.is_active:
            self.pause_taken()
            pydevd_pauses.withdraw_pauses()

    def thread_id_of(self, ident: int) -> int:
        """Return debugpy's id of the thread with Python's identifier ``ident``."""
        return pydevd_internals.thread_id_of(ident)

    def ident_of_thread(self, thread_id: int) -> int | None:
        """Return Python's identifier of the thread with debugpy's id; None if unknown."""
        return pydevd_internals.ident_of_thread(thread_id)


_in_use: DebugpyDebugger | None = None
_leaves_in_forks = False


@functools.cache
def _release_frames_at_exit() -> None:
    """Release debugpy's frames at exit. Registered once, before other functions for the exit, so that it runs last."""
    atexit.register(pydevd_internals.release_frames)


def _leave_in_forks(debugger: DebugpyDebugger) -> None:
    """Detach ``debugger``, that of the latest session, in processes forked from this one."""
    global _in_use, _leaves_in_forks
    _in_use = debugger
    if not _leaves_in_forks:  # register once: nothing can remove the function
        _leaves_in_forks = True
        os.register_at_fork(after_in_child=_leave_this_fork)


def _leave_this_fork() -> None:
    if _in_use is not None:
        _in_use.leave_forked_process()


def _innermost_user_frame(top: types.FrameType | None) -> tuple[types.FrameType | None, types.FrameType | None]:
    """Return the user's innermost eager frame from ``top`` down, and the frame that it called."""
    callee = None
    for frame in walk(top):
        file_name = frame.f_code.co_filename
        if is_user_file(file_name) and not is_debugger_file(file_name):
            return frame, callee
        callee = frame
    return None, None
