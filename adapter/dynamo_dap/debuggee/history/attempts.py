"""Links a thread's attempts: the running one, abandoned ones, and the part before a graph break.

Each attempt has its own history. When Dynamo abandons an attempt and restarts, the user can still select its snapshots,
but no step leads there. The part after a graph break is a separate trace. A step back from its beginning leads to the
end of the attempt before the break. There is no such attempt in a cached call, or if Dynamo continued at the break
without a restart. Then the step leads to the end of the saved trace of the cache entry that ran up to the break, with
this call's inputs. Runs on the tracing thread, but ``StateLogs.want`` may close attempts on any thread. An attempt
lives until the function or the call that it leads to has ended.
"""

from __future__ import annotations

import contextlib
import types
import weakref
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace

from dynamo_dap.debuggee.agent.engine import RequestError
from dynamo_dap.debuggee.agent.stepping import Step, StepKind
from dynamo_dap.debuggee.history.saved_traces import CannotReuse
from dynamo_dap.debuggee.history.time_travel import Destination, LinesWithBreakpoints, Place, Stops, TraceHistory
from dynamo_dap.debuggee.numerics.graphs.not_finite import NAN, kinds_of
from dynamo_dap.debuggee.torch_api.code_objects.dynamo_names import user_function_name
from dynamo_dap.debuggee.torch_api.graphs.graph import with_operands
from dynamo_dap.debuggee.torch_api.graphs.graph_runs import NoRealValue
from dynamo_dap.debuggee.torch_api.traced.abandoned_attempts import AbandonedAttempt
from dynamo_dap.debuggee.torch_api.traced.data_dependence import node_of_symbol
from dynamo_dap.debuggee.torch_api.traced.traced_frame import MISSING, TracedFrame
from dynamo_dap.debuggee.torch_api.traced.trackers.forms import TensorForm
from dynamo_dap.debuggee.torch_api.traced.variable_trackers import is_tracker
from dynamo_dap.protocol.requests.contract import (
    BECAME_NAN,
    GUARDED_AT,
    MADE,
    MUTATED,
    ErrorId,
    TimelineBody,
    TimelineEntry,
)

_MAXIMUM_ENTRIES = 10_000
_MAXIMUM_REASON = 100


@dataclass(eq=False)
class Attempt:
    """An attempt with its history, or the saved trace of a cached call."""

    history: TraceHistory
    abandoned: AbandonedAttempt | None = None
    """Dynamo's objects of the attempt; None for a cached call's saved trace."""
    before: Attempt | None = None
    """The attempt before the graph break that this one continues."""
    use: Callable[[], AbstractContextManager[None]] | None = None
    """Inserts the inputs of a call that has reached a graph break into the saved trace; None for other traces."""
    code: weakref.ref[types.CodeType] | None = None
    """Its generated code, if known. That code runs up to the break and then calls the resume function."""

    def is_continued_by(self, code: types.CodeType) -> bool:
        """Return whether generated ``code`` continues this attempt."""
        return self.code is not None and self.code() is code

    @property
    def is_abandoned(self) -> bool:
        """Whether Dynamo abandoned it for a restart, so that the program never runs its result."""
        return self.abandoned is not None and self.abandoned.is_abandoned

    @contextlib.contextmanager
    def as_current_trace(self) -> Iterator[None]:
        """Make the attempt the thread's current trace. Raises ``CannotReuse`` if that is impossible now."""
        if self.use is not None:
            with self.use():
                yield
        elif self.abandoned is None or not self.abandoned.is_abandoned:
            yield
        else:
            with self.abandoned.as_current_trace():
                yield

    def show(self, destination: Destination) -> None:
        """Show the state of a destination."""
        self.history.show(destination.shown, as_result=destination.shown != destination.place.at)


StopsOf = Callable[[TraceHistory], Stops]


