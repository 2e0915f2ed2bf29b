"""Stops Dynamo's interpreter at the user's lines and instructions: the compile-time engine.

``update_hooks`` runs on any thread and decides which hooks are installed; everything else runs on the tracing thread,
inside a hook, under Dynamo's compile lock. One per process, made when the program imports Dynamo. Without breakpoints,
steps or pause requests, no hook is installed.
"""

from __future__ import annotations

import sys
import types
import weakref
from collections.abc import Collection, Sequence

from dynamo_dap.debuggee.agent.breakpoints import GUARDED, DataEntry, LineBreakpoint
from dynamo_dap.debuggee.agent.engine import FunctionKey, Host
from dynamo_dap.debuggee.agent.frames import Frame
from dynamo_dap.debuggee.agent.stepping import RaisedException
from dynamo_dap.debuggee.agent.user_code import is_user_file, normalized_path, replaces_builtin
from dynamo_dap.debuggee.composition.cached_calls import CachedCallStops
from dynamo_dap.debuggee.history.remedies import Remedies
from dynamo_dap.debuggee.history.reverse_stops import applying, functions_begun
from dynamo_dap.debuggee.history.state_logs import StateLogs
from dynamo_dap.debuggee.history.time_travel import Event
from dynamo_dap.debuggee.history.trace_stops import TraceStops
from dynamo_dap.debuggee.history.what_if import WhatIfs
from dynamo_dap.debuggee.inductor.lowering_stops import LoweringStops
from dynamo_dap.debuggee.numerics.stops.backward_passes import BackwardPasses
from dynamo_dap.debuggee.numerics.stops.value_stops import ValueStops
from dynamo_dap.debuggee.torch_api.graphs.graph_runs import Limits
from dynamo_dap.debuggee.torch_api.graphs.real_values import limit_real_values
from dynamo_dap.debuggee.torch_api.traced.traced_frame import TracedFrame, frame_at_comptime_breakpoint
from dynamo_dap.debuggee.torch_api.traced.tracing_hooks import LINES, TranslatorHooks
from dynamo_dap.debuggee.trace.code_facts import CodeFactsCache
from dynamo_dap.debuggee.trace.compile_stops import CompileStops
from dynamo_dap.debuggee.trace.data_watch import DataWatch
from dynamo_dap.debuggee.trace.disassembly import TracedCodes
from dynamo_dap.debuggee.trace.frames import TracedFunction
from dynamo_dap.debuggee.trace.runs import Decision, LineTraces, TracePoint, TraceProgress, TraceRun, current_run
from dynamo_dap.debuggee.trace.stepping import Outcome, origin_of, outcome, passes_within_line
from dynamo_dap.debuggee.trace.stop_texts import data_changed
from dynamo_dap.protocol.requests.contract import COMPILE_TIME
from dynamo_dap.protocol.requests.options import RealValues
from dynamo_dap.protocol.wire.types import DisassembleArguments, DisassembleResponseBody


