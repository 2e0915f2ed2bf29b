"""Steps through the past of a held trace: backwards, and forwards again up to where it stands.

The log of the trace (``torch_internals.trace_log``) has its state at every line that it came to. A step back puts one
of these states in place, and the thread is held there as anywhere else; before Dynamo goes on, what it had found is put
back. Tracing thread; a ``Past`` lives as long as the log that it reads.
"""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from dynamo_dap.debuggee.agent.engine import RequestError
from dynamo_dap.debuggee.agent.stepping import Step, StepKind
from dynamo_dap.debuggee.agent.user_code import is_user_file, stands_in_for_builtin
from dynamo_dap.debuggee.compile_time.code_facts import CodeFactsCache
from dynamo_dap.debuggee.compile_time.stepping import Origin, Outcome, TracePoint, TraceProgress, outcome
from dynamo_dap.debuggee.torch_internals.dynamo_names import user_function_name
from dynamo_dap.debuggee.torch_internals.graph import with_operands
from dynamo_dap.debuggee.torch_internals.graph_runs import NoRealValue
from dynamo_dap.debuggee.torch_internals.not_finite import NAN, kinds_of
from dynamo_dap.debuggee.torch_internals.trace_changes import CHANGES, TRACE_LOG
from dynamo_dap.debuggee.torch_internals.trace_log import Moment, TraceLog
from dynamo_dap.debuggee.torch_internals.traced_frame import MISSING, TracedFrame
from dynamo_dap.debuggee.torch_internals.trackers.forms import TensorForm
from dynamo_dap.debuggee.torch_internals.variable_trackers import is_tracker, unwrapped
from dynamo_dap.protocol.contract import (
    BECAME_NAN,
    GUARDED_AT,
    MADE,
    MUTATED,
    ErrorId,
    TimelineBody,
    TimelineEntry,
)

Hits = Callable[[int, TracePoint], list[int]]
"""Returns the ids of the breakpoints that stop at a moment, given by its number and as a point."""

Armed = Callable[[str], Collection[int] | None]
"""Returns the lines of a file that have breakpoints; None when any line may."""


@dataclass(frozen=True, slots=True)
class Arrival:
    """Where a step through the past ends."""

    at: int
    """The moment's number."""
    reason: str
    """DAP's ``stopped.reason``."""
    hit: Sequence[int] = ()
    """The ids of the breakpoints that it stopped for."""
    remark: str | None = None


@dataclass(frozen=True, slots=True)
class _Begins:
    """What begins at a moment."""

    line: bool = False
    continues_statement: bool = False
    statement: bool = False
    is_user_code: bool = False