class Attempts:
    """A thread's attempts, the oldest first; the last one is the running trace's."""

    def __init__(self, known: Sequence[Attempt]) -> None:
        """Give numbers to the snapshots of the ``known`` attempts."""
        self.all = known
        self.present = known[-1]
        self._offsets = [0]
        for each in known[:-1]:
            self._offsets.append(self._offsets[-1] + each.history.end)

    # -- numbers of snapshots, over all attempts --------------------------------------------------------------------

    def number(self, attempt: Attempt, at: int) -> int:
        """Return the number of an attempt's snapshot over all attempts."""
        return self._offsets[self.all.index(attempt)] + at

    def _attempt_at(self, number: int) -> tuple[Attempt, int]:
        index = bisect_right(self._offsets, number) - 1
        return self.all[index], number - self._offsets[index]

    # -- steps -----------------------------------------------------------------------------------------------------

    def back(self, attempt: Attempt, place: Place, step: Step, stops: StopsOf) -> tuple[Attempt, Destination]:
        """Return the destination of a step back: see ``TraceHistory.back``."""
        if step.kind is StepKind.TO_SNAPSHOT:
            attempt, at = self._attempt_at(step.target)
            return attempt, Destination.at(max(attempt.history.beginning, min(at, attempt.history.end - 1)), "goto")
        beginning: tuple[Attempt, Destination] | None = None
        while True:
            try:
                with attempt.as_current_trace():
                    destination = attempt.history.back(place, step, stops(attempt.history))
            except CannotReuse as problem:
                assert beginning is not None, "the first attempt can be shown"
                return beginning[0], replace(beginning[1], remark=f"the trace before it cannot be shown: {problem}")
            if attempt is not self.present:
                attempt.history.show(None)
            if not destination.is_beginning or attempt.before is None:
                return attempt, destination
            beginning = attempt, destination
            attempt = attempt.before
            place = Place(attempt.history.end)

    def forward(
        self, attempt: Attempt, destination: Destination, now: Place, step: Step | None, stops: StopsOf
    ) -> tuple[Attempt, Destination] | None:
        """Return where a step forward stops before ``now``, or None; see ``TraceHistory.forward``."""
        while True:
            end = now if attempt is self.present else Place(attempt.history.end)
            try:
                with attempt.as_current_trace():
                    found = attempt.history.forward(destination, end, step, stops(attempt.history))
            except CannotReuse:  # the trace is in use, or was dropped with the last breakpoint
                found = None
            if found is not None or attempt is self.present:
                return None if found is None else (attempt, found)
            attempt.history.show(None)
            after = next((each for each in reversed(self.all) if each.before is attempt), None)
            if after is None:
                return None
            attempt = after
            destination = Destination(Place(attempt.history.beginning - 1, is_after=True), "entry")

    def statements_between(self, attempt: Attempt, at: int, now: Place) -> int | None:
        """Return the number of statements from ``at`` to ``now``; None if the attempt does not lead there."""
        total = 0
        while attempt is not self.present:
            total += attempt.history.statements_between(at, attempt.history.end)
            after = next((each for each in reversed(self.all) if each.before is attempt), None)
            if after is None:
                return None
            attempt, at = after, after.history.beginning - 1
        return total + attempt.history.statements_between(at, now.at)

    def mark(self, attempt: Attempt) -> str:
        """Return the timeline's heading of an attempt; empty for a single trace."""
        index = self.all.index(attempt)
        run = attempt.history.identity.attempt
        parts: list[str] = []
        is_kept = attempt.abandoned is None
        if attempt.before is not None and (run == 0 or is_kept or attempt is self.present):
            reason = _short(attempt.before.abandoned)
            parts.append(f"after a graph break: {reason}" if reason else "after a graph break")
        if is_kept:  # a saved trace has one attempt
            return ", ".join(parts)
        is_restarted = run > 0 and index > 0 and self.all[index - 1] is not attempt.before
        if attempt.is_abandoned or is_restarted:
            parts.append(f"attempt {run + 1}")
        if attempt.is_abandoned:
            parts.append(f"abandoned: {_short(attempt.abandoned)}")
        return ", ".join(parts)


def _short(abandoned: AbandonedAttempt | None) -> str:
    lines = (abandoned.reason if abandoned is not None else "").strip().splitlines()
    text = lines[0] if lines else ""
    return text if len(text) <= _MAXIMUM_REASON else f"{text[:_MAXIMUM_REASON]}…"


