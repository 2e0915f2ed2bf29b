"""Finds the stops of steps through a trace's history: breakpoints, data breakpoints, exceptions.

A reverse step visits the trace's stops in reverse order. For data breakpoints it compares the values in the trace's
log, so a breakpoint that was set after the change stops as well. Runs on the tracing thread. An instance lives for one
stop, or for one walk through a saved trace.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from dynamo_dap.debuggee.agent.breakpoints import GUARDED, DataEntry, FunctionEntry, LineBreakpoint
from dynamo_dap.debuggee.agent.engine import Host
from dynamo_dap.debuggee.bytecode.line_table import qualified_name
from dynamo_dap.debuggee.history.time_travel import StoppingEvent, TraceHistory, has_written
from dynamo_dap.debuggee.torch_api.code_objects.dynamo_names import resume_function
from dynamo_dap.debuggee.torch_api.code_objects.generated_code import user_function_of
from dynamo_dap.debuggee.torch_api.objects import Node
from dynamo_dap.debuggee.torch_api.traced.traced_frame import TracedFrame
from dynamo_dap.debuggee.torch_api.traced.trackers.forms import TensorForm
from dynamo_dap.debuggee.torch_api.traced.variable_trackers import is_tracker
from dynamo_dap.debuggee.trace.code_facts import CodeFactsCache
from dynamo_dap.debuggee.trace.data_watch import difference, mutation, state_of
from dynamo_dap.debuggee.trace.frames import TracedFunction
from dynamo_dap.debuggee.trace.runs import TracePoint, current_run
from dynamo_dap.debuggee.trace.stop_texts import data_changed

AddressOf = Callable[[TracedFrame, int], int]


class ReverseStops:
    """Finds the stops of a reverse step. It counts no hits and logs nothing: the trace has already done both."""

    def __init__(self, host: Host, history: TraceHistory, address_of: AddressOf) -> None:
        """Use ``address_of``, which returns the address of an instruction of a traced function."""
        self._host = host
        self._history = history
        self._address_of = address_of
        self._facts = CodeFactsCache()
        self._watched = [entry for entry in host.breakpoints.data if entry.access != GUARDED]
        self._of_code: dict[int, list[DataEntry]] = {}

    def breakpoint_lines(self, path: str) -> Collection[int] | None:
        """Return the lines of a file with breakpoints; None if any line may stop because of a function breakpoint."""
        return None if self._host.breakpoints.functions else self._host.breakpoints.lines_in(path) or ()

    # -- lines and functions ---------------------------------------------------------------------------------------

    def hits(self, at: int, point: TracePoint) -> list[int]:
        """Return the breakpoints that stop; with a hit count, only where they have stopped in the trace."""
        candidates = [each for each in self._candidates(point) if each.conditions.log_message is None]
        stopped = self._history.stopped.get(at, ())
        candidates = [each for each in candidates if each.conditions.hit_condition is None or each.id in stopped]
        if any(each.conditions.condition is not None for each in candidates):
            self._history.show(at)
        return self._holding(candidates, point.frame, point.index)

    def _candidates(self, point: TracePoint) -> list[LineBreakpoint]:
        lines = self._host.breakpoints.lines_in(point.frame.path) or {}
        return [*applying(point, lines.get(point.line, ())), *functions_begun(self._host, point)]

    def _holding(self, candidates: Sequence[LineBreakpoint], frame: TracedFrame, index: int) -> list[int]:
        if not candidates:
            return []
        shown = TracedFunction(frame, self._address_of(frame, index), {}, self._host)
        return [each.id for each in candidates if self._host.condition_holds(each, lambda: shown)]

    # -- what instructions did -------------------------------------------------------------------------------------

    @property
    def has_events(self) -> bool:
        """Return whether a data breakpoint or an event of the trace can stop."""
        return bool(self._watched or self._history.events)

    def event_at(self, at: int) -> StoppingEvent | None:
        """Return the stop at a snapshot's instruction: for the change of a watched value, else for an event."""
        return self._change_at(at) or self._event_at(at)

    def _event_at(self, at: int) -> StoppingEvent | None:
        on = {*self._host.breakpoints.exception_filters, *self._host.eager_debugger.exception_filters}
        data = {entry.id for entry in self._host.breakpoints.data}
        for event in reversed(self._history.events.get(at, ())):
            hit = [each for each in event.hit if each in data]
            if hit or not on.isdisjoint(event.filters):
                return StoppingEvent("data breakpoint" if hit else "exception", event.raised, hit)
        return None

    def _change_at(self, at: int) -> StoppingEvent | None:
        found = self._watched_at(at)
        if not found:
            return None
        history = self._history
        written = history.written(at)
        history.show(at)
        before = [state_of(frame, entry.variable.name) for entry, frame in found]
        history.show(at + 1, as_result=True)
        changes: dict[DataEntry, str] = {}
        for (entry, frame), then in zip(found, before, strict=True):
            name = entry.variable.name
            now = state_of(frame, name)
            text = difference(name, then, now)
            if text is None and then is not None and now is not None and _is_among(frame, now.value, written):
                text = mutation(name, then, now)
            if text is not None:
                changes[entry] = text
        frame = history.snapshot(at + 1).frames[0].frame
        hit = self._stopping(at, list(changes), frame) if changes else []
        texts = [text for entry, text in changes.items() if entry.id in hit]
        return StoppingEvent("data breakpoint", data_changed("; ".join(texts)), hit, as_result=True) if hit else None

    def _stopping(self, at: int, entries: Sequence[DataEntry], frame: TracedFrame) -> list[int]:
        stopped = self._history.stopped.get(at, ())
        known = [each for each in entries if each.conditions.hit_condition is None or each.id in stopped]
        return self._holding(known, frame, frame.index)

    def _watched_at(self, at: int) -> list[tuple[DataEntry, TracedFrame]]:
        """Return data breakpoints whose variable the snapshot's instruction may have changed, with its function."""
        if not self._watched or at + 1 >= self._history.end:
            return []
        snapshot, after = self._history.snapshot(at), self._history.snapshot(at + 1)
        found: list[tuple[DataEntry, TracedFrame]] = []
        for then in snapshot.frames:
            entries = self._entries_of(then.frame)
            now = (
                next((each for each in after.frames if each.interpreter is then.interpreter), None) if entries else None
            )
            if now is None or self._facts.of(then.frame).is_resume_prologue(then.at):
                continue
            is_changed = snapshot.changes != after.changes or bool(self._history.written(at))
            for entry in entries:
                name = entry.variable.name
                if is_changed or then.locals.get(name) is not now.locals.get(name):
                    found.append((entry, then.frame))
        return found

    def _entries_of(self, frame: TracedFrame) -> list[DataEntry]:
        code = frame.code
        known = self._of_code.get(id(code))
        if known is None:
            function = user_function_of(code)
            known = [entry for entry in self._watched if entry.variable.belongs_to(function)]
            self._of_code[id(code)] = known
        return known


