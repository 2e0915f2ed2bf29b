"""Steps through a held trace's history: backwards, and forwards again to the present.

The trace's log (``history.state_log``) has its state at each instruction. A step back restores one of these states, and
the thread is held there as usual. Before Dynamo continues, the present state is restored. Runs on the tracing thread; a
``TraceHistory`` lives as long as its log.
"""

from __future__ import annotations

import types
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol

from dynamo_dap.debuggee.agent.stepping import RaisedException, Step, StepKind
from dynamo_dap.debuggee.agent.user_code import is_user_file, replaces_builtin
from dynamo_dap.debuggee.history.snapshots import PastFrame, Snapshot
from dynamo_dap.debuggee.history.state_log import StateLog
from dynamo_dap.debuggee.torch_api.code_objects.generated_code import user_function_of
from dynamo_dap.debuggee.torch_api.graphs.graph import is_same_tensor, written_by
from dynamo_dap.debuggee.torch_api.objects import Node
from dynamo_dap.debuggee.torch_api.traced.traced_frame import TracedFrame
from dynamo_dap.debuggee.torch_api.traced.trackers.forms import TensorForm
from dynamo_dap.debuggee.torch_api.traced.translator import CompileIdentity
from dynamo_dap.debuggee.torch_api.traced.variable_trackers import is_tracker, unwrapped
from dynamo_dap.debuggee.trace.code_facts import CodeFactsCache
from dynamo_dap.debuggee.trace.runs import TracePoint, TraceProgress
from dynamo_dap.debuggee.trace.stepping import Origin, Outcome, outcome

LinesWithBreakpoints = Callable[[str], Collection[int] | None]
"""Returns a file's lines with breakpoints; None if any line may have one."""


class Place(NamedTuple):
    """A place in a trace."""

    at: int
    """The snapshot's number."""
    is_after: bool = False
    """Whether the place is after the start of the snapshot's instruction, and so shows its event or result."""


@dataclass(frozen=True, slots=True)
class StoppingEvent:
    """An earlier instruction's event that ends a step."""

    reason: str
    """DAP's ``stopped.reason``."""
    raised: RaisedException
    hit: Sequence[int] = ()
    """The ids of the breakpoints that cause the stop."""
    as_result: bool = False
    """Whether to show the state after the instruction instead of the state before it."""


class Stops(Protocol):
    """Conditions that end a step through the history."""

    def breakpoint_lines(self, path: str) -> Collection[int] | None:
        """Return a file's lines with breakpoints."""

    def hits(self, at: int, point: TracePoint) -> list[int]:
        """Return the ids of the breakpoints that stop at a snapshot, given by number and point."""

    def event_at(self, at: int) -> StoppingEvent | None:
        """Return the event of a snapshot's instruction that stops, or None."""

    @property
    def has_events(self) -> bool:
        """Whether ``event_at`` can return an event."""


@dataclass(frozen=True, slots=True)
class Destination:
    """The destination of a step through the history."""

    place: Place
    reason: str
    """DAP's ``stopped.reason``."""
    hit: Sequence[int] = ()
    """The ids of the breakpoints that caused the stop."""
    remark: str | None = None
    event: StoppingEvent | None = None
    is_beginning: bool = False
    """Whether it is the beginning of the history."""

    @classmethod
    def at(cls, at: int, reason: str, hit: Sequence[int] = (), remark: str | None = None) -> Destination:
        """Return a destination before a snapshot's instruction."""
        return cls(Place(at), reason, hit, remark)

    @classmethod
    def at_event(cls, at: int, event: StoppingEvent) -> Destination:
        """Return a destination at an instruction's event."""
        return cls(Place(at, is_after=True), event.reason, event.hit, event.raised.headline, event)

    @property
    def shown(self) -> int:
        """The number of the shown snapshot."""
        return self.place.at + 1 if self.event is not None and self.event.as_result else self.place.at


@dataclass(frozen=True, slots=True)
class Event:
    """An exception, or another event of an exception filter, that stopped the trace."""

    filters: Collection[str]
    raised: RaisedException
    hit: Sequence[int]


