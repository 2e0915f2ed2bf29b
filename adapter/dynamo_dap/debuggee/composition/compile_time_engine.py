"""The compile-time engine: stops Dynamo's interpreter at the user's lines and instructions.

``arm`` runs on any thread and decides which hooks are installed; everything else runs on the tracing thread, inside a
hook, under Dynamo's compile lock. One per process, made when the program imports Dynamo. While there are no
breakpoints, steps or pause requests, no hook is installed.
"""

from __future__ import annotations

import sys
import types
import weakref
from collections.abc import Collection, Sequence
from dataclasses import replace

from dynamo_dap.debuggee.agent.breakpoints import GUARDED, DataEntry, FunctionEntry, LineBreakpoint
from dynamo_dap.debuggee.agent.engine import Host
from dynamo_dap.debuggee.agent.frames import Frame, caller_frame
from dynamo_dap.debuggee.agent.stepping import RaisedException, Step, Stop
from dynamo_dap.debuggee.agent.user_code import is_user_file, stands_in_for_builtin
from dynamo_dap.debuggee.bytecode.line_table import qualified_name
from dynamo_dap.debuggee.history.attempts import Attempt, Attempts, Standpoint, TraceLogs, all_before
from dynamo_dap.debuggee.history.before_breaks import locals_before_break
from dynamo_dap.debuggee.history.reverse_stops import StopsInThePast, StopsOfCall, applying
from dynamo_dap.debuggee.history.time_travel import Destination, Event, Past, Place
from dynamo_dap.debuggee.history.what_if import WhatIfs
from dynamo_dap.debuggee.inductor.lowering_stops import LoweringStops
from dynamo_dap.debuggee.numerics.backward_passes import BackwardPasses
from dynamo_dap.debuggee.numerics.value_stops import ValueStops
from dynamo_dap.debuggee.replay.cached_calls import ReplayedCalls
from dynamo_dap.debuggee.torch_api.compile_hooks import HOOKS, CompileObserver, CompileResult, FrameCompile
from dynamo_dap.debuggee.torch_api.dynamo_names import resume_function
from dynamo_dap.debuggee.torch_api.graph_runs import Limits
from dynamo_dap.debuggee.torch_api.real_values import limit_real_values
from dynamo_dap.debuggee.torch_api.traced_frame import TracedFrame, frame_at_comptime_breakpoint
from dynamo_dap.debuggee.torch_api.tracing_hooks import LINES, TranslatorHooks
from dynamo_dap.debuggee.trace.code_facts import CodeFactsCache
from dynamo_dap.debuggee.trace.compile_stops import CompileStops
from dynamo_dap.debuggee.trace.data_watch import DataWatch
from dynamo_dap.debuggee.trace.disassembly import TracedCodes
from dynamo_dap.debuggee.trace.frames import TracedFunction, frames_of
from dynamo_dap.debuggee.trace.progress import ProgressOfTraces, TracePoint, TraceProgress
from dynamo_dap.debuggee.trace.runs import Decision, LineTraces, TraceRun, current_run
from dynamo_dap.debuggee.trace.stepping import Origin, Outcome, ends_at, outcome, passes_within_line
from dynamo_dap.debuggee.trace.stop_texts import data_changed, explain, headline, in_the_past
from dynamo_dap.protocol.contract import COMPILE_TIME
from dynamo_dap.protocol.options import RealValues
from dynamo_dap.protocol.types import DisassembleArguments, DisassembleResponseBody


