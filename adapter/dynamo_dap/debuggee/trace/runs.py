"""Tracks why a trace runs, and its progress.

The program compiles, or the debugger replays a call for some purpose. The feature that starts a trace makes its
``TraceRun``, which decides what happens at each line. The engine asks ``current_run()`` and nothing else about the
purpose. A run belongs to one thread and lives as long as its trace; the program's own traces on a thread share one run.

Dynamo restarts the analysis of a frame from the top (a graph break, a size that has to be specialized). It then traces
the same instructions in the same order, up to the point where the attempts differ. Positions and visits of breakpoints
are counted from the start of an attempt. So the next attempt finds the place of a step or a change again, and reports
no breakpoint twice. Runs on the tracing thread only, under Dynamo's compile lock, unless stated otherwise.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import types
import weakref
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum

from dynamo_dap.debuggee.agent.breakpoints import LineBreakpoint
from dynamo_dap.debuggee.agent.stepping import Changes
from dynamo_dap.debuggee.torch_api.code_objects.generated_code import live_entries, original_of
from dynamo_dap.debuggee.torch_api.traced.replays import CachedCall, current_replay
from dynamo_dap.debuggee.torch_api.traced.traced_frame import TracedFrame
from dynamo_dap.debuggee.torch_api.traced.translator import (
    UNKNOWN_COMPILE,
    CompileIdentity,
    compile_identity,
    frame_below_trace,
)
from dynamo_dap.debuggee.trace.code_facts import CodeFacts
from dynamo_dap.protocol.requests.contract import COMPILE_TIME

Visit = tuple[int, int, int]
"""A breakpoint reached at an instruction: breakpoint id, ``id`` of the code object, instruction index."""


@dataclass
class TraceProgress:
    """One attempt of one frame's trace."""

    identity: CompileIdentity
    began_at_start: bool
    """Whether counting began with the attempt, not with a hook that was installed in the middle of it."""
    last: dict[int, tuple[weakref.ref[object], int]] = field(default_factory=dict)
    """The last instruction index in each run of a function, by its interpreter's identity."""
    position: int = 0
    """How many instructions with a line were traced, inlined functions included."""
    visits: Counter[Visit] = field(default_factory=Counter)
    earlier_visits: Counter[Visit] = field(default_factory=Counter)
    entered: dict[int, weakref.ref[object]] = field(default_factory=dict)
    """Interpreters that were seen on the first line of their function, by identity."""

    def is_first_visit(self, visit: Visit) -> bool:
        """Count a visit; return False if an earlier attempt of this frame made the same one."""
        self.visits[visit] += 1
        return self.visits[visit] > self.earlier_visits[visit]

    @property
    def abandoned_visits(self) -> Counter[Visit]:
        """Return the visits of earlier attempts that this one did not make."""
        return self.earlier_visits - self.visits

    def note_visit(self, frame: TracedFrame, index: int) -> int:
        """Note a visit of ``index``; return the index visited before it in the same frame, or -1.

        Functions inlined in between do not count: a return to a line does not begin it.
        """
        interpreter = frame.interpreter
        known = self.last.get(id(interpreter))
        if known is not None and known[0]() is interpreter:
            self.last[id(interpreter)] = (known[0], index)
            return known[1]
        self.last[id(interpreter)] = (weakref.ref(interpreter), index)
        return -1

    def enters(self, frame: TracedFrame) -> bool:
        """Return whether the frame is on its function's first line for the first time."""
        interpreter = frame.interpreter
        known = self.entered.get(id(interpreter))
        if known is not None and known() is interpreter:
            return False
        self.entered[id(interpreter)] = weakref.ref(interpreter)
        return True


class _Reported(threading.local):
    """A thread's newest trace, and the visits that it reported too early."""

    progress: TraceProgress | None = None
    code: weakref.ref[types.CodeType] | None = None
    """The compiled code."""
    entries = 0
    """How many cache entries the compiled code had before the trace."""
    caller: tuple[int, int] | None = None
    """The ``_position`` of the frame that made the call."""
    owners: tuple[weakref.ref[types.CodeType], ...] = ()
    """Functions whose traces made the visits in ``owed``."""

    def __init__(self) -> None:
        self.owed: Counter[Visit] = Counter()


