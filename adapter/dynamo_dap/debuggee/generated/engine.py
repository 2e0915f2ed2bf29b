"""Stops generated code at instructions, with its value stack: the run-time engine.

``update_hooks`` runs on any thread and decides which hooks are installed; everything else runs on the program's
threads, inside hooks. One per process, made when the program imports Dynamo. Without breakpoints and steps only two
hooks are installed, which cost nothing. One runs at the end of each compile, to save facts that Dynamo then forgets;
the other runs at torch's breakpoint marker in generated code.
"""

from __future__ import annotations

import linecache
import sys
import types
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from dynamo_dap.debuggee.agent.breakpoints import LineBreakpoint
from dynamo_dap.debuggee.agent.engine import Host, RequestError
from dynamo_dap.debuggee.agent.frames import Frame
from dynamo_dap.debuggee.agent.log import log_exception
from dynamo_dap.debuggee.agent.stepping import RaisedException, Stop
from dynamo_dap.debuggee.generated.breakpoints import InstructionBreakpoints, Plans, RunTimeLines
from dynamo_dap.debuggee.generated.cached_calls import CallEntries, GradientEntries
from dynamo_dap.debuggee.generated.call_interfaces import BackwardCalls, CachedCalls
from dynamo_dap.debuggee.generated.continuations import Continuation
from dynamo_dap.debuggee.generated.crash_recorder import CrashRecorder
from dynamo_dap.debuggee.generated.disassembly import disassemble
from dynamo_dap.debuggee.generated.evaluation import ConditionFilter
from dynamo_dap.debuggee.generated.events import Sink, Source
from dynamo_dap.debuggee.generated.frames import GeneratedFrame, Phase, RunningFrame, UserFrame, listing_source
from dynamo_dap.debuggee.generated.known_code import BadAddress, CodeGone, GeneratedCode, GeneratedCodes
from dynamo_dap.debuggee.generated.purpose import Kind
from dynamo_dap.debuggee.generated.raising import RaisedExceptions, raised_exception
from dynamo_dap.debuggee.generated.stepping import Origin, begins_rest, ends_at, is_on_stack
from dynamo_dap.debuggee.torch_api.code_objects.generated_code import (
    MARKERS,
    NOTIFICATION,
    MarkerHook,
    Notifier,
)
from dynamo_dap.debuggee.torch_api.compiles.compile_records import CompileRecorder, Statement
from dynamo_dap.debuggee.values.model import VirtualSource, text_of_raised
from dynamo_dap.protocol.requests.contract import (
    GENERATED_CODE,
    LISTING_FORMS,
    RUN_TIME,
    ErrorId,
)
from dynamo_dap.protocol.wire.types import (
    Breakpoint,
    DisassembleArguments,
    DisassembleResponseBody,
    InstructionBreakpoint,
    SourceBreakpoint,
)


@dataclass(frozen=True, slots=True)
class _Wants:
    """The reasons to install hooks, which breakpoints, steps and options of the session give."""

    everything: bool = False
    """Whether events of all generated code are needed; if not, only breakpoints and markers count."""
    entries: bool = False
    raises: bool = False
    breakpoints: bool = False
    cached_calls: bool = False
    """Whether cached calls may have to stop before their code runs."""
    gradients: bool = False
    """Whether the backward passes of calls may have to stop."""
    compiled: bool = False
    """Whether newly compiled calls may have to be noted."""
    counts: bool = False
    """Whether calls are counted."""

    @property
    def calls(self) -> bool:
        return self.cached_calls or self.gradients or self.compiled

    @property
    def notification(self) -> bool:
        return self.everything or self.breakpoints or self.calls or self.counts