class Standpoint:
    """Implements ``agent.stepping.History``: the history as seen from the place of a held thread."""

    def __init__(
        self, attempts: Attempts, attempt: Attempt, place: Place, breakpoint_lines: LinesWithBreakpoints
    ) -> None:
        """Start at ``place`` in ``attempt``; ``breakpoint_lines`` returns a file's lines with breakpoints."""
        self._attempts = attempts
        self._running = attempt
        self._history = attempt.history
        self._place, self._at = place, place.at
        self._breakpoint_lines = breakpoint_lines

    def timeline(self, start: int | None, count: int) -> TimelineBody:
        """Return ``count`` statements of all attempts, from number ``start`` on, or around the present if None."""
        attempts = self._attempts
        statements: list[tuple[int, Attempt, int, str]] = []
        for attempt in attempts.all:
            history, mark = attempt.history, attempts.mark(attempt)
            for at in range(history.beginning, history.end):
                if history.begins_statement(at):
                    statements.append((attempts.number(attempt, at), attempt, at, mark))
                    mark = ""
        count = min(count, _MAXIMUM_ENTRIES)
        current = attempts.number(self._running, self._at)
        if start is None:
            numbers = [number for number, *_ in statements]
            start = max(0, min(bisect_right(numbers, current) - count // 2, len(statements) - count))
        shown = statements[start : start + count]
        return TimelineBody([self._entry(*each) for each in shown], len(statements), current, start)

    def _entry(self, number: int, attempt: Attempt, at: int, mark: str) -> TimelineEntry:
        snapshot = attempt.history.snapshot(at)
        then = snapshot.frames[0]
        return TimelineEntry(
            snapshot=number,
            function=user_function_name(then.frame.code),
            path=then.path,
            line=then.line,
            depth=len(snapshot.frames) - 1,
            nodes=sum(each.nodes for each in snapshot.graphs),
            has_breakpoint=then.line in (self._breakpoint_lines(then.path) or ()),
            mark=mark,
        )

    def origin(self, depth: int, name: str, what: str) -> int:
        """Return the snapshot where a value originates, numbered over all attempts."""
        return self._attempts.number(self._running, self._origin(depth, name, what))

    def _origin(self, depth: int, name: str, what: str) -> int:
        history, at = self._history, self._at
        frames = history.snapshot(at).frames
        if depth >= len(frames):
            raise _no_origin("only a traced function has a history")
        if what == MADE:
            node = node_of_symbol(name, frames[depth].frame) or name
            return _found(history.made_at(at, node), f"no statement of this trace has added a node '{name}'")
        value = frames[depth].frame.lookup(name)
        if value is MISSING:
            raise _no_origin(f"'{name}' is not a local variable here")
        if what == MUTATED:
            return _found(
                history.changed_at(at, frames[depth].frame, name),
                f"this trace has not changed the object of '{name}'",
            )
        if what == GUARDED_AT:
            source = frames[depth].frame.source_of(value)
            found = None if source is None else history.guarded_at(at, source)
            return _found(found, f"no guard depends on '{name}' yet")
        if what == BECAME_NAN:
            return self._first_nan(frames[depth].frame, value, name)
        bound = history.bound_at(self._place, frames[depth].frame, name, frames[depth].frame.local(name))
        return _found(bound, f"'{name}' came with the call: this trace has not assigned it")

    def _first_nan(self, frame: TracedFrame, value: object, name: str) -> int:
        form = frame.form_of(value) if is_tracker(value) else None
        if not isinstance(form, TensorForm) or form.node is None:
            raise _no_origin(f"'{name}' is not a tensor that this trace has computed")
        for node in with_operands(form.node):
            try:
                has_nan = NAN in kinds_of(frame.real_value(node))
                reason = frame.why_not_proven(node) if has_nan else None
            except NoRealValue:
                continue
            if reason is not None:
                raise _no_origin(f"whether '{node.name}' has a NaN is not known: {reason}")
            if has_nan:
                snapshot = self._history.made_at(self._at, node.name)
                text = f"'{name}' is computed from the input '{node.name}', which had a NaN before the call"
                return _found(snapshot, text)
        raise _no_origin(f"neither '{name}' nor anything that it is computed from has a NaN")


def _found(snapshot: int | None, otherwise: str) -> int:
    if snapshot is None:
        raise _no_origin(otherwise)
    return snapshot


def _no_origin(text: str) -> RequestError:
    return RequestError(text, error_id=ErrorId.NO_ORIGIN)


def all_before(attempt: Attempt) -> list[Attempt]:
    """Return the attempts before an attempt, the nearest first."""
    found: list[Attempt] = []
    before = attempt.before
    while before is not None:
        found.append(before)
        before = before.before
    return found