class ProgressOfTraces:
    """The progress of the running trace, and of the outer ones.

    Dynamo may inline a function, find a graph break in it, and restart without it. The generated code then calls the
    function, which is traced by itself. Breakpoints in it were reported while it was inlined, and are not
    reported again. Nor are they if Dynamo skips the outer function because of the break, for example in a loop.
    """

    def __init__(self) -> None:
        """Start without traces."""
        self._of_thread = _Reported()
        # By identity: Dynamo's object for an attempt compares by value and cannot be hashed.
        self._by_attempt: dict[int, tuple[weakref.ref[object], TraceProgress]] = {}
        self._latest_of_compile: dict[str, TraceProgress] = {}

    def of(self, frame: TracedFrame, *, stops: bool) -> TraceProgress:
        """Return the progress of the frame's attempt; ``stops``: see ``TraceRun``."""
        attempt = frame.attempt
        known = self._by_attempt.get(id(attempt))
        if known is not None and known[0]() is attempt:
            return known[1]
        progress = self._begin(frame, stops=stops)
        self._by_attempt = {key: entry for key, entry in self._by_attempt.items() if entry[0]() is not None}
        self._by_attempt[id(attempt)] = (weakref.ref(attempt), progress)
        return progress

    def _begin(self, frame: TracedFrame, *, stops: bool) -> TraceProgress:
        identity = compile_identity()
        progress = TraceProgress(identity, not frame.has_begun)
        before = self._latest_of_compile.get(identity.compile_id)
        if before is not None and identity.attempt > before.identity.attempt:
            progress.earlier_visits = before.earlier_visits | before.visits
        if identity.attempt == 0:
            self._latest_of_compile.clear()
        self._latest_of_compile[identity.compile_id] = progress
        if stops:
            if identity.attempt == 0:
                self.settle()
            self._of_thread.progress, self._of_thread.code = progress, weakref.ref(frame.compiled_code)
            if identity.attempt == 0:
                self._of_thread.entries = len(live_entries(frame.compiled_code))
            self._of_thread.caller = _position(frame_below_trace(sys._getframe()))
        return progress

    def settle(self) -> None:
        """Note which visits the thread's last trace has reported too early. Called when another call begins."""
        self._settle(frame_below_trace(sys._getframe()))

    def may_reach_reported(self, caller: types.FrameType | None) -> bool:
        """Return whether a call by ``caller`` that begins now may reach breakpoints that were reported already."""
        self._settle(caller)
        return bool(self._of_thread.owed)

    def _settle(self, caller: types.FrameType | None) -> None:
        thread = self._of_thread
        progress, code = thread.progress, thread.code
        thread.progress = thread.code = None
        if progress is None and not thread.owners:
            return
        running, is_skipped, frame = set[int](), False, caller
        while frame is not None:
            running.add(id(original_of(frame.f_code) or frame.f_code))
            if code is not None and frame.f_code is code():
                is_skipped = is_skipped or _position(frame.f_back) == thread.caller
            frame = frame.f_back
        if is_skipped and code is not None and (traced := code()) is not None:
            # A new cache entry means that the traced call has run; this is a later call from the same place.
            is_skipped = len(live_entries(traced)) <= thread.entries
        if progress is not None and code is not None:
            # Dynamo has skipped the function, so it runs as ordinary Python: its callees are traced by themselves.
            abandoned = progress.earlier_visits | progress.visits if is_skipped else progress.abandoned_visits
            thread.owed += abandoned
            thread.owners += (code,) if abandoned else ()
        if not any(id(owner()) in running for owner in thread.owners):
            thread.owners = ()
            thread.owed.clear()

    def expect_again(self) -> None:
        """Report the visits again that were reported too early: the user has stopped before them, and expects them."""
        self._of_thread.owners = ()
        self._of_thread.owed.clear()

    def take_reported(self, visit: Visit) -> bool:
        """Return whether a visit was reported when its function was inlined, so that it is not reported again."""
        owed = self._of_thread.owed
        if owed[visit] <= 0:
            return False
        owed[visit] -= 1
        return True

    def take_reported_by(self, frame: types.FrameType, breakpoints: Collection[int]) -> bool:
        """Return whether a trace reported one of ``breakpoints``, which ``frame`` reaches as ordinary Python.

        The frame runs as ordinary Python because Dynamo has skipped its function, or a function that called it.
        """
        if compile_identity().compile_id != UNKNOWN_COMPILE or not self.may_reach_reported(frame):
            return False
        code = id(frame.f_code)
        reported = {visit[0]: visit for visit in self._of_thread.owed if visit[0] in breakpoints and visit[1] == code}
        return sum(self.take_reported(visit) for visit in reported.values()) > 0

    def final_visits(self) -> Counter[Visit] | None:
        """Return the visits of the last attempt of the thread's last trace; None if all attempts agree."""
        progress = self._of_thread.progress
        return None if progress is None or not progress.abandoned_visits else progress.visits


def _position(frame: types.FrameType | None) -> tuple[int, int] | None:
    """Return the position of a running frame, without keeping the frame alive."""
    return None if frame is None else (id(frame), frame.f_lasti)