class RunTimeEngine:
    """Stops generated code. Implements ``agent.engine.Engine``."""

    name = RUN_TIME

    def __init__(
        self,
        host: Host,
        crash_folder: str | None = None,
        cached_calls: CachedCalls | None = None,
        backward: BackwardCalls | None = None,
    ) -> None:
        """Work for ``host``, the agent; ``crash_folder`` is the folder of the crash cell, None without a reader.

        ``cached_calls`` decides before a cached call's code runs whether the call stops. ``backward`` gets the calls in
        whose backward pass it may stop.
        """
        self._host = host
        self._recorder = CompileRecorder(log_exception)
        self._calls = CallEntries(host, cached_calls, self._recorder)
        self._gradients = GradientEntries(host, backward)
        self._form: str | None = None
        self.counts_calls = False
        """Whether calls of generated code are counted, see ``count_calls``."""
        self.codes = GeneratedCodes(self._recorder, lambda: self._form or host.options.listing)
        self._events = _new_source(self, self.codes)
        self._notifier = Notifier(self._about_to_run, log_exception)
        self._marker_hook = MarkerHook(self._notifier)
        self._instruction_breakpoints = InstructionBreakpoints(self.codes, host.breakpoints)
        self._lines = RunTimeLines(host.breakpoints, self.codes)
        self._plans = Plans(host.breakpoints, self._instruction_breakpoints)
        self._wants = _Wants()
        self._raised = RaisedExceptions()
        self._conditions = ConditionFilter(host)
        self._crash = CrashRecorder(crash_folder)
        self._repeated: dict[int, set[int]] = {}
        """By ``id`` of the frame: its continuation's instructions that begin traced lines."""
        for problem in (NOTIFICATION.problem, MARKERS.problem):
            if problem is not None:
                host.print(f"dynamo-dap: {problem}\n", "important")

    # -- hooks -----------------------------------------------------------------------------------------------------

    def update_hooks(self) -> None:
        """Install the hooks that breakpoints, steps and pause requests need; remove others. Runs on any thread."""
        if NOTIFICATION.problem is not None:
            return
        if MARKERS.problem is None:
            self._marker_hook.install()
        self._wants = wants = self._wanted_events()
        if self._host.options.run_time or wants.calls:
            self._recorder.install()
        if wants.notification:
            if not self._notifier.is_installed:
                self._calls.forget()
            self._notifier.install()
        else:
            self._notifier.remove()
        self._events.want_raises(wants.raises)
        if not wants.everything:
            self._crash.pause()
        self._watch_again(wants)
        if wants.breakpoints:
            self._lines.update()  # the client is setting them, and gets their state in the answer
        if self._host.steps.current() is not None:
            self._watch_own_stack()

    def _wanted_events(self) -> _Wants:
        host = self._host
        cached_calls, gradients = self._calls.update_hooks(), self._gradients.update_hooks()
        now = _Wants(
            cached_calls=cached_calls,
            gradients=gradients,
            compiled=self._calls.may_replay_compiled(),
            counts=self.counts_calls,
        )
        if not host.options.run_time:
            return now
        raises = GENERATED_CODE in host.breakpoints.exception_filters
        entries = host.options.stop_on_generated_code
        stepping = host.steps.any_step or host.steps.any_pause_request
        everything = raises or entries or stepping or host.options.trace_instructions
        breakpoints = bool(self._instruction_breakpoints) or host.breakpoints.any_line(RUN_TIME)
        return replace(now, everything=everything, entries=entries, raises=raises, breakpoints=breakpoints)

    def count_calls(self) -> None:
        """Count the calls of generated code from now on, to the end of the session. Runs on any thread."""
        if not self.counts_calls:
            self.counts_calls = True
            self.update_hooks()

    def _watch_again(self, wants: _Wants) -> None:
        """Apply a change of breakpoints to code that is watched or running."""
        kept: set[int] = set()
        for generated in self.codes:
            code = generated.code_if_alive
            if code is not None and self._is_wanted(generated, wants):
                kept.add(id(code))
                self._events.watch(generated, code)
        self._events.keep_only(kept)

    def _is_wanted(self, generated: GeneratedCode, wants: _Wants) -> bool:
        """Bring the stops of ``generated`` up to date, and return whether its events are needed."""
        may_stop = self._calls.may_stop(generated) | self._gradients.may_stop(generated)
        if wants.breakpoints:
            any_mode = not wants.cached_calls or generated.cannot_be_stopped
            generated.stops = self._plans.of(generated, any_mode=any_mode).stops
        elif generated.stops or generated.has_marker:
            generated.stops = self._plans.without_breakpoints(generated).stops
        return wants.everything or may_stop or bool(generated.stops)

    def _watch_own_stack(self) -> None:
        """Watch generated frames on this thread's stack to which a new step may return."""
        frame: types.FrameType | None = sys._getframe()
        while frame is not None:
            generated = self.codes.recognise(frame.f_code)
            if generated is not None:
                self._events.watch_running(generated, frame)
            frame = frame.f_back

    def close(self) -> None:
        """Remove the hooks, and call ``GeneratedCodes.when_closed``. Runs on any thread."""
        for function in self.codes.when_closed:
            function()
        self._wants = _Wants()
        self._calls.close()
        self._gradients.close()
        if NOTIFICATION.problem is not None:
            return
        self._notifier.remove()
        self._marker_hook.remove()
        self._recorder.remove()
        self._events.close()
        self._instruction_breakpoints.clear()
        self._form = None
        self.counts_calls = False
        self._plans.forget()
        self._crash.pause()

    # -- the beginning of generated code ---------------------------------------------------------------------------

    def _about_to_run(self, code: types.CodeType) -> None:
        if self._host.is_holding:
            return
        wants = self._wants
        now = (wants, self._host.breakpoints.version, self._instruction_breakpoints.version, self.codes.count)
        known = self.codes.get(code)
        if known is not None and known.passes_for == now and self._calls.passes(known):
            known.hits += self.counts_calls
            self._events.passes(known, code)
            return
        self._drop_unwound_step()
        generated = self.codes.add(code)
        generated.hits += self.counts_calls
        needs_replay = self._calls.about_to_run(generated)
        if wants.breakpoints:
            for changed in self._lines.update():
                self._host.breakpoint_changed(changed)
        # A step may end in any code that runs next, so it needs all code. The decision on a newly compiled call does
        # not hold for later calls.
        is_wanted = self._is_wanted(generated, wants)
        if self._calls.number != 0:
            only_counts = self._calls.only_counts(generated) and self.needs_no_events(generated)
            generated.only_counts = is_wanted and only_counts
            generated.passes_for = now if only_counts or not is_wanted else None
        if is_wanted or needs_replay:
            self._events.about_to_run(generated, code)
            if self._events.problem is not None:
                self._host.print(f"dynamo-dap: {self._events.problem}\n", "important")

    def _drop_unwound_step(self) -> None:
        """Drop the step's frame if an exception has ended the frame, since that emits no event."""
        step = self._host.steps.current()
        if step is None or not isinstance(step.origin, Origin) or step.origin.frame is None:
            return
        if not is_on_stack(step.origin.frame, sys._getframe()):
            step.origin.frame = None

    # -- events: the thread that runs the code ---------------------------------------------------------------------

    def on_instruction(self, generated: GeneratedCode, frame: types.FrameType, offset: int) -> None:
        """Stop at an instruction for a breakpoint, a step or a pause."""
        wants = self._wants
        if offset == generated.entry_offset and (wants.calls or wants.everything) and not self._host.is_holding:
            self._calls.begins(generated, frame)
            self._gradients.begins(generated, frame, self._calls.number)
        elif wants.gradients:
            self._gradients.on_reached(generated, frame, offset)
        stops: Sequence[LineBreakpoint] | None = generated.stops.get(offset)
        if not wants.everything:
            # This runs at each instruction of code with a breakpoint: keep it fast.
            if stops is None:
                return
            if stops and not (stops := self._conditions.possibly_true(stops, generated, frame, offset)):
                return
        index = generated.table.index_of_start.get(offset)
        if index is None or index < generated.entry:
            return
        if wants.everything:
            self._record_instruction(generated, frame, index, wants)
            step = self._host.steps.current()
            if step is not None and begins_rest(step, generated, frame, index):
                self._host.eager_debugger.step_into_next_call()
        if generated.continuation is not None and self._is_repeated(generated.continuation, frame, index):
            stops = [breakpoint for breakpoint in stops or () if breakpoint.mode is not None or not breakpoint.path]
            if not stops and not self._is_stepping_here():
                return
        if not self._host.is_holding and not self._conditions.are_evaluated:
            self._decide(RunningFrame(generated, frame, index), stops)

    def needs_no_events(self, generated: GeneratedCode) -> bool:
        """Return whether nothing can stop in the rest of the code."""
        wants = self._wants
        if wants.everything or generated.stops or (wants.gradients and self._gradients.may_stop(generated)):
            return False
        return not self._calls.are_followed(generated)

    def _is_repeated(self, continuation: Continuation, frame: types.FrameType, index: int) -> bool:
        """Return whether this call's trace has reached the line already, where its breakpoints could stop."""
        if index == continuation.jump:
            if self._calls.was_traced_to_break:
                self._repeated[id(frame)] = set(continuation.repeated)
            return False
        repeated = self._repeated.get(id(frame))
        if repeated is None or index not in repeated:
            return False
        repeated.discard(index)
        if not repeated:
            del self._repeated[id(frame)]
        return True

    def _is_stepping_here(self) -> bool:
        step = self._host.steps.current()
        return step is not None and isinstance(step.origin, Origin)

    def _record_instruction(self, generated: GeneratedCode, frame: types.FrameType, index: int, wants: _Wants) -> None:
        if self._crash.is_on:
            self._crash.record(generated, index)
        if wants.raises:
            self._raised.before_instruction(generated, frame, index)

    def _decide(self, running: RunningFrame, stops: Sequence[LineBreakpoint] | None) -> None:
        host = self._host
        hit = host.should_stop(list(stops), lambda: GeneratedFrame(running, host.print)) if stops else []
        if hit:
            running.statement = self._statement_of(hit, running)
            self._stop(running, "breakpoint", hit=hit, why=_why(running))
        elif stops is not None and running.index in running.generated.markers:
            self._stop(running, "breakpoint", why="torch._dynamo.bytecode_debugger.breakpoint()")
        elif host.steps.any_pause_request and host.steps.take_pause_request():
            self._stop(running, "pause")
        elif (step := host.steps.current()) is not None and ends_at(
            step, running.generated, running.frame, running.index
        ):
            self._stop(running, "step")
        elif self._wants.entries and running.index == running.generated.entry:
            self._stop(running, "entry", why=f"entry of {running.generated.name}")

    def _statement_of(self, hit: Sequence[int], running: RunningFrame) -> Statement | None:
        """Return the user's statement that has one of the breakpoints ``hit``."""
        for statement in running.generated.listing.group_of(running.index).purpose.statements:
            on_line = (self._host.breakpoints.lines_in(statement.path) or {}).get(statement.line, ())
            if any(breakpoint.id in hit for breakpoint in on_line):
                return statement
        for breakpoint in self._host.breakpoints.lines_of_mode(RUN_TIME):
            if breakpoint.id in hit:
                text = linecache.getline(breakpoint.path, breakpoint.line).strip()
                return Statement(breakpoint.path, breakpoint.line, running.generated.function, text)
        return None

    def on_return(self, generated: GeneratedCode, frame: types.FrameType, value: object) -> None:
        """Note that ``frame`` returns ``value``, which a step shows."""
        self._ended(frame, (generated.name, value))

    def on_unwind(self, generated: GeneratedCode, frame: types.FrameType) -> None:
        """Note that ``frame`` ends by an exception."""
        self._ended(frame, None)

    def _ended(self, frame: types.FrameType, returned: tuple[str, Any] | None) -> None:
        step = self._host.steps.current()
        if step is not None and isinstance(step.origin, Origin) and step.origin.frame is frame:
            step.origin.frame = None
            step.origin.returned = returned
        if self._wants.raises:
            self._raised.frame_ended(frame)
        self._calls.ended(frame)
        self._gradients.ended(frame)
        self._crash.frame_ended(frame, self.codes)

    def on_raise(self, generated: GeneratedCode, frame: types.FrameType, offset: int, exception: BaseException) -> None:
        """Stop at an exception for the exception filters."""
        if not self._wants.raises or self._host.is_holding:
            return
        index = generated.table.index_at(offset)
        if index is None or not self._raised.is_new(generated, index, exception):
            return
        operands = self._raised.operands_of(frame, index)
        running = RunningFrame(generated, frame, index, Phase.RAISED, operands)
        condition = self._host.breakpoints.exception_filters.get(GENERATED_CODE)
        if condition and not self._holds(condition, running):
            return
        self._stop(running, "exception", exception=raised_exception(exception))

    def _holds(self, condition: str, running: RunningFrame) -> bool:
        try:
            return GeneratedFrame(running, self._host.print).is_true(condition)
        except BaseException as error:  # noqa: BLE001  (the user's expression may raise anything)
            text = f"The condition {condition!r} of '{GENERATED_CODE}' failed: {text_of_raised(error)}"
            self._host.print(f"{text}\n", "important")
            return True

    # -- stopping --------------------------------------------------------------------------------------------------

    def _stop(
        self,
        running: RunningFrame,
        reason: str,
        *,
        hit: list[int] | None = None,
        why: str | None = None,
        exception: RaisedException | None = None,
        is_written_by_user: bool = False,
    ) -> None:
        step = self._host.steps.current()
        is_continued = running.generated.continued_line(running.index) is not None
        if step is not None and isinstance(step.origin, Origin):
            # If the step's frame returned, the frame that the step reaches shows its result.
            running.returned = step.origin.returned
        self._host.hold(
            Stop(
                engine=self.name,
                reason=reason,
                frames=lambda: self._stack(running, user_first=is_written_by_user or is_continued),
                description=_headline(running, exception),
                text=f"Paused on {why or _where(running, reason)}" if exception is None else exception.description,
                hit_breakpoint_ids=hit or [],
                exception=exception,
                origin=Origin(running.generated, running.frame, running.index),
            )
        )

    def _stack(self, running: RunningFrame, *, user_first: bool) -> list[Frame]:
        host = self._host
        top: list[Frame] = [GeneratedFrame(running, host.print), UserFrame(running, host.print)]
        if user_first:
            top.reverse()
        return top + list(host.python_stack(running.frame.f_back))

    def present_frame(self, frame: types.FrameType) -> Frame | None:
        """Show a running frame of generated code, further down a stack; return None for any other frame."""
        generated = self.codes.recognise(frame.f_code)
        index = generated.table.index_at(frame.f_lasti) if generated is not None else None
        if generated is None or index is None:
            return None
        return GeneratedFrame(RunningFrame(generated, frame, index, Phase.INSIDE), self._host.print)

    def stop_for_breakpoint_call(self, frame: types.FrameType) -> bool:
        """Stop at the user's line for ``breakpoint()`` in generated code, which debugpy skips; False for other code."""
        generated = self.codes.recognise(frame.f_code)
        index = generated.table.index_at(frame.f_lasti) if generated is not None else None
        if generated is None or index is None:
            return False
        running = RunningFrame(generated, frame, index, Phase.INSIDE)
        self._stop(running, "breakpoint", why="breakpoint()", is_written_by_user=True)
        return True

    # -- requests: the agent's reader thread -----------------------------------------------------------------------

    def disassemble(self, arguments: DisassembleArguments) -> DisassembleResponseBody:
        """Serve the DAP request.

        Raises:
            RequestError: the memory reference is not an address of generated code, or its code no longer exists.
        """
        try:
            return disassemble(self.codes, arguments)
        except (BadAddress, CodeGone) as problem:
            raise RequestError(str(problem), error_id=ErrorId.NO_ADDRESS) from None

    def set_instruction_breakpoints(self, requested: Sequence[InstructionBreakpoint]) -> list[Breakpoint]:
        """Replace the breakpoints on addresses; one answer for each. The caller then updates the engines' hooks."""
        return self._instruction_breakpoints.set_addresses(requested)

    def set_listing_breakpoints(
        self, virtual: VirtualSource, requested: Sequence[SourceBreakpoint]
    ) -> list[Breakpoint] | None:
        """Replace the breakpoints on lines of a listing; None if ``virtual`` is not a listing of generated code.

        The caller updates the engines' hooks afterwards.
        """
        shown = self._shown_by(virtual)
        return None if shown is None else self._instruction_breakpoints.set_listing(*shown, requested)

    def show_listings_as(self, form: str) -> None:
        """Make frames show their listings in this form from now on, one of ``LISTING_FORMS``."""
        self._form = form

    def _shown_by(self, virtual: VirtualSource) -> tuple[GeneratedCode, str] | None:
        """Return the code and the form of a listing's document."""
        for generated in self.codes:
            for form in LISTING_FORMS:
                if listing_source(generated, form).key == virtual.key:
                    return generated, form
        return None

    def listing_of(self, code: types.CodeType) -> VirtualSource | None:
        """Return the listing of ``code``; see ``agent.engine.Engine``."""
        generated = self.codes.recognise(code)
        return None if generated is None else listing_source(generated)


def _headline(running: RunningFrame, exception: RaisedException | None) -> str:
    """Return the headline of a call stack."""
    if exception is None:
        return f"Running {running.generated.name}"
    return f"{exception.exception_id.rpartition('.')[2]} in generated code"


def _why(running: RunningFrame) -> str | None:
    """Explain a breakpoint that stops elsewhere than on its line."""
    purpose = running.generated.listing.group_of(running.index).purpose
    if running.statement is None or purpose.kind is not Kind.GRAPH:
        return None
    return f"breakpoint: {purpose.title}, which computes line {running.statement.line}"


def _where(running: RunningFrame, reason: str) -> str:
    name = running.generated.table[running.index].name
    return f"{reason} in {running.generated.name} at {running.index} {name}"


def _new_source(sink: Sink, codes: GeneratedCodes) -> Source:
    """Return this Python's source of events."""
    if sys.version_info >= (3, 12):
        from dynamo_dap.debuggee.generated.monitoring_events import MonitoringEvents

        return MonitoringEvents(sink, codes)
    from dynamo_dap.debuggee.generated.trace_events import TraceEvents

    return TraceEvents(sink, codes)