class Past:
    """The moments of one attempt, as steps see them: numbered from the beginning of the log."""

    def __init__(self, log: TraceLog, facts: CodeFactsCache, progress: TraceProgress, *, just_my_code: bool) -> None:
        """``just_my_code`` has steps end in the user's own files only."""
        self._log = log
        self._facts = facts
        self._progress = progress
        self._just_my_code = just_my_code
        self._begins: dict[int, _Begins] = {}
        self._depths: dict[int, dict[int, int]] = {}

    @property
    def end(self) -> int:
        """The number after that of the last moment."""
        return self._log.forgotten + len(self._log.moments)

    @property
    def beginning(self) -> int:
        """The number of the oldest moment."""
        return self._log.forgotten

    def moment(self, at: int) -> Moment:
        """Return a moment."""
        return self._log.moments[at - self._log.forgotten]

    def show(self, at: int | None) -> None:
        """Put the state of a moment in place; None: what the trace goes on with."""
        self._log.show(None if at is None else at - self._log.forgotten)

    def present(self, frame: TracedFrame, index: int) -> int:
        """Return the number of the moment at which the trace stands; ``end`` when it is in the middle of a line."""
        if self.end == self.beginning:
            return self.end
        last = self.moment(self.end - 1).frames[0]
        return self.end - 1 if last.frame == frame and last.at == index else self.end

    # -- points ----------------------------------------------------------------------------------------------------

    def _what_begins(self, at: int) -> _Begins:
        begins = self._begins.get(at)
        if begins is None:
            begins = self._begins[at] = self._look(at)
        return begins

    def _look(self, at: int) -> _Begins:
        moment = self.moment(at)
        then = moment.frames[0]
        frame, index = then.frame, then.at
        facts, is_user_code = self._facts.of(frame), self._is_user_code(frame.path)
        if not moment.is_line:
            return _Begins(is_user_code=is_user_code)
        before = self.moment(at - 1).frames[0] if at > self.beginning else None
        begins_line = facts.begins_line(index, before.at if before is not None and before.frame == frame else -1)
        depths = self._depth_of_line(at, facts.first_of_line(then.line))
        continues = facts.continues_statement(len(then.stack), index, then.line, depths)
        statement = begins_line and not continues and facts.begins_statement(then.line)
        return _Begins(begins_line, continues, statement, is_user_code)

    def _depth_of_line(self, at: int, first: int | None) -> dict[int, int]:
        """Return how many values lay on the stack when the line of a moment began, by the line."""
        here = self.moment(at).frames[0]
        found: dict[int, int] = {}
        for earlier in range(at, self.beginning - 1, -1):
            then = self.moment(earlier).frames[0]
            if then.interpreter is not here.interpreter or then.line != here.line:
                continue
            # The head of a loop begins once, and is come to again in each round: what the round before found holds.
            if then.at == first or earlier in self._depths:
                found = {here.line: len(then.stack)} if then.at == first else self._depths[earlier]
                break
        self._depths[at] = found
        return found

    def begins_statement(self, at: int) -> bool:
        """Whether a statement of the user's begins at a moment."""
        begins = self._what_begins(at)
        return begins.statement and begins.is_user_code

    def statements_between(self, at: int, later: int) -> int:
        """Return how many statements begin after a moment, up to a later one."""
        return sum(map(self.begins_statement, range(at + 1, min(later + 1, self.end))))

    def _is_user_code(self, path: str) -> bool:
        return (not self._just_my_code or is_user_file(path)) and not stands_in_for_builtin(path)

    def point(self, at: int) -> TracePoint:
        """Return a moment as a point that steps may end at."""
        moment, begins = self.moment(at), self._what_begins(at)
        then = moment.frames[0]
        return TracePoint(
            frame=then.frame,
            index=then.at,
            line=then.line,
            facts=self._facts.of(then.frame),
            progress=self._progress,
            begins_line=begins.line,
            continues_statement=begins.continues_statement,
            chain=lambda: self.chain(at),
            is_user_code=begins.is_user_code,
        )

    def chain(self, at: int) -> list[TracedFrame]:
        """Return the function of a moment and its callers, innermost first."""
        return [each.frame for each in self.moment(at).frames]

    def origin(self, at: int) -> Origin:
        """Return a moment as where a step begins."""
        moment = self.moment(at)
        then = moment.frames[0]
        identity = self._progress.identity
        return Origin(then.frame, then.at, then.line, tuple(self.chain(at)[1:]), identity, moment.position)

    # -- steps -----------------------------------------------------------------------------------------------------

    def forward(self, at: int, end: int, step: Step | None, hits: Hits, armed: Armed) -> Arrival | None:
        """Return where going forward from ``at`` stops before ``end``, if it does; without a step at breakpoints."""
        own: set[TracedFrame] | None = None
        if step is not None and at >= self.beginning:
            step = replace(step, origin=self.origin(at))
            own = set(self.chain(at)) if step.kind is not StepKind.IN else None
        for later in self._armed(range(at + 1, end), armed, own or (), every=step is not None and own is None):
            point = self.point(later)
            if hit := hits(later, point):
                return Arrival(later, "breakpoint", hit)
            if step is not None and outcome(step, point) is Outcome.STOP:
                return Arrival(later, "step")
        return None

    def back(self, at: int, step: Step, hits: Hits, armed: Armed) -> Arrival:
        """Return where a step into the past ends: at the beginning at the latest."""
        if step.kind is StepKind.RESTART_FRAME:
            return self._restart(at, step.target)
        if step.kind is StepKind.TO_MOMENT:
            return Arrival(max(self.beginning, min(step.target, self.end - 1)), "goto")
        if step.kind is StepKind.BACK:
            return self._step_back(at, step.granularity)
        for earlier in self._armed(range(min(at, self.end) - 1, self.beginning - 1, -1), armed):
            if hit := hits(earlier, self.point(earlier)):
                return Arrival(earlier, "breakpoint", hit)
        return self._first()

    def _armed(
        self, moments: Iterable[int], armed: Armed, own: Collection[TracedFrame] = (), *, every: bool = False
    ) -> Iterator[int]:
        """Yield those of the moments that may stop: every one, or those of ``own`` functions and at armed lines."""
        lines: dict[str, Collection[int] | None] = {}
        interpreters = {each.interpreter for each in own}
        for at in moments:
            then = self.moment(at).frames[0]
            path = then.path
            if path not in lines:
                lines[path] = armed(path)
            of_file = lines[path]
            if every or of_file is None or then.line in of_file or then.interpreter in interpreters:
                yield at

    def _first(self) -> Arrival:
        text = "the beginning of the trace" if not self._log.forgotten else "as far back as the trace is remembered"
        for at in range(self.beginning, self.end):
            begins = self._what_begins(at)
            if begins.statement and begins.is_user_code:
                return Arrival(at, "step", remark=text)
        return Arrival(self.beginning, "step", remark=text)

    def _step_back(self, at: int, granularity: str) -> Arrival:
        """As ``next`` the other way round: over what was called, and out of the function at its beginning."""
        here = self.moment(min(at, self.end - 1)).frames
        own = {each.frame for each in here}
        for earlier in range(min(at, self.end) - 1, self.beginning - 1, -1):
            then = self.moment(earlier).frames[0]
            if then.frame not in own:
                continue
            if granularity == "instruction":
                return Arrival(earlier, "step")
            begins = self._what_begins(earlier)
            if not begins.is_user_code or not (begins.line if granularity == "line" else begins.statement):
                continue
            is_same_line = then.frame == here[0].frame and then.line == here[0].line and then.at < here[0].at
            if not (is_same_line and at < self.end):
                return Arrival(earlier, "step")
        return self._first()

    def _restart(self, at: int, depth: int) -> Arrival:
        """Return where the function at ``depth`` of the stack began."""
        frames = self.chain(min(at, self.end - 1))
        frame = frames[min(depth, len(frames) - 1)]
        found = min(at, self.end - 1)
        for earlier in range(found, self.beginning - 1, -1):
            chain = self.chain(earlier)
            if frame not in chain:
                break
            if chain[0] == frame and self._what_begins(earlier).line:
                found = earlier
        return Arrival(found, "restart")

    # -- where something came from ---------------------------------------------------------------------------------

    def bound_at(self, at: int, depth: int, name: str) -> int | None:
        """Return the moment whose statement gave a variable its value; None when it came with the call."""
        then = self.moment(at).frames[depth]
        value = then.locals.get(name)
        for earlier in range(at - 1, self.beginning - 1, -1):
            before = self.moment(earlier).frames[0]
            if before.frame == then.frame and not _is_same(before.locals.get(name), value):
                return earlier
        return None

    def changed_at(self, at: int, depth: int, name: str) -> int | None:
        """Return the moment whose statement changed a variable's object in place last; None when none did."""
        value = self.moment(at).frames[depth].locals.get(name)
        change = None if value is None else self._log.last_change(value, self.moment(at).changes)
        return None if change is None else self._last(at, lambda moment: moment.changes <= change)

    def guarded_at(self, at: int, source: str) -> int | None:
        """Return the moment whose statement asked for the first guard on what a source finds; None when none did."""
        number = self._log.guard_number(source)
        return None if number is None else self._last(at, lambda moment: moment.guards <= number)

    def made_at(self, at: int, node: str) -> int | None:
        """Return the moment whose statement added a node to the outermost graph; None when none did."""
        number = self._log.node_numbers().get(node)
        if number is None:
            return None
        inputs = self.moment(at).graphs[0].inputs
        return self._last(at, lambda moment: moment.graphs[0].nodes - moment.graphs[0].inputs <= number - inputs)

    def _last(self, at: int, is_before: Callable[[Moment], bool]) -> int | None:
        return next((each for each in range(at - 1, self.beginning - 1, -1) if is_before(self.moment(each))), None)