@dataclass(frozen=True, slots=True)
class TracePoint:
    """The interpreter's present position."""

    frame: TracedFrame
    index: int
    line: int
    facts: CodeFacts
    progress: TraceProgress
    begins_line: bool
    """Whether a user's line begins here."""
    continues_statement: bool
    """Whether that line only continues a statement."""
    chain: Callable[[], Sequence[TracedFrame]]
    """The function and its callers, innermost first."""
    is_user_code: bool
    """Whether steps may end here: ``justMyCode`` excludes installed packages."""

    @property
    def begins_statement(self) -> bool:
        """Whether a statement begins here."""
        return self.begins_line and not self.continues_statement and self.facts.begins_statement(self.line)


class Decision(Enum):
    """What a trace does at a line that it has reached."""

    CONTINUE = "continue"
    ASK = "hold if a breakpoint, a step or a request to pause says so"
    HOLD = "hold"


class TraceRun:
    """A trace that the program itself causes; the base class of the other kinds."""

    call: CachedCall | None = None
    """The call that is replayed."""
    is_followed = True
    """Whether its lines are followed: false while Dynamo traces something that is not part of the function."""
    is_logged = True
    """Whether its history is kept for steps back."""
    stops = True
    """Whether it can stop for the user, so that the visits of its breakpoints count as reported."""
    traces: ProgressOfTraces | None = None
    """Its own progress, if its visits must not count for the program's traces."""
    jumps = False
    """Whether the user has made it jump to another line."""
    is_changed = False
    """Whether it makes changes of the user, who may add others at each line."""
    _silenced: str | None = None

    @property
    def changes(self) -> Changes | None:
        """Return the changes that the user has made in the trace, if any."""
        return None

    def applies(self, mode: str | None) -> bool:
        """Return whether a breakpoint of ``mode`` stops in it."""
        return mode is None or (mode == COMPILE_TIME and self.call is None)

    def on_line(self, frame: TracedFrame, progress: TraceProgress, point: Callable[[], TracePoint]) -> Decision:
        """Decide on the line that ``frame`` has reached; ``point`` returns its position."""
        return Decision.ASK

    def held(self, frame: TracedFrame) -> str:
        """Return the reason of a stop that ``Decision.HOLD`` makes."""
        raise NotImplementedError

    def reaches(self, frame: TracedFrame, breakpoints: Sequence[LineBreakpoint]) -> None:
        """Note that ``frame`` has reached breakpoints."""

    def next_index(self, frame: TracedFrame, index: int, progress: TraceProgress) -> int:
        """Return the next instruction: ``index``, or the target of the user's jump."""
        return index

    def is_over(self) -> bool:
        """Return whether the trace has served its purpose and can end."""
        return False

    def silence(self, compile_id: str | None) -> None:
        """Suppress all stops in the rest of compile ``compile_id``: the user saw its changed trace. None ends that."""
        self._silenced = compile_id

    def may_stop(self, identity: CompileIdentity) -> bool:
        """Return whether the trace can stop."""
        return self.stops and self._silenced != identity.compile_id


class ReplayRun(TraceRun):
    """A replay of a call that stops where the call itself would stop."""

    call: CachedCall

    def __init__(self, call: CachedCall) -> None:
        """Replay ``call``."""
        self.call = call


class SilentRun(ReplayRun):
    """A replay that never stops, for example one that is made only for its graph."""

    is_followed = is_logged = stops = False


_OF_PROGRAM = TraceRun()
"""The run of all traces of the program: under Dynamo's compile lock there is one at a time."""


def current_run() -> TraceRun:
    """Return the run of the trace that the calling thread makes or shows."""
    replay = current_replay()
    return replay if isinstance(replay, TraceRun) else _OF_PROGRAM


class LineTraces:
    """Counts the running traces that need line hooks even without breakpoints. One for each engine."""

    def __init__(self, update_hooks: Callable[[], None]) -> None:
        """Call ``update_hooks`` when the needed hooks change."""
        self._update_hooks = update_hooks
        self._running: list[TraceRun] = []

    @property
    def are_lines_wanted(self) -> bool:
        """Return whether traces have to report lines. Runs on any thread."""
        return bool(self._running)

    @property
    def are_instructions_wanted(self) -> bool:
        """Return whether traces have to report every instruction. Runs on any thread."""
        return any(run.jumps for run in list(self._running))

    @contextlib.contextmanager
    def running(self, run: TraceRun) -> Iterator[None]:
        """Report the lines of ``run``, whose trace runs inside this context."""
        self._running.append(run)
        self._update_hooks()
        try:
            yield
        finally:
            self._running.remove(run)
            self._update_hooks()