class CompileTimeEngine:
    """Stops traces. See ``agent.engine.Engine``."""

    name = COMPILE_TIME

    def __init__(self, host: Host) -> None:
        """Work for ``host``, the agent."""
        self._host = host
        self._hooks = TranslatorHooks(self._on_line_instruction, self._on_instruction)
        self._facts = CodeFactsCache()
        self._logs = TraceLogs(self._facts, lambda: host.options.just_my_code)
        self._ends = _EndsOfTraces(self._logs)
        self._codes = TracedCodes()
        self._traces = ProgressOfTraces()
        self._attempt: weakref.ref[object] | None = None
        self._progress: TraceProgress | None = None
        self._watches_every_line = False
        self._line_traces = LineTraces(self.arm)
        self._what_ifs = WhatIfs(host, self._line_traces, self._logs)
        self._compile_stops = CompileStops(host, self.name, self._stop_at_exception)
        self._lowering_stops = LoweringStops(host)
        self._data_watch = DataWatch()
        self.backward_passes = BackwardPasses(host, self._codes.address_of, self._line_traces)
        self._value_stops = ValueStops(host, self._stop_at_exception, self.backward_passes)
        shown = self._value_stops.shown
        self.cached_calls = ReplayedCalls(host, self._logs, self._walk, self._traces, shown.looked_at)
        if LINES.problem is not None:
            host.print(f"dynamo-dap: {LINES.problem}\n", "important")

    # -- arming ----------------------------------------------------------------------------------------------------

    def arm(self) -> None:
        """Install the hooks that breakpoints, steps and pause requests need now, and remove others. Any thread."""
        host = self._host
        wanted = host.options.compile_time
        limit_real_values(_limits(host.options.real_values))
        self._watches_every_line = (
            host.steps.any_step or host.steps.any_pause_request or bool(host.breakpoints.functions)
        )
        lines = wanted and (self._watches_every_line or host.breakpoints.any_line(COMPILE_TIME))
        lines = lines or self._line_traces.are_lines_wanted or self.backward_passes.are_wanted()
        lines = lines or self._compile_stops.are_lines_wanted
        watched = any(entry.access != GUARDED for entry in host.breakpoints.data)
        # Those without a line, where a step by instruction may end, are heard of with lines.
        each_instruction = watched or self._line_traces.are_instructions_wanted
        self._hooks.want(lines=lines, instructions=wanted and each_instruction)
        ended = {CompileObserver.compile_ended}
        # A log that nobody closes would keep the trace alive.
        self._logs.want(lines and not HOOKS.problems(ended))
        HOOKS.want(self._ends, ended if lines else ())
        self._compile_stops.arm()
        self._lowering_stops.arm()
        self._value_stops.arm()

    def close(self) -> None:
        """Remove the hooks. Any thread."""
        self._watches_every_line = False
        self._hooks.want(lines=False, instructions=False)
        self._logs.want(False)
        HOOKS.want(self._ends, ())
        self._compile_stops.close()
        self._lowering_stops.close()
        self._value_stops.close()

    # -- hooks: the tracing thread ---------------------------------------------------------------------------------

    def _on_line_instruction(self, frame: TracedFrame) -> None:
        run = current_run()
        if not run.is_followed:
            return
        progress = self._progress_of(frame, run)
        progress.position += 1
        if run.is_logged and not self._host.is_holding:
            self._logs.note(frame, progress, as_a_whole=run.changes is not None)
        decision = run.on_line(frame, progress, lambda: self._point(frame, progress))
        if decision is not Decision.GO_ON:
            lines = self._host.breakpoints.lines_in(frame.path)
            here = () if lines is None else lines.get(frame.line, ())
            if decision is Decision.HOLD:
                point = self._point(frame, progress)
                for breakpoint in here:
                    self._is_new(breakpoint, point)  # not to be stopped for here when the analysis is begun again
                self._stop(point, run.held(frame))
            elif here or self._watches_every_line:
                self._visit(frame, progress, run, here)
        if run.is_over():
            frame.end_trace()

    def _on_instruction(self, frame: TracedFrame) -> None:
        """Instructions without a line are seen only here; steps by instruction stop at them."""
        run, index = current_run(), frame.next_index
        if index is None or not run.is_logged:
            return
        if run.jumps:
            frame.next_index = index + 1  # as below
            frame.next_index = index = run.next_index(frame, index, self._progress_of(frame, run))
        is_silent = self._host.is_holding or not run.stops
        if (watched := self._host.breakpoints.data) and not is_silent:
            self._watch(frame, run, watched)
        if frame.has_line(index):
            return
        # As ``step`` would do next; the frame shows the instruction to its readers.
        frame.next_index = index + 1
        try:
            progress = self._progress_of(frame, run)
            if not self._host.is_holding:
                self._logs.note(frame, progress, is_line=False)
            step = self._host.steps.current()
            if step is not None and step.granularity == "instruction" and not is_silent:
                self._visit(frame, progress, run, ())
        finally:
            frame.next_index = index
        if run.is_over():
            frame.end_trace()

    def _watch(self, frame: TracedFrame, run: TraceRun, watched: tuple[DataEntry, ...]) -> None:
        """Stop for what the instruction before has changed."""
        changes = self._data_watch.changes(watched, frame)
        # A function begins without a previous instruction.
        if not changes or not frame.next_index:
            return
        point = self._point(frame, self._progress_of(frame, run))
        if not run.may_stop(point.progress.identity):
            return
        new = [change for change in changes if self._is_new(change.entry, point)]
        hit = self._stopping(self._unreported([change.entry for change in new], point), point)
        if hit:
            text = "; ".join(change.text for change in new if change.entry.id in hit)
            self._stop(point, "data breakpoint", hit, raised=data_changed(text))

    def _stopping(self, entries: Sequence[LineBreakpoint], point: TracePoint) -> list[int]:
        """Return the ids of those whose conditions hold."""
        if not entries:
            return []
        address = self._codes.address_of(point.frame, point.index)
        return self._host.should_stop(list(entries), lambda: TracedFunction(point.frame, address, {}, self._host))

    def _progress_of(self, frame: TracedFrame, run: TraceRun) -> TraceProgress:
        # Not kept alive: it leads to what the call was given.
        if self._progress is None or self._attempt is None or self._attempt() is not frame.attempt:
            self._attempt = weakref.ref(frame.attempt)
            self._progress = (run.traces or self._traces).of(frame, stops=run.stops)
        return self._progress

    def _point(self, frame: TracedFrame, progress: TraceProgress, came_from: int | None = None) -> TracePoint:
        """Return where a frame stands; ``came_from`` is what ``TraceProgress.comes_from`` has said of it."""
        filename = frame.path
        is_wanted = not self._host.options.just_my_code or is_user_file(filename)
        index = frame.index
        facts = self._facts.of(frame)
        if came_from is None:
            came_from = progress.comes_from(frame, index)
        begins_line = facts.begins_line(index, came_from)
        return TracePoint(
            frame=frame,
            index=index,
            line=frame.line,
            facts=facts,
            progress=progress,
            begins_line=begins_line and not frame.is_in_resume_prologue,
            continues_statement=facts.continues_statement(frame.depth, index, frame.line),
            chain=lambda: frame.running(sys._getframe()),
            is_user_code=is_wanted and not stands_in_for_builtin(filename),
        )

    def _visit(
        self, frame: TracedFrame, progress: TraceProgress, run: TraceRun, reached: tuple[LineBreakpoint, ...]
    ) -> None:
        if self._host.is_holding:
            return
        index, facts = frame.index, self._facts.of(frame)
        came_from = progress.comes_from(frame, index)
        step = self._host.steps.current()
        if index not in facts.line_starts and (step is None or passes_within_line(step, frame)):
            return
        point = self._point(frame, progress, came_from)
        hit = self._breakpoints_hit(point, run, reached)
        if hit:
            self._stop(point, "breakpoint", hit)
        elif not run.may_stop(progress.identity):
            return
        elif self._host.steps.any_pause_request and self._may_pause(point) and self._host.steps.take_pause_request():
            self._stop(point, "pause")
        elif (step := self._host.steps.current()) is not None:
            ended = outcome(step, point)
            if ended is Outcome.STOP_AFTER_RESTART and run.call is not None:
                # Nothing of what the user sees has begun again: the step goes on from where it is.
                step.origin = self._origin(point, sys._getframe())
            elif ended is not Outcome.GO_ON:
                self._stop(point, "step", restarted=ended is Outcome.STOP_AFTER_RESTART)

    def _may_pause(self, point: TracePoint) -> bool:
        return point.begins_line and not stands_in_for_builtin(point.frame.path)

    def _breakpoints_hit(self, point: TracePoint, run: TraceRun, reached: tuple[LineBreakpoint, ...]) -> list[int]:
        if not point.begins_line:
            return []
        candidates = [*applying(point, reached), *self._functions_entered(point)]
        new = [breakpoint for breakpoint in candidates if self._is_new(breakpoint, point)]
        run.reaches(point.frame, new)
        if not run.may_stop(point.progress.identity):
            return []
        return self._stopping(self._unreported(new, point), point)

    def _is_new(self, breakpoint: LineBreakpoint, point: TracePoint) -> bool:
        visit = (breakpoint.id, id(point.frame.code), point.index)
        return point.progress.is_first_visit(visit) or self._host.options.pause_on_restart

    def _unreported(self, breakpoints: Sequence[LineBreakpoint], point: TracePoint) -> list[LineBreakpoint]:
        """Return those that this execution has not reported: see ``ProgressOfTraces``."""
        if self._host.options.pause_on_restart:
            return list(breakpoints)
        code, take = id(point.frame.code), (current_run().traces or self._traces).take_reported
        return [each for each in breakpoints if not take((each.id, code, point.index))]

    def _functions_entered(self, point: TracePoint) -> list[LineBreakpoint]:
        entered = self._functions_begun(point)
        if not entered or not point.progress.enters(point.frame):
            return []
        for breakpoint in entered:
            self._host.function_found(breakpoint, point.frame.code.co_filename, point.line)
        return list(entered)

    def _functions_begun(self, point: TracePoint) -> list[FunctionEntry]:
        """Return the breakpoints on the function whose first line begins."""
        functions = self._host.breakpoints.functions
        code = point.frame.code
        if not functions or point.index != point.facts.first_line_start or resume_function(code) is not None:
            return []
        module = point.frame.globals.get("__name__")
        name = qualified_name(code)
        return [breakpoint for breakpoint in functions if breakpoint.matches(name, module)]

    # -- stopping --------------------------------------------------------------------------------------------------

    def _stop_at_exception(
        self,
        frame: TracedFrame,
        raised: RaisedException,
        watching: Sequence[DataEntry] = (),
        names: dict[str, object] | None = None,
        filters: Collection[str] = (),
    ) -> None:
        """Stop for an exception filter; with ``watching``, for those of the data breakpoints whose conditions hold.

        Expressions at the stop can use ``names``. Any of ``filters`` stops for it when it is gone back to.
        """
        run = current_run()
        point = self._point(frame, self._progress_of(frame, run))
        if not run.may_stop(point.progress.identity):
            return
        attempts, hit = self._logs.attempts(frame), self._stopping(watching, point) if watching else []
        if not watching:
            self._stop(point, "exception", raised=raised, names=names)
        elif hit:
            self._stop(point, "data breakpoint", hit, raised=raised)
        if attempts is not None and (hit or not watching):
            past = attempts.present.past
            past.events.setdefault(past.end - 1, []).append(Event(filters, raised, hit))

    def _stop(
        self,
        point: TracePoint,
        reason: str,
        hit: list[int] | None = None,
        *,
        restarted: bool = False,
        raised: RaisedException | None = None,
        names: dict[str, object] | None = None,
    ) -> None:
        top = caller_frame()
        frame = point.frame
        progress = point.progress
        attempts, place = self._logs.attempts(frame), None
        if attempts is not None:
            past = attempts.present.past
            # What raised, or changed something, has begun already.
            place = past.present(frame, point.index)
            place = place._replace(is_after=place.is_after or raised is not None)
            past.stopped.setdefault(place.at, set()).update(hit or ())
        stop = Stop(
            engine=self.name,
            reason=reason,
            frames=lambda: self._frames(frame.running(top), top, None if attempts is None else attempts.present, names),
            description=headline(frame, progress.identity) if raised is None else raised.headline,
            text=explain(reason, frame, progress.identity, top, restarted=restarted) if raised is None else raised.text,
            hit_breakpoint_ids=hit or [],
            exception=raised,
            origin=self._origin(point, top),
            past=None
            if attempts is None or place is None
            else Standpoint(attempts, attempts.present, place, self._host.breakpoints.lines_in),
            changes=current_run().changes,
        )
        with self._logs.travelling():
            if not self._hold(stop, top) and attempts is not None and place is not None:
                self._travel(attempts, stop, point, place, top)

    def _hold(self, stop: Stop, top: types.FrameType, *, is_over: bool = False) -> bool:
        """Hold the thread; True if the thread was in a changed trace meanwhile, and has to go on.

        ``is_over``: the stop is in a trace that nothing goes on from any more.
        """
        while True:
            self._host.hold(stop)
            step = self._host.steps.current()
            if step is None or step.asked is None:
                return False
            if is_over:
                self._host.steps.finish()
                step.asked.refuse("this trace is over: it can be looked at, but nothing goes on from here")
            elif self._what_ifs.follow(step.asked, stop.origin, top):
                return True

    def _travel(self, attempts: Attempts, present: Stop, point: TracePoint, now: Place, top: types.FrameType) -> None:
        """Hold the thread wherever the user goes in the past, until the trace goes on from where it stands."""
        destination = here = Destination(now, present.reason)
        attempt = attempts.present
        try:
            while True:
                step = self._host.steps.current()
                if step is not None and step.kind.is_in_the_past:
                    attempt, destination = attempts.back(attempt, destination.place, step, self._stops_of)
                elif destination is here:
                    return
                elif (found := attempts.forward(attempt, destination, now, step, self._stops_of)) is not None:
                    attempt, destination = found
                elif self._is_nothing_here(attempts.present.past, present.reason, now.at, point) and (
                    step is None or (attempt is attempts.present and not ends_at(step, point))
                ):
                    return
                else:
                    attempt, destination = attempts.present, here
                if attempt is attempts.present and destination.place == now:
                    again = self._reach_again(present, destination.remark)
                    destination = here
                    attempt.past.show(None)
                    if self._hold(again, top):
                        return
                    continue
                with attempt.looking():
                    attempt.show(destination)
                    stop = self._stop_in_the_past(attempts, attempt, destination, now, top)
                    was_changed = self._hold(stop, top, is_over=attempt is not attempts.present)
                    attempt.past.show(None)
                if was_changed:
                    return
        finally:
            attempts.present.past.show(None)

    def _is_nothing_here(self, past: Past, reason: str, at: int, point: TracePoint) -> bool:
        """Whether nothing stops at the present any more, where the thread had stopped for ``reason``."""
        return reason not in ("exception", "data breakpoint") and not self._stops_of(past).hits(at, point)

    def _reach_again(self, stop: Stop, remark: str | None) -> Stop:
        """Return a stop as it is after the user was elsewhere, or wanted to be: see ``Destination.remark``.

        The breakpoints that it was for may be gone.
        """
        if remark is not None:
            text = remark if stop.description is None else f"{stop.description}: {remark}"
            return replace(stop, reason="step", description=text, text=text, hit_breakpoint_ids=[])
        left = self._host.breakpoints.known_of(stop.hit_breakpoint_ids)
        if stop.reason == "breakpoint" and stop.hit_breakpoint_ids and not left:
            return replace(stop, reason="step", text=stop.description, hit_breakpoint_ids=left)
        return replace(stop, hit_breakpoint_ids=left)

    def _reached_again(self, destination: Destination) -> Destination:
        """As ``_reach_again``, in the saved trace of a cached call."""
        left = self._host.breakpoints.known_of(destination.hit)
        is_step = destination.reason == "breakpoint" and destination.hit and not left
        return replace(destination, reason="step" if is_step else destination.reason, hit=left)

    def _stops_of(self, past: Past) -> StopsInThePast:
        return StopsInThePast(self._host, past, self._functions_begun, self._codes.address_of)

    def _walk(self, present: Attempt) -> None:
        """Go through the trace of a cached call that is kept: hold the thread wherever the call stops."""
        top, past, attempt = caller_frame(), present.past, present
        destination = furthest = Destination(Place(past.beginning - 1, is_after=True), "entry")
        past.stopped.clear()
        self._traces.settle()
        attempts = Attempts([*reversed(all_before(present)), present])
        while True:
            step = self._host.steps.current()
            if step is not None and step.kind.is_in_the_past:
                attempt, destination = attempts.back(attempt, destination.place, step, self._stops_of)
            elif attempt is not present or destination.place < furthest.place:
                before_it = attempts.forward(attempt, destination, furthest.place, step, self._stops_of)
                if before_it is not None:
                    attempt, destination = before_it
                elif self._passes_furthest(past, furthest, step, destination if attempt is present else None):
                    found = self._further(past, furthest, step, destination if attempt is present else furthest)
                    if found is None:
                        return
                    attempt, destination, furthest = present, found, found
                else:
                    furthest = self._reached_again(furthest)
                    attempt, destination = present, furthest
            else:
                found = self._further(past, destination, step, destination)
                if found is None:
                    return
                destination = furthest = found
            with attempt.looking():
                attempt.show(destination)
                if attempt is not present or destination is not furthest:
                    stop = self._stop_in_the_past(attempts, attempt, destination, furthest.place, top)
                else:
                    stop = self._stop_while_walking(attempts, destination, top)
                if self._hold(stop, top, is_over=attempt is not present):
                    return

    def _further(self, past: Past, furthest: Destination, step: Step | None, origin: Destination) -> Destination | None:
        """Return where the walk through a saved trace stops next; ``origin`` is where ``step`` began."""
        reached = current_run().reaches
        stops = StopsOfCall(self._host, past, self._functions_begun, self._codes.address_of, reached, self._unreported)
        return past.forward(furthest, Place(past.end), step, stops, origin=origin)

    def _passes_furthest(self, past: Past, furthest: Destination, step: Step | None, start: Destination | None) -> bool:
        """Whether nothing stops at ``furthest`` after the past; ``step`` began at ``start``, if that is known."""
        at = furthest.place.at
        if not self._is_nothing_here(past, furthest.reason, at, past.point(at)):
            return False
        if step is None or start is None:
            return step is None
        return not ends_at(replace(step, origin=past.origin(start)), past.point(at))

    def _stop_while_walking(self, attempts: Attempts, destination: Destination, top: types.FrameType) -> Stop:
        past = attempts.present.past
        origin, raised = past.origin(destination), None if destination.met is None else destination.met.raised
        frame, reported = origin.frame, headline(origin.frame, origin.identity)
        return Stop(
            engine=self.name,
            reason=destination.reason,
            frames=lambda: self._frames(past.chain(destination.shown), top, attempts.present),
            description=reported if raised is None else raised.headline,
            text=explain(destination.reason, frame, origin.identity, top, restarted=False)
            if raised is None
            else raised.text,
            hit_breakpoint_ids=list(destination.hit),
            exception=raised,
            origin=origin,
            past=Standpoint(attempts, attempts.present, destination.place, self._host.breakpoints.lines_in),
            changes=current_run().changes,
        )

    def _stop_in_the_past(
        self, attempts: Attempts, attempt: Attempt, destination: Destination, now: Place, top: types.FrameType
    ) -> Stop:
        past = attempt.past
        origin = past.origin(destination)
        statements = attempts.statements_between(attempt, destination.place.at, now)
        text = in_the_past(origin.frame, origin.identity, statements=statements, remark=destination.remark)
        return Stop(
            engine=self.name,
            reason=destination.reason,
            frames=lambda: self._frames(past.chain(destination.shown), top, attempt),
            description=text,
            text=text,
            hit_breakpoint_ids=list(destination.hit),
            exception=None if destination.met is None else destination.met.raised,
            origin=origin,
            past=Standpoint(attempts, attempt, destination.place, self._host.breakpoints.lines_in),
            changes=current_run().changes,
        )

    def _frames(
        self,
        chain: Sequence[TracedFrame],
        top: types.FrameType,
        attempt: Attempt | None,
        names: dict[str, object] | None = None,
    ) -> list[Frame]:
        earlier = None if attempt is None else lambda frame: locals_before_break(frame, attempt)
        return frames_of(chain, top, self._codes.address_of, self._host, names or {}, earlier)

    def _origin(self, point: TracePoint, top: types.FrameType) -> Origin:
        progress = point.progress
        return Origin(
            point.frame,
            point.index,
            point.line,
            tuple(point.frame.running(top)[1:]),
            progress.identity,
            progress.position if progress.began_at_start else -1,
        )

    def present_frame(self, frame: types.FrameType) -> Frame | None:
        """Traced functions have no running frame."""
        return None

    def listing_of(self, code: types.CodeType) -> None:
        """Return nothing: generated code is not this engine's."""

    def disassemble(self, arguments: DisassembleArguments) -> DisassembleResponseBody | None:
        """List traced instructions; None if the address is not of traced code. Any thread."""
        return self._codes.disassemble(arguments)

    def stop_for_breakpoint_call(self, frame: types.FrameType) -> bool:
        """Stop for ``comptime.breakpoint()``; False when ``frame``, which called ``breakpoint()``, is no such call."""
        traced = frame_at_comptime_breakpoint(frame)
        if traced is None:
            return False
        progress = self._progress_of(traced, current_run())
        if self._host.options.compile_time:
            self._stop(self._point(traced, progress), "breakpoint")
        return True


class _EndsOfTraces(CompileObserver):
    """Lets go of what is known of a trace when it is over."""

    feature = "the history of traces"

    def __init__(self, logs: TraceLogs) -> None:
        self._logs = logs

    def compile_ended(self, compiling: FrameCompile, result: CompileResult, problem: BaseException | None) -> None:
        """Pass the generated code on to the logs, which keep the trace."""
        self._logs.compile_ended(result.code)


def _limits(asked: RealValues | str) -> Limits | None:
    return Limits(asked.time_limit, int(asked.memory_limit * 2**20)) if isinstance(asked, RealValues) else None
