"""Keeps the running trace's log, and the history before it: earlier attempts, and saved traces of cached calls.

Steps back after a graph break lead to the attempt before the break. In a cached call they lead into the saved trace of
the cache entry that ran up to the break, with the call's inputs. Runs on the tracing thread, unless stated otherwise.
Attempts live until the function or the call that they lead to has ended. Saved traces live as long as their cache
entry.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import types
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from dynamo_dap.debuggee.agent.log import log_exception
from dynamo_dap.debuggee.history.attempts import Attempt, Attempts, all_before
from dynamo_dap.debuggee.history.saved_traces import CallObjects, SavedTrace
from dynamo_dap.debuggee.history.state_log import StateLog
from dynamo_dap.debuggee.history.time_travel import TraceHistory
from dynamo_dap.debuggee.history.trace_changes import CHANGES, STATE_LOG
from dynamo_dap.debuggee.torch_api.code_objects.dynamo_names import calls_resume_function, resume_function
from dynamo_dap.debuggee.torch_api.code_objects.generated_code import is_served, user_function_of
from dynamo_dap.debuggee.torch_api.compiles.compile_hooks import HOOKS, CompileObserver, CompileResult, FrameCompile
from dynamo_dap.debuggee.torch_api.traced.abandoned_attempts import AbandonedAttempt
from dynamo_dap.debuggee.torch_api.traced.traced_frame import TracedFrame
from dynamo_dap.debuggee.torch_api.traced.translator import frame_below_trace
from dynamo_dap.debuggee.trace.code_facts import CodeFactsCache
from dynamo_dap.debuggee.trace.guards_view import note_expressions
from dynamo_dap.debuggee.trace.runs import TraceProgress
from dynamo_dap.debuggee.wrapping.locks import Level, reentrant_lock

_MAXIMUM_ATTEMPTS = 8
"""How many attempts are kept besides the running one: each holds Dynamo's objects."""
MAXIMUM_SAVED = 100_000
"""Maximum number of snapshots in saved traces, which keep Dynamo's objects of these traces alive."""


class SavedTraces:
    """The saved traces of all cache entries."""

    def __init__(self) -> None:
        """Start without a saved trace."""
        self.all: list[SavedTrace] = []

    def add(self, saved: SavedTrace, code: types.CodeType | None) -> None:
        """Keep a trace as long as the ``code`` of its cache entry; drop those of entries that torch dropped."""
        for each in [each for each in self.all if each.code is not None and not is_served(each.code())]:
            self._drop(each)
        self.all.append(saved)
        if code is not None:
            saved.code = weakref.ref(code, lambda _: self._drop(saved))
        while len(self.all) > 1 and sum(each.history.end for each in self.all) > MAXIMUM_SAVED:
            self.all.pop(0).close()

    def _drop(self, saved: SavedTrace) -> None:
        """Drop the trace of an entry that torch has dropped. Runs on any thread, even while another uses the trace."""
        saved.is_dropped = True
        for each in list(saved.dependents):
            each.drop()
        try:  # noqa: SIM105  (the interpreter may be ending, and this module's globals be gone)
            self.all.remove(saved)
        except ValueError:
            pass

    def close(self) -> None:
        """Drop all saved traces."""
        saved, self.all = self.all, []
        for each in saved:
            each.close()


@dataclass(frozen=True, eq=False)
class _BegunCall:
    """A call whose generated code runs, and will reach a graph break."""

    frame_id: int
    code_id: int
    saved: SavedTrace
    given: CallObjects
    before: Attempt | None

    def attempt(self, frame: types.FrameType) -> Attempt:
        """Return the call's saved trace as an attempt for steps back; ``frame`` runs the call's code."""
        given = replace(self.given, call=replace(self.given.call, frame=frame))
        return Attempt(self.saved.history, before=self.before, use=lambda: self.saved.used_for(given, waits=False))


class BegunCalls:
    """Calls that have reached a graph break, or will, by thread."""

    def __init__(self) -> None:
        """Start without a begun call."""
        self._of_threads: dict[int, list[_BegunCall]] = {}

    def note(self, frame: types.FrameType, saved: SavedTrace, given: CallObjects, before: Attempt | None) -> None:
        """Note the call that ``frame`` runs, its ``given`` inputs, and the attempt ``before`` it."""
        begun = _BegunCall(id(frame), id(frame.f_code), saved, given, before)
        self._of_threads.setdefault(threading.get_ident(), []).append(begun)

    def has(self, code: types.CodeType) -> bool:
        """Return whether a call of ``code`` has begun. Runs on any thread."""
        known = list(self._of_threads.values()) if self._of_threads else ()
        return any(each.code_id == id(code) for one in known for each in one)

    def attempt(self, frame: types.FrameType) -> Attempt | None:
        """Return the saved trace for ``frame``'s code, if its call's inputs are known."""
        if not self._mine():
            return None
        running: set[int] = set()
        below: types.FrameType | None = sys._getframe()
        while below is not None:
            running.add(id(below))
            below = below.f_back
        self._leave([each for each in self._mine() if each.frame_id in running])
        found = next((each for each in self._mine() if each.frame_id == id(frame)), None)
        return None if found is None or found.saved.is_dropped else found.attempt(frame)

    def ended(self, frame: types.FrameType) -> None:
        """Forget the call that ``frame`` ran."""
        self._leave([each for each in self._mine() if each.frame_id != id(frame)])

    def clear(self) -> None:
        """Forget all begun calls. Runs on any thread."""
        self._of_threads.clear()

    def _mine(self) -> list[_BegunCall]:
        return self._of_threads.get(threading.get_ident(), [])

    def _leave(self, begun: list[_BegunCall]) -> None:
        if begun:
            self._of_threads[threading.get_ident()] = begun
        else:
            self._of_threads.pop(threading.get_ident(), None)