class CompileTimeEngine:
    """Stops traces. Implements ``agent.engine.Engine``."""

    name = COMPILE_TIME

    def __init__(self, host: Host) -> None:
        """Work for ``host``, the agent."""
        self._host = host
        self._hooks = TranslatorHooks(self._on_line_instruction, self._on_instruction)
        self._facts = CodeFactsCache()
        self._logs = StateLogs(self._facts, lambda: host.options.just_my_code)
        self._codes = TracedCodes()
        self._attempt: weakref.ref[object] | None = None
        self._progress: TraceProgress | None = None
        self._watches_every_line = False
        self._traced: set[FunctionKey] = set()
        self._noted_as_traced: types.CodeType | None = None
        """The function that was last added to ``_traced``."""
        self._line_traces = LineTraces(self.update_hooks)
        what_ifs = WhatIfs(host, self._line_traces, self._logs)
        remedies = Remedies(host, self._line_traces, self._logs)
        self._stops = TraceStops(host, self._logs, what_ifs, remedies, self._codes.address_of)
        self._compile_stops = CompileStops(host, self.name, self._stop_at_exception)
        self._lowering_stops = LoweringStops(host)
        self._data_watch = DataWatch()
        self.backward_passes = BackwardPasses(host, self._codes.address_of, self._line_traces)
        self._value_stops = ValueStops(host, self._stop_at_exception, self.backward_passes)
        shown = self._value_stops.shown
        self.cached_calls = CachedCallStops(host, self._logs, self._stops, shown.check_after_return)
        if LINES.problem is not None:
            host.print(f"dynamo-dap: {LINES.problem}\n", "important")

    # -- hooks -----------------------------------------------------------------------------------------------------

    def update_hooks(self) -> None:
        """Install the hooks that breakpoints, steps and pause requests need; remove others. Runs on any thread."""
        host = self._host
        wanted = host.options.compile_time
        limit_real_values(_limits(host.options.real_values))
        self._watches_every_line = (
            host.steps.any_step or host.steps.any_pause_request or bool(host.breakpoints.functions)
        )
        lines = wanted and (self._watches_every_line or host.breakpoints.any_line(COMPILE_TIME))
        lines = lines or self._line_traces.are_lines_wanted or self.backward_passes.are_wanted()
        lines = lines or self._compile_stops.are_lines_wanted
        watched = any(entry.access != GUARDED and not entry.variable.is_path for entry in host.breakpoints.data)
        # Instructions without a line, where a step by instruction may end, are reported with lines.
        each_instruction = watched or self._line_traces.are_instructions_wanted
        self._hooks.want(lines=lines, instructions=wanted and each_instruction)
        self._logs.want(lines)
        self._compile_stops.update_hooks()
        self._lowering_stops.update_hooks()
        self._value_stops.update_hooks()

    def close(self) -> None:
        """Remove the hooks. Runs on any thread."""
        self._watches_every_line = False
        self._hooks.want(lines=False, instructions=False)
        self._logs.want(False)
        self._compile_stops.close()
        self._lowering_stops.close()
        self._value_stops.close()

    def take_reported(self, frame: types.FrameType, *, enters: bool) -> bool:
        """Return whether a trace has reported the breakpoint that ``frame`` reaches: see ``ReportingEngine``."""
        host = self._host
        if host.options.pause_on_restart:
            return False
        if enters:
            reached: Sequence[LineBreakpoint] = host.breakpoints.functions
        else:
            reached = (host.breakpoints.lines_in(frame.f_code.co_filename) or {}).get(frame.f_lineno, ())
        return bool(reached) and self._stops.visits.take_reported_by(frame, {each.id for each in reached})

    def functions_traced(self) -> Collection[FunctionKey] | None:
        """Return the traced functions in files with breakpoints; None if lines of traces are not reported."""
        # A copy: threads that outlive the main program still trace.
        return self._traced.copy() if self._host.options.compile_time and LINES.problem is None else None

    # -- hooks: the tracing thread ---------------------------------------------------------------------------------

    def _on_line_instruction(self, frame: TracedFrame) -> None:
        run = current_run()
        if not run.is_followed:
            return
        progress = self._progress_of(frame, run)
        progress.position += 1
        if run.is_logged and not self._host.is_holding:
            self._logs.note(frame, progress, as_a_whole=run.is_changed)
        decision = run.on_line(frame, progress, lambda: self._point(frame, progress))
        if decision is not Decision.CONTINUE:
            lines = self._host.breakpoints.lines_in(frame.path)
            here = () if lines is None else lines.get(frame.line, ())
            if lines is not None and self._noted_as_traced is not frame.code:
                code = self._noted_as_traced = frame.code
                self._traced.add((normalized_path(code.co_filename), code.co_firstlineno, code.co_name))
            if decision is Decision.HOLD:
                point = self._point(frame, progress)
                for breakpoint in here:
                    self._is_new(breakpoint, point)  # a restarted analysis does not stop here for it
                self._stops.stop(point, run.held(frame))
            elif here or self._watches_every_line:
                self._visit(frame, progress, run, here)
        if run.is_over():
            frame.end_trace()

    def _on_instruction(self, frame: TracedFrame) -> None:
        """Handle instructions without a line; steps by instruction stop at them."""
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
        """Stop for a change by the previous instruction."""
        changes = self._data_watch.changes(watched, frame)
        # A function begins without a previous instruction.
        if not changes or not frame.next_index:
            return
        point = self._point(frame, self._progress_of(frame, run))
        if not run.may_stop(point.progress.identity):
            return
        new = [change for change in changes if self._is_new(change.entry, point)]
        hit = self._stopping(self._stops.unreported([change.entry for change in new], point), point)
        if hit:
            text = "; ".join(change.text for change in new if change.entry.id in hit)
            self._stops.stop(point, "data breakpoint", hit, raised=data_changed(text))

    def _stopping(self, entries: Sequence[LineBreakpoint], point: TracePoint) -> list[int]:
        """Return the ids of breakpoints whose conditions hold."""
        if not entries:
            return []
        address = self._codes.address_of(point.frame, point.index)
        return self._host.should_stop(list(entries), lambda: TracedFunction(point.frame, address, {}, self._host))

    def _progress_of(self, frame: TracedFrame, run: TraceRun) -> TraceProgress:
        # Do not keep the attempt alive: it refers to the call's inputs.
        if self._progress is None or self._attempt is None or self._attempt() is not frame.attempt:
            self._attempt = weakref.ref(frame.attempt)
            self._progress = self._stops.visits.of(frame, stops=run.stops)
        return self._progress

    def _point(self, frame: TracedFrame, progress: TraceProgress, came_from: int | None = None) -> TracePoint:
        """Return a frame's point; ``came_from`` is the result of ``TraceProgress.note_visit``."""
        filename = frame.path
        is_wanted = not self._host.options.just_my_code or is_user_file(filename)
        index = frame.index
        facts = self._facts.of(frame)
        if came_from is None:
            came_from = progress.note_visit(frame, index)
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
            is_user_code=is_wanted and not replaces_builtin(filename),
        )

    def _visit(
        self, frame: TracedFrame, progress: TraceProgress, run: TraceRun, reached: tuple[LineBreakpoint, ...]
    ) -> None:
        if self._host.is_holding:
            return
        index, facts = frame.index, self._facts.of(frame)
        came_from = progress.note_visit(frame, index)
        step = self._host.steps.current()
        if index not in facts.line_starts and (step is None or passes_within_line(step, frame)):
            return
        point = self._point(frame, progress, came_from)
        hit = self._breakpoints_hit(point, run, reached)
        if hit:
            self._stops.stop(point, "breakpoint", hit)
        elif not run.may_stop(progress.identity):
            return
        elif self._host.steps.any_pause_request and self._may_pause(point) and self._host.steps.take_pause_request():
            self._stops.stop(point, "pause")
        elif (step := self._host.steps.current()) is not None:
            ended = outcome(step, point)
            if ended is Outcome.STOP_AFTER_RESTART and run.call is not None:
                # The user has seen nothing of the new attempt: the step continues from here.
                step.origin = origin_of(point, sys._getframe())
            elif ended is not Outcome.CONTINUE:
                self._stops.stop(point, "step", restarted=ended is Outcome.STOP_AFTER_RESTART)

    def _may_pause(self, point: TracePoint) -> bool:
        return point.begins_line and not replaces_builtin(point.frame.path)

    def _breakpoints_hit(self, point: TracePoint, run: TraceRun, reached: tuple[LineBreakpoint, ...]) -> list[int]:
        if not point.begins_line:
            return []
        candidates = [*applying(point, reached), *self._functions_entered(point)]
        new = [breakpoint for breakpoint in candidates if self._is_new(breakpoint, point)]
        run.reaches(point.frame, new)
        may_stop = run.may_stop(point.progress.identity)
        for breakpoint in new:
            breakpoint.seen = True
            breakpoint.unjudged |= not may_stop or not self.cached_calls.would_judge(breakpoint)
        if not may_stop:
            return []
        return self._stopping(self._stops.unreported(new, point), point)

    def _is_new(self, breakpoint: LineBreakpoint, point: TracePoint) -> bool:
        visit = (breakpoint.id, id(point.frame.code), point.index)
        return point.progress.is_first_visit(visit) or self._host.options.pause_on_restart

    def _functions_entered(self, point: TracePoint) -> list[LineBreakpoint]:
        entered = functions_begun(self._host, point)
        if not entered or not point.progress.enters(point.frame):
            return []
        for breakpoint in entered:
            self._host.function_found(breakpoint, point.frame.code.co_filename, point.line)
        return list(entered)

    # -- stopping --------------------------------------------------------------------------------------------------

    def _stop_at_exception(
        self,
        frame: TracedFrame,
        raised: RaisedException,
        watching: Sequence[DataEntry] = (),
        names: dict[str, object] | None = None,
        filters: Collection[str] = (),
    ) -> None:
        """Stop for an exception filter; with ``watching``, for data breakpoints whose conditions hold.

        Expressions at the stop can use ``names``. Any of ``filters`` stops again when the user goes back there.
        """
        run = current_run()
        point = self._point(frame, self._progress_of(frame, run))
        if not run.may_stop(point.progress.identity):
            return
        attempts, hit = self._logs.attempts(frame), self._stopping(watching, point) if watching else []
        if not watching:
            self._stops.stop(point, "exception", raised=raised, names=names)
        elif hit:
            self._stops.stop(point, "data breakpoint", hit, raised=raised)
        if attempts is not None and (hit or not watching):
            history = attempts.present.history
            history.events.setdefault(history.end - 1, []).append(Event(filters, raised, hit))

    def present_frame(self, frame: types.FrameType) -> Frame | None:
        """Return None: traced functions have no running frame."""
        return None

    def listing_of(self, code: types.CodeType) -> None:
        """Return None: generated code belongs to the run-time engine."""

    def disassemble(self, arguments: DisassembleArguments) -> DisassembleResponseBody | None:
        """List traced instructions; None if the address is not of traced code. Runs on any thread."""
        return self._codes.disassemble(arguments)

    def stop_for_breakpoint_call(self, frame: types.FrameType) -> bool:
        """Stop for ``comptime.breakpoint()``; return False if ``frame`` called another ``breakpoint()``."""
        traced = frame_at_comptime_breakpoint(frame)
        if traced is None:
            return False
        progress = self._progress_of(traced, current_run())
        if self._host.options.compile_time:
            self._stops.stop(self._point(traced, progress), "breakpoint")
        return True


def _limits(asked: RealValues | str) -> Limits | None:
    return Limits(asked.time_limit, int(asked.memory_limit * 2**20)) if isinstance(asked, RealValues) else None