class StopsOfCall(ReverseStops):
    """Finds the stops of a cached call in its saved trace; counts hits and logs messages."""

    def __init__(
        self,
        host: Host,
        history: TraceHistory,
        address_of: AddressOf,
        unreported: Callable[[Sequence[LineBreakpoint], TracePoint], Sequence[LineBreakpoint]],
    ) -> None:
        """Use ``unreported``, which returns the breakpoints that may stop."""
        super().__init__(host, history, address_of)
        self._unreported = unreported

    def hits(self, at: int, point: TracePoint) -> list[int]:
        """Return the breakpoints that stop, and count their hits: this call is new."""
        candidates = self._candidates(point)
        if not candidates:
            return []
        self._history.show(at)
        current_run().reaches(point.frame, candidates)
        return self._noted(at, self._should_stop(self._unreported(candidates, point), point.frame, point.index))

    def event_at(self, at: int) -> StoppingEvent | None:
        """Return the stop for a watched value that a snapshot's instruction changes, and note the hit."""
        event = self._change_at(at)
        if event is not None:
            self._noted(at, event.hit)
        return event

    def _stopping(self, at: int, entries: Sequence[DataEntry], frame: TracedFrame) -> list[int]:
        return self._should_stop(entries, frame, frame.index)

    def _should_stop(self, entries: Sequence[LineBreakpoint], frame: TracedFrame, index: int) -> list[int]:
        address = self._address_of(frame, index)
        return self._host.should_stop(list(entries), lambda: TracedFunction(frame, address, {}, self._host))

    def _noted(self, at: int, hit: list[int] | Sequence[int]) -> list[int]:
        if hit:
            self._history.stopped.setdefault(at, set()).update(hit)
        return list(hit)


def applying(point: TracePoint, reached: Sequence[LineBreakpoint]) -> list[LineBreakpoint]:
    """Return the breakpoints on a line that apply to traces, if the line begins here."""
    if not reached or not point.begins_line or point.continues_statement:
        return []
    run = current_run()
    return [breakpoint for breakpoint in reached if run.applies(breakpoint.mode)]


def functions_begun(host: Host, point: TracePoint) -> list[FunctionEntry]:
    """Return the breakpoints on the function at ``point``, if its first line begins there."""
    functions = host.breakpoints.functions
    code = point.frame.code
    if not functions or point.index != point.facts.first_line_start or resume_function(code) is not None:
        return []
    module = point.frame.globals.get("__name__")
    name = qualified_name(code)
    return [breakpoint for breakpoint in functions if breakpoint.matches(name, module)]


def _is_among(frame: TracedFrame, value: object, written: Sequence[Node]) -> bool:
    form = frame.form_of(value) if written and is_tracker(value) else None
    return isinstance(form, TensorForm) and form.node is not None and has_written(written, form.node)