def _is_same(one: object, other: object) -> bool:
    return one is other or (one is not None and other is not None and unwrapped(one) is unwrapped(other))


_MAXIMUM_ENTRIES = 10_000


class Standpoint:
    """A moment of the past, or the present, as who is held there sees what was before: ``agent.stepping.History``."""

    def __init__(self, past: Past, at: int, armed: Armed) -> None:
        """``at`` is the moment's number; ``armed`` tells which lines have breakpoints."""
        self._past = past
        self._at = min(at, past.end - 1)
        self._armed = armed

    def timeline(self, start: int | None, count: int) -> TimelineBody:
        """See ``History``."""
        statements = [at for at in range(self._past.beginning, self._past.end) if self._past.begins_statement(at)]
        count = min(count, _MAXIMUM_ENTRIES)
        if start is None:
            start = max(0, min(bisect_right(statements, self._at) - count // 2, len(statements) - count))
        shown = statements[start : start + count]
        return TimelineBody([self._entry(at) for at in shown], len(statements), self._at, start)

    def _entry(self, at: int) -> TimelineEntry:
        moment = self._past.moment(at)
        then = moment.frames[0]
        return TimelineEntry(
            moment=at,
            function=user_function_name(then.frame.code),
            path=then.path,
            line=then.line,
            depth=len(moment.frames) - 1,
            nodes=sum(each.nodes for each in moment.graphs),
            has_breakpoint=then.line in (self._armed(then.path) or ()),
        )

    def origin(self, depth: int, name: str, what: str) -> int:
        """See ``History``."""
        past, at = self._past, self._at
        frames = past.moment(at).frames
        if depth >= len(frames):
            raise _no_origin("a function that is not traced keeps nothing of its past")
        if what == MADE:
            return _found(past.made_at(at, name), f"no statement of this trace has added a node '{name}'")
        value = frames[depth].frame.lookup(name)
        if value is MISSING:
            raise _no_origin(f"there is no local variable '{name}' here")
        if what == MUTATED:
            return _found(
                past.changed_at(at, depth, name), f"the object of '{name}' has not been changed in this trace"
            )
        if what == GUARDED_AT:
            source = frames[depth].frame.source_of(value)
            found = None if source is None else past.guarded_at(at, source)
            return _found(found, f"no guard holds '{name}' to anything so far")
        if what == BECAME_NAN:
            return self._first_nan(frames[depth].frame, value, name)
        return _found(
            past.bound_at(at, depth, name), f"'{name}' came with the call: nothing in this trace has bound it"
        )

    def _first_nan(self, frame: TracedFrame, value: object, name: str) -> int:
        form = frame.form_of(value) if is_tracker(value) else None
        if not isinstance(form, TensorForm) or form.node is None:
            raise _no_origin(f"'{name}' is no tensor that this trace has computed")
        for node in with_operands(form.node):
            try:
                has_nan = NAN in kinds_of(frame.real_value(node))
            except NoRealValue:
                continue
            if has_nan:
                moment = self._past.made_at(self._at, node.name)
                return _found(moment, f"'{node.name}', which '{name}' is computed from, came with a NaN")
        raise _no_origin(f"neither '{name}' nor anything that it is computed from has a NaN")


def _found(moment: int | None, otherwise: str) -> int:
    if moment is None:
        raise _no_origin(otherwise)
    return moment


def _no_origin(text: str) -> RequestError:
    return RequestError(text, error_id=ErrorId.NO_ORIGIN)


class TraceLogs:
    """The log of the trace that runs. One for each process; tracing thread, but for ``want``."""

    def __init__(self, facts: CodeFactsCache) -> None:
        self._facts = facts
        self._past: Past | None = None
        self._log: TraceLog | None = None
        self._attempt: object = None
        self._thread: int | None = None
        self._is_wanted = self._has_gap = False
        """Whether anything is noted, and whether nothing was for a while: the log does not lead to what comes then."""

    def want(self, wanted: bool) -> None:
        """Hear of what traces change in place, or not. Any thread."""
        self._is_wanted = wanted
        self._has_gap = self._has_gap or not wanted
        CHANGES.want(wanted)

    def note(self, frame: TracedFrame, progress: TraceProgress, *, just_my_code: bool, is_line: bool = True) -> None:
        """The trace has come to an instruction, which has a line or not."""
        if TRACE_LOG.problem is not None or not self._is_wanted:
            return
        log = self._log
        if log is None or self._has_gap or self._attempt is not frame.attempt:
            self._thread = threading.get_ident()
            self.forget()
            self._has_gap = False
            log = self._log = CHANGES.log = TraceLog(frame)
            self._attempt = frame.attempt
            self._past = Past(log, self._facts, progress, just_my_code=just_my_code)
        log.note(frame, progress.position, is_line=is_line and not frame.is_in_resume_prologue)

    def of(self, frame: TracedFrame) -> Past | None:
        """Return the past of the frame's trace; None when it is not known."""
        return self._past if self._attempt is frame.attempt else None

    def take(self, output: object) -> tuple[Past, TraceLog] | None:
        """Return the past of the attempt that wrote ``output``, to be kept; None when it is not all known."""
        past, log = self._past, self._log
        if past is None or log is None or self._attempt is not output or log.forgotten:
            return None
        self._log = self._past = self._attempt = CHANGES.log = None
        return past, log

    def forget(self) -> None:
        """The trace of this thread is over, if it has one: another thread may be tracing by now."""
        if self._thread not in (None, threading.get_ident()):
            return
        if self._log is not None:
            self._log.close()
        self._log = self._past = self._attempt = CHANGES.log = None