@dataclass(frozen=True, slots=True)
class _Begins:
    """Whether a line or a statement begins at a snapshot."""

    line: bool = False
    continues_statement: bool = False
    statement: bool = False
    is_user_code: bool = False


class TraceHistory:
    """Steps through one attempt's snapshots, which are numbered from the beginning of the log."""

    def __init__(self, log: StateLog, facts: CodeFactsCache, progress: TraceProgress, *, just_my_code: bool) -> None:
        """End steps only in the user's own files if ``just_my_code``."""
        self._log = log
        self._facts = facts
        self._progress = progress
        self._just_my_code = just_my_code
        self._begins: dict[int, _Begins] = {}
        self._depths: dict[int, dict[int, int]] = {}
        self._visits: defaultdict[tuple[int, int | None], list[int]] = defaultdict(list)
        """Snapshots by the identity of their function's interpreter, and by line.

        With None as the line: all snapshots of that run of the function.
        """
        self._lines: defaultdict[str, defaultdict[int, list[int]]] = defaultdict(lambda: defaultdict(list))
        """Snapshots by file and line."""
        self._visits_known = self._statements_known = log.forgotten
        self._statements: list[int] = []
        self.events: dict[int, list[Event]] = {}
        """Events that stopped the trace, or could have, by the number of the instruction's snapshot."""
        self.stopped: dict[int, set[int]] = {}
        """By snapshot: the ids of the breakpoints that stopped the trace there when the snapshot was the present."""

    @property
    def identity(self) -> CompileIdentity:
        """The compile and the number of the attempt."""
        return self._progress.identity

    @property
    def end(self) -> int:
        """One more than the number of the last snapshot."""
        return self._log.forgotten + len(self._log.snapshots)

    @property
    def beginning(self) -> int:
        """The number of the oldest snapshot."""
        return self._log.forgotten

    def snapshot(self, at: int) -> Snapshot:
        """Return a snapshot."""
        return self._log.snapshots[at - self._log.forgotten]

    def function(self, at: int) -> PastFrame:
        """Return the innermost function of a snapshot: cheaper than the snapshot."""
        return self._log.snapshots.function(at - self._log.forgotten)

    def is_of(self, code: types.CodeType) -> bool:
        """Return whether the compiled function is ``code``, or its resume function."""
        if self.end == self.beginning:
            return False
        return user_function_of(self.snapshot(self.beginning).frames[-1].frame.code) is code

    def outlive_trace(self) -> None:
        """Keep Dynamo's facts about the program's objects, which the running program changes."""
        self._log.outlive_trace()

    def close(self) -> None:
        """Drop the log."""
        self._log.close()

    def show(self, at: int | None, *, as_result: bool = False) -> None:
        """Show a snapshot's state; None for the present, from which the trace continues. See ``StateLog.show``."""
        self._log.show(None if at is None else at - self._log.forgotten, as_result=as_result)

    def present(self, frame: TracedFrame, index: int) -> Place:
        """Return the place of the present, before the instruction at ``index``."""
        if self.end == self.beginning:
            return Place(self.end - 1, is_after=True)
        last = self.function(self.end - 1)
        return Place(self.end - 1, is_after=last.frame != frame or last.at != index)

    def written(self, at: int) -> list[Node]:
        """Return the nodes whose tensors a snapshot's instruction changed in place."""
        before, after = (each.graphs[0] for each in (self.snapshot(at), self.snapshot(at + 1)))
        if after.nodes == before.nodes:
            return []
        numbers = range(before.nodes - before.inputs, after.nodes - after.inputs)
        return [each for number, node in self._log.writing_nodes() if number in numbers for each in written_by(node)]

    # -- points ----------------------------------------------------------------------------------------------------

    def _begins_at(self, at: int) -> _Begins:
        begins = self._begins.get(at)
        if begins is None:
            begins = self._begins[at] = self._look(at)
        return begins

    def _look(self, at: int) -> _Begins:
        snapshot = self.snapshot(at)
        then = snapshot.frames[0]
        frame, index = then.frame, then.at
        facts, is_user_code = self._facts.of(frame), self._is_user_code(frame.path)
        if not snapshot.is_line:
            return _Begins(is_user_code=is_user_code)
        begins_line = facts.begins_line(index, self._previous_index(at))
        depths = self._depth_of_line(at, facts.first_of_line(then.line))
        continues = facts.continues_statement(len(then.stack), index, then.line, depths)
        statement = begins_line and not continues and facts.begins_statement(then.line)
        return _Begins(begins_line, continues, statement, is_user_code)

    def _previous_index(self, at: int) -> int:
        """Return the index of the previous instruction with a line in the same function, or -1."""
        here = self.function(at)
        snapshots = self._snapshots_of(here)
        for number in range(bisect_left(snapshots, at) - 1, -1, -1):
            if snapshots[number] < self.beginning:
                break
            before = self.function(snapshots[number])
            if before.frame.has_line(before.at):
                return before.at
        return -1

    def _depth_of_line(self, at: int, first: int | None) -> dict[int, int]:
        """Return the stack depth at the beginning of a snapshot's line, by line."""
        here = self.function(at)
        found: dict[int, int] = {}
        visits = self._visits_of(here)
        for number in range(bisect_right(visits, at) - 1, -1, -1):
            earlier = visits[number]
            if earlier < self.beginning:
                break
            then = self.function(earlier)
            # The head of a loop begins once, and each round reaches it again: the first round's depth counts.
            if then.at == first or earlier in self._depths:
                found = {here.line: len(then.stack)} if then.at == first else self._depths[earlier]
                break
        self._depths[at] = found
        return found

    def _visits_of(self, then: PastFrame) -> list[int]:
        """Return the snapshots at which a run of a function was on a line."""
        self._look_for_visits()
        return self._visits[id(then.interpreter), then.line]

    def _snapshots_of(self, then: PastFrame) -> list[int]:
        """Return all snapshots of a run of a function."""
        self._look_for_visits()
        return self._visits[id(then.interpreter), None]

    def _look_for_visits(self) -> None:
        for at, function, path, line in self._lines_from(self._visits_known):
            self._visits[function, line].append(at)
            self._visits[function, None].append(at)
            self._lines[path][line].append(at)
        self._visits_known = self.end

    def _lines_from(self, known: int) -> Iterator[tuple[int, int, str, int]]:
        """Yield the snapshots from number ``known`` on, as ``Snapshots.lines`` does."""
        oldest = self.beginning
        for index, function, path, line in self._log.snapshots.lines(max(0, known - oldest), self.end - oldest):
            yield oldest + index, function, path, line

    def begins_statement(self, at: int) -> bool:
        """Return whether a user statement begins at a snapshot."""
        # Do not read the files of hidden libraries.
        return self._is_user_code(self.function(at).path) and self._begins_at(at).statement

    def statements_between(self, at: int, later: int) -> int:
        """Return how many statements begin after a snapshot, up to a later one."""
        statements = self.statements()
        return max(0, bisect_right(statements, later) - bisect_right(statements, at))

    def statements(self) -> Sequence[int]:
        """Return the snapshots at which statements begin, possibly forgotten ones too."""
        for at, _, path, _ in self._lines_from(self._statements_known):
            if self._is_user_code(path) and self._begins_at(at).statement:
                self._statements.append(at)
        self._statements_known = self.end
        return self._statements

    def _is_user_code(self, path: str) -> bool:
        return (not self._just_my_code or is_user_file(path)) and not replaces_builtin(path)

    def point(self, at: int) -> TracePoint:
        """Return a snapshot as a point for the stepping rules."""
        snapshot, begins = self.snapshot(at), self._begins_at(at)
        then = snapshot.frames[0]
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
        """Return the function of a snapshot and its callers, innermost first."""
        return [each.frame for each in self.snapshot(at).frames]

    def origin(self, destination: Destination) -> Origin:
        """Return a destination as the origin of a step."""
        snapshot = self.snapshot(destination.shown)
        then = snapshot.frames[0]
        callers = tuple(self.chain(destination.shown)[1:])
        position = self.snapshot(destination.place.at).position
        if destination.shown == destination.place.at:
            return Origin(then.frame, then.at, then.line, callers, self._progress.identity, position)
        before = (each for each in self.snapshot(destination.place.at).frames if each.interpreter is then.interpreter)
        line = next((each.line for each in before), then.line)
        return Origin(then.frame, then.at - 1, line, callers, self._progress.identity, position)

    # -- steps -----------------------------------------------------------------------------------------------------

    def forward(
        self,
        destination: Destination,
        end: Place,
        step: Step | None,
        stops: Stops,
        *,
        origin: Destination | None = None,
    ) -> Destination | None:
        """Return the first stop after ``destination`` and before ``end``, if any.

        Breakpoints and events always stop. ``origin`` is where the step began, by default at ``destination``.
        """
        place = destination.place
        own: set[TracedFrame] | None = None
        if step is not None and place.at >= self.beginning:
            step = replace(step, origin=self.origin(origin or destination))
            own = set(self.chain((origin or destination).shown)) if step.kind is not StepKind.IN else None
        snapshots = range(max(place.at, self.beginning), min(end.at + 1, self.end))
        may_stop = self._may_stop(snapshots, stops.breakpoint_lines, own or (), every=step is not None and own is None)
        for later in snapshots if stops.has_events else sorted(may_stop):
            if later in may_stop and place < Place(later) < end:
                point = self.point(later)
                if hit := stops.hits(later, point):
                    return Destination.at(later, "breakpoint", hit)
                if step is not None and outcome(step, point) is Outcome.STOP:
                    return Destination.at(later, "step")
            is_between = place < Place(later, is_after=True) < end
            if is_between and stops.has_events and (event := stops.event_at(later)) is not None:
                return Destination.at_event(later, event)
        return None

    def back(self, place: Place, step: Step, stops: Stops) -> Destination:
        """Return the destination of a step back: the beginning, or later."""
        if step.kind is StepKind.RESTART_FRAME:
            return self._restart(place.at, step.target)
        if step.kind is StepKind.TO_SNAPSHOT:
            return Destination.at(max(self.beginning, min(step.target, self.end - 1)), "goto")
        if step.kind is StepKind.BACK:
            return self._step_back(place, step.granularity)
        snapshots = range(self.beginning, min(place.at + 1, self.end))
        may_stop = self._may_stop(snapshots, stops.breakpoint_lines)
        for earlier in reversed(snapshots if stops.has_events else sorted(may_stop)):
            is_before = Place(earlier, is_after=True) < place
            if is_before and stops.has_events and (event := stops.event_at(earlier)) is not None:
                return Destination.at_event(earlier, event)
            if Place(earlier) < place and earlier in may_stop and (hit := stops.hits(earlier, self.point(earlier))):
                return Destination.at(earlier, "breakpoint", hit)
        return self._first()

    def _may_stop(
        self,
        snapshots: range,
        breakpoint_lines: LinesWithBreakpoints,
        own: Collection[TracedFrame] = (),
        *,
        every: bool = False,
    ) -> Collection[int]:
        """Return the ``snapshots`` that may stop: every one, or those in ``own`` functions or on breakpoint lines."""
        if every:
            return snapshots
        self._look_for_visits()
        found = [self._visits[id(each.interpreter), None] for each in own]
        for path, lines in self._lines.items():
            wanted = breakpoint_lines(path)
            found += lines.values() if wanted is None else [lines[line] for line in wanted if line in lines]
        return {
            at for each in found for at in each[bisect_left(each, snapshots.start) : bisect_left(each, snapshots.stop)]
        }

    def _first(self, *, statement: bool = True) -> Destination:
        """Return the oldest snapshot; with ``statement``, the oldest at which a statement begins."""
        if self._log.forgotten:
            text = "the oldest recorded state of the trace"
        else:
            text = self._beginning if self._log.is_from_start else "no earlier breakpoint"
        begins = (at for at in range(self.beginning, self.end) if statement and self.begins_statement(at))
        return Destination(Place(next(begins, self.beginning)), "step", remark=text, is_beginning=True)

    @property
    def _beginning(self) -> str:
        if self.end == self.beginning or not self.snapshot(self.beginning).frames[-1].frame.is_of_resume_function:
            return "the beginning of the trace"
        return "the beginning of the part after the graph break; the part before it is unknown"

    def _step_back(self, place: Place, granularity: str) -> Destination:
        """Step like ``next`` backwards: over calls, and out of the function at its beginning."""
        here = self.snapshot(min(place.at, self.end - 1)).frames
        if place.at == self.end:  # the trace has ended: step over the calls that it ended in
            here = here[-1:]
        own = {each.frame for each in here}
        for earlier in range(min(place.at, self.end - 1), self.beginning - 1, -1):
            then = self.function(earlier)
            if then.frame not in own or Place(earlier) >= place:
                continue
            if granularity == "instruction":
                return Destination.at(earlier, "step")
            begins = self._begins_at(earlier)
            if not begins.is_user_code or not (begins.line if granularity == "line" else begins.statement):
                continue
            is_same_line = then.frame == here[0].frame and then.line == here[0].line and then.at < here[0].at
            if granularity == "statement" or not is_same_line or place.is_after or place.at == self.end:
                return Destination.at(earlier, "step")
        return self._first(statement=granularity != "instruction")

    def _restart(self, at: int, depth: int) -> Destination:
        """Return where the function at stack ``depth`` began."""
        frames = self.chain(at)
        frame = frames[min(depth, len(frames) - 1)]
        found = at
        for earlier in range(found, self.beginning - 1, -1):
            chain = self.chain(earlier)
            if frame not in chain:
                break
            if chain[0] == frame and self._begins_at(earlier).line:
                found = earlier
        return Destination.at(found, "restart")

    # -- origins of values ---------------------------------------------------------------------------------

    def bound_at(self, place: Place, frame: TracedFrame, name: str, value: object) -> int | None:
        """Return the snapshot whose statement assigned a variable; None if its value came with the call."""
        for earlier in range(place.at, self.beginning - 1, -1):
            before = self.function(earlier)
            if Place(earlier) < place and before.frame == frame and not _is_same(before.locals.get(name), value):
                return earlier
        return None

    def changed_at(self, at: int, frame: TracedFrame, name: str) -> int | None:
        """Return the snapshot of the last in-place change of a variable's object, or None."""
        value = next((each.locals.get(name) for each in self.snapshot(at).frames if each.frame == frame), None)
        if value is None:
            return None
        form = frame.form_of(value) if is_tracker(value) else None
        if isinstance(form, TensorForm) and form.node is not None:
            earlier = range(at - 1, self.beginning - 1, -1)
            return next((each for each in earlier if has_written(self.written(each), form.node)), None)
        change = self._log.last_change(value, self.snapshot(at).changes)
        return None if change is None else self._last(at, lambda snapshot: snapshot.changes <= change)

    def guarded_at(self, at: int, source: str) -> int | None:
        """Return the snapshot of the first guard on a source, or None."""
        number = self._log.guard_number(source)
        return None if number is None else self._last(at, lambda snapshot: snapshot.guards <= number)

    def made_at(self, at: int, node: str) -> int | None:
        """Return the snapshot whose statement added a node to the outermost graph, or None."""
        number = self._log.node_numbers().get(node)
        if number is None:
            return None
        inputs = self.snapshot(at).graphs[0].inputs
        return self._last(at, lambda snapshot: snapshot.graphs[0].nodes - snapshot.graphs[0].inputs <= number - inputs)

    def _last(self, at: int, is_before: Callable[[Snapshot], bool]) -> int | None:
        return next((each for each in range(at - 1, self.beginning - 1, -1) if is_before(self.snapshot(each))), None)


def has_written(written: Sequence[Node], node: Node) -> bool:
    """Return whether one of the nodes ``written`` has the same tensor as ``node``."""
    return any(is_same_tensor(each, node) for each in written)


def _is_same(one: object, other: object) -> bool:
    return one is other or (one is not None and other is not None and unwrapped(one) is unwrapped(other))