class StateLogs(CompileObserver):
    """The log of the running trace, and the logs of earlier attempts. One for each process."""

    feature = "the history of traces"

    def __init__(self, facts: CodeFactsCache, just_my_code: Callable[[], bool]) -> None:
        """Leave out statements of libraries while ``just_my_code`` returns true."""
        self._facts, self._just_my_code = facts, just_my_code
        self._running: Attempt | None = None
        self._log: StateLog | None = None
        self._attempt: object = None
        self._thread: int | None = None
        self._earlier: list[tuple[int, Attempt]] = []
        """Earlier attempts, each with the id of its thread."""
        self._lock = reentrant_lock("logs of traces", Level.FEATURES)
        self._of_call = threading.local()
        """``before``: the attempt before a resume function that a thread replays.

        ``unkept``: generated code, by identity, of a trace that ended at a graph break and was not kept.
        """
        self.begun = BegunCalls()
        self._travellers = 0
        """How many threads are held where the user may inspect earlier attempts."""
        self._is_wanted = self._has_gap = False
        """Whether traces are logged, and whether the log of the running trace has a gap."""

    def want(self, wanted: bool) -> None:
        """Begin or stop observing in-place changes of traces. Runs on any thread."""
        ended = {CompileObserver.compile_ended}
        # Without this event nobody closes the log, which would keep the trace alive.
        wanted = wanted and not HOOKS.problems(ended)
        HOOKS.want(self, ended if wanted else ())
        self._is_wanted = wanted and STATE_LOG.problem is None
        self._has_gap = self._has_gap or not wanted
        CHANGES.want(wanted)
        self._forget_unneeded_history()

    @contextlib.contextmanager
    def travelling(self) -> Iterator[None]:
        """Keep the attempts while the calling thread is held."""
        with self._lock:
            self._travellers += 1
        try:
            yield
        finally:
            with self._lock:
                self._travellers -= 1
            self._forget_unneeded_history()

    def _forget_unneeded_history(self) -> None:
        with self._lock:
            if not self._is_wanted and not self._travellers:
                self._forget_earlier()

    def note(
        self, frame: TracedFrame, progress: TraceProgress, *, is_line: bool = True, as_a_whole: bool = False
    ) -> None:
        """Note an instruction that the trace has reached, with or without a line. See ``StateLog.note``."""
        if not self._is_wanted:
            return
        log = self._log
        if log is None or self._has_gap or self._attempt is not frame.attempt:
            with self._lock:
                log = self._begin(frame, progress)
        log.note(frame, progress.position, is_line=is_line, as_a_whole=as_a_whole)

    def _begin(self, frame: TracedFrame, progress: TraceProgress) -> StateLog:
        if self._has_gap and not self._travellers:
            self._forget_earlier()
        before = self.attempt_before(frame.compiled_code, frame_below_trace(sys._getframe()))
        if not self._has_gap and self._is_restart(progress):
            before = self._store_abandoned()
        self._thread = threading.get_ident()
        self.forget()
        self._has_gap = False
        log = self._log = CHANGES.log = StateLog(frame)
        self._attempt = frame.attempt
        history = TraceHistory(log, self._facts, progress, just_my_code=self._just_my_code())
        self._running = Attempt(history, AbandonedAttempt(frame), before)
        return log

    def _is_restart(self, progress: TraceProgress) -> bool:
        attempt = self._running
        if attempt is None or not attempt.is_abandoned or self._thread != threading.get_ident():
            return False
        return bool(attempt.history.identity.compile_id == progress.identity.compile_id)

    def _store_abandoned(self) -> Attempt | None:
        """Keep the abandoned attempt; return the attempt before it."""
        attempt = self._running
        assert attempt is not None, "a restart follows an attempt"
        self._earlier.append((threading.get_ident(), attempt))
        while len(self._earlier) > _MAXIMUM_ATTEMPTS:
            self._close(self._earlier[0][1])
        self._running = self._log = self._attempt = CHANGES.log = None
        return attempt.before

    @contextlib.contextmanager
    def continuing(self, before: Attempt | None) -> Iterator[None]:
        """Treat the calling thread's trace inside this context as a cached call that continues ``before``."""
        outer: Attempt | None = getattr(self._of_call, "before", None)
        self._of_call.before = before
        try:
            yield
        finally:
            self._of_call.before = outer

    def attempt_before(self, code: types.CodeType, below: types.FrameType | None) -> Attempt | None:
        """Return the attempt that ended at a resume function's graph break, or None.

        ``below`` is the frame that calls the resume function.
        """
        if resume_function(code) is None:
            return None
        before: Attempt | None = getattr(self._of_call, "before", None)
        if before is None and below is not None:
            before = self.begun.attempt(below)
        if before is not None:
            return before
        function = user_function_of(code)
        for thread, attempt in reversed(self._earlier):
            leads_here = attempt.code is not None and (below is None or attempt.is_continued_by(below.f_code))
            if thread == threading.get_ident() and leads_here and attempt.history.is_of(function):
                return attempt
        return None

    def take_unsaved(self, code: types.CodeType) -> bool:
        """Return whether ``code`` came from this thread's last trace, which ended at a break and was not kept.

        A second call returns false.
        """
        unkept: int | None = getattr(self._of_call, "unkept", None)
        self._of_call.unkept = None
        return unkept == id(code)

    def is_continued_by(self, code: types.CodeType) -> bool:
        """Return whether generated ``code`` continues a kept attempt. Runs on any thread."""
        return any(attempt.is_continued_by(code) for _, attempt in self._earlier)

    def ended(self, code: types.CodeType) -> None:
        """Close the history before a break: generated ``code`` has ended on this thread."""
        with self._lock:
            for thread, attempt in list(self._earlier):
                if attempt.is_continued_by(code) and thread == threading.get_ident():
                    self._close(attempt)

    def attempts(self, frame: TracedFrame) -> Attempts | None:
        """Return the attempts that lead to the frame's trace; None if the trace is not logged."""
        if self._running is None or self._attempt is not frame.attempt:
            return None
        identity, before = self._running.history.identity, all_before(self._running)
        mine = [
            attempt
            for thread, attempt in self._earlier
            if thread == threading.get_ident()
            and attempt not in before
            and attempt.history.identity.compile_id == identity.compile_id
        ]
        return Attempts([*reversed(before), *mine, self._running])

    def take(self, output: object) -> tuple[TraceHistory, StateLog] | None:
        """Return the history of the attempt that wrote ``output``, to keep it; None if it is incomplete."""
        attempt, log = self._running, self._log
        if attempt is None or log is None or self._attempt is not output or log.forgotten:
            return None
        self._running = self._log = self._attempt = CHANGES.log = None
        return attempt.history, log

    def compile_ended(self, compiling: FrameCompile, result: CompileResult, problem: BaseException | None) -> None:
        """Note the end of this thread's compile, and the generated code, if any."""
        with self._lock:
            self._compile_ended(result.code)

    def _compile_ended(self, generated: types.CodeType | None) -> None:
        attempt = self._running
        if attempt is None or self._thread != threading.get_ident():
            return
        compile_id = attempt.history.identity.compile_id
        mine = [each for thread, each in self._earlier if each.history.identity.compile_id == compile_id]
        last = mine[-1] if mine and generated is not None else None
        if last is not None and (
            last.abandoned is None or not last.abandoned.ended_at_break or not last.abandoned.can_outlive_compile
        ):
            last = None
        for each in mine:
            if each is not last:
                self._close(each)
        if last is not None and last.abandoned is not None:
            last.history.outlive_trace()
            try:
                with last.as_current_trace():
                    note_expressions(last.abandoned.frame)
            except Exception:  # noqa: BLE001  (whatever it is, the attempt must hold nothing of the program's)
                log_exception("keeping the guards of an attempt")
            last.abandoned.outlive_compile()
            last.code = None if generated is None else weakref.ref(generated)
        elif generated is not None and calls_resume_function(generated):
            self._of_call.unkept = id(generated)
        else:
            for each in all_before(attempt):
                self._close(each)
        self.forget()

    @contextlib.contextmanager
    def suspended(self) -> Iterator[None]:
        """Set the thread's trace and its history aside while another trace runs inside this context."""
        known = self._running, self._log, self._attempt, self._thread, self._has_gap, self._earlier
        self._running = self._log = self._attempt = CHANGES.log = None
        self._earlier = []
        try:
            yield
        finally:
            self.forget()
            self._forget_earlier()
            self._running, self._log, self._attempt, self._thread, has_gap, self._earlier = known
            self._has_gap, CHANGES.log = self._has_gap or has_gap, self._log

    def forget(self) -> None:
        """Forget this thread's trace, if any. Another thread's trace stays."""
        if self._thread not in (None, threading.get_ident()):
            return
        if self._running is not None:
            self._running.history.close()
            if self._running.abandoned is not None:
                self._running.abandoned.close()
        self._running = self._log = self._attempt = CHANGES.log = None

    def _close(self, attempt: Attempt) -> None:
        self._earlier = [(thread, each) for thread, each in self._earlier if each is not attempt]
        for _, each in self._earlier:
            if each.before is attempt:
                each.before = None
        if attempt.use is not None:  # the trace is kept for later calls
            return
        attempt.history.close()
        if attempt.abandoned is not None:
            attempt.abandoned.close()

    def _forget_earlier(self) -> None:
        while self._earlier:
            self._close(self._earlier[0][1])
