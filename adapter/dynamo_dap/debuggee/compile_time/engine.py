"""The compile-time engine: stops Dynamo's interpreter at the user's lines and instructions.

``arm`` runs on any thread and decides which hooks are in; everything else runs on the tracing thread, inside a hook,
under Dynamo's compile lock. One per process, made when the program imports Dynamo. With nothing armed no hook is in.
"""

from __future__ import annotations

import sys
import types
from collections.abc import Sequence

from dynamo_dap.debuggee.agent.breakpoints import DataEntry, LineBreakpoint
from dynamo_dap.debuggee.agent.engine import Host
from dynamo_dap.debuggee.agent.frames import Frame
from dynamo_dap.debuggee.agent.log import log_exception
from dynamo_dap.debuggee.agent.stepping import RaisedException, Stop
from dynamo_dap.debuggee.agent.user_code import is_user_file, stands_in_for_builtin
from dynamo_dap.debuggee.agent.watched_variable import GUARDED
from dynamo_dap.debuggee.code_analysis.qualified_names import qualified_name
from dynamo_dap.debuggee.compile_time.code_facts import CodeFactsCache
from dynamo_dap.debuggee.compile_time.compile_stops import CompileStops
from dynamo_dap.debuggee.compile_time.data_watch import DataWatch
from dynamo_dap.debuggee.compile_time.descriptions import explain, headline
from dynamo_dap.debuggee.compile_time.disassembly import TracedCodes
from dynamo_dap.debuggee.compile_time.frames import TranslatorFrame, frames_of
from dynamo_dap.debuggee.compile_time.progress import ProgressOfTraces, TraceProgress
from dynamo_dap.debuggee.compile_time.stepping import Origin, Outcome, Place, outcome
from dynamo_dap.debuggee.compile_time.stop_texts import data_changed
from dynamo_dap.debuggee.torch_internals.comptime import comptime_breakpoint_translator
from dynamo_dap.debuggee.torch_internals.dynamo_names import resume_function
from dynamo_dap.debuggee.torch_internals.translator import (
    LINES,
    Translator,
    TranslatorHooks,
    chain_of,
    instruction_at,
    is_in_resume_prologue,
)
from dynamo_dap.protocol.contract import COMPILE_TIME
from dynamo_dap.protocol.types import DisassembleArguments, DisassembleResponseBody


class CompileTimeEngine:
    """Stops traces. See ``agent.engine.Engine``."""

    name = COMPILE_TIME

    def __init__(self, host: Host) -> None:
        """``host`` is the agent."""
        self._host = host
        self._hooks = TranslatorHooks(self._on_line_instruction, self._on_instruction)
        self._facts = CodeFactsCache()
        self._codes = TracedCodes()
        self._traces = ProgressOfTraces()
        self._output: object = None
        self._progress: TraceProgress | None = None
        self._watches_every_line = False
        self._compile_stops = CompileStops(host, self.name, self._stop_at_exception)
        self._data_watch = DataWatch()
        if LINES.problem is not None:
            host.print(f"dynamo-dap: {LINES.problem}\n", "important")

    # -- arming ----------------------------------------------------------------------------------------------------

    def arm(self) -> None:
        """Have the hooks in that breakpoints, steps and pause requests need now. Any thread."""
        host = self._host
        wanted = host.options.compile_time
        self._watches_every_line = host.has_steps or host.has_pause_requests or bool(host.breakpoints.functions)
        lines = wanted and (self._watches_every_line or host.breakpoints.any_line(COMPILE_TIME))
        watched = any(one.access != GUARDED for one in host.breakpoints.data)
        self._hooks.want(lines=lines, instructions=wanted and (host.has_steps or watched))
        self._compile_stops.arm()

    def close(self) -> None:
        """Take the hooks out. Any thread."""
        self._watches_every_line = False
        self._hooks.want(lines=False, instructions=False)
        self._compile_stops.close()

    # -- hooks: the tracing thread ---------------------------------------------------------------------------------

    def _on_line_instruction(self, translator: Translator) -> None:
        try:
            progress = self._progress_of(translator)
            progress.position += 1
            line = translator.lineno
            lines = self._host.breakpoints.lines_in(translator.f_code.co_filename)
            if self._watches_every_line or (lines is not None and line in lines):
                self._visit(translator, progress, () if lines is None else lines.get(line, ()))
        except Exception:  # noqa: BLE001  (an exception of ours must never become one of the trace)
            self._tell_failure()

    def _on_instruction(self, translator: Translator) -> None:
        """Instructions without a line are seen only here; they matter to steps by instruction alone."""
        index = translator.instruction_pointer
        if index is None:
            return
        if (watched := self._host.breakpoints.data) and not self._host.is_holding:
            self._watch(translator, watched)
        if translator.instructions[index].starts_line:
            return
        step = self._host.current_step()
        if step is None or step.granularity != "instruction":
            return
        # As ``step`` would do next; the translator stands at the instruction, for whoever looks.
        translator.instruction_pointer = index + 1
        try:
            self._visit(translator, self._progress_of(translator), ())
        except Exception:  # noqa: BLE001  (as above)
            self._tell_failure()
        finally:
            translator.instruction_pointer = index

    def _watch(self, translator: Translator, watched: tuple[DataEntry, ...]) -> None:
        """Stop for what the instruction before has changed."""
        try:
            changes = self._data_watch.changes(watched, translator)
            # At the very beginning of a function there is no instruction before.
            if not changes or not translator.instruction_pointer:
                return
            place = self._place(translator, self._progress_of(translator))
            new = [one for one in changes if self._is_new(one.entry, place)]
            hit = self._stopping([one.entry for one in new], place)
            if hit:
                text = "; ".join(one.text for one in new if one.entry.id in hit)
                self._stop(place, "data breakpoint", hit, raised=data_changed(text))
        except Exception:  # noqa: BLE001  (an exception of ours must never become one of the trace)
            self._tell_failure()

    def _stopping(self, entries: Sequence[LineBreakpoint], place: Place) -> list[int]:
        """Return the ids of those whose conditions hold."""
        if not entries:
            return []
        address = self._codes.address_of(place.translator, place.index)
        return self._host.should_stop(list(entries), lambda: TranslatorFrame(place.translator, address, {}, self._host))

    def _progress_of(self, translator: Translator) -> TraceProgress:
        if translator.output is not self._output or self._progress is None:
            self._output = translator.output
            self._progress = self._traces.of(translator)
        return self._progress

    def _tell_failure(self) -> None:
        log_exception("looking at a traced line")
        self._host.print("dynamo-dap: internal error while looking at a traced line; tracing goes on\n", "stderr")

    def _place(self, translator: Translator, progress: TraceProgress) -> Place:
        filename = translator.f_code.co_filename
        is_wanted = not self._host.options.just_my_code or is_user_file(filename)
        index = instruction_at(translator)
        facts = self._facts.of(translator)
        begins_line = facts.begins_line(index, progress.comes_from(translator, index))
        return Place(
            translator=translator,
            index=index,
            line=translator.lineno,
            facts=facts,
            progress=progress,
            begins_line=begins_line and not is_in_resume_prologue(translator),
            chain=lambda: chain_of(translator, sys._getframe()),
            is_user_code=is_wanted and not stands_in_for_builtin(filename),
        )

    def _visit(self, translator: Translator, progress: TraceProgress, reached: tuple[LineBreakpoint, ...]) -> None:
        if self._host.is_holding:
            return
        place = self._place(translator, progress)
        hit = self._breakpoints_hit(place, reached)
        if hit:
            self._stop(place, "breakpoint", hit)
        elif self._host.has_pause_requests and self._may_pause(place) and self._host.take_pause_request():
            self._stop(place, "pause")
        elif (step := self._host.current_step()) is not None:
            ended = outcome(step, place)
            if ended is not Outcome.GO_ON:
                self._stop(place, "step", restarted=ended is Outcome.STOP_AFTER_RESTART)

    def _may_pause(self, place: Place) -> bool:
        return place.begins_line and not stands_in_for_builtin(place.translator.f_code.co_filename)

    def _breakpoints_hit(self, place: Place, reached: tuple[LineBreakpoint, ...]) -> list[int]:
        if not place.begins_line:
            return []
        candidates: list[LineBreakpoint] = []
        if reached and not place.facts.continues_statement(place.translator, place.index, place.line):
            candidates += [one for one in reached if one.applies_to(COMPILE_TIME)]
        candidates += self._functions_entered(place)
        return self._stopping([one for one in candidates if self._is_new(one, place)], place)

    def _is_new(self, breakpoint: LineBreakpoint, place: Place) -> bool:
        visit = (breakpoint.id, id(place.translator.f_code), place.index)
        return place.progress.is_first_visit(visit) or self._host.options.pause_on_restart

    def _functions_entered(self, place: Place) -> list[LineBreakpoint]:
        functions = self._host.breakpoints.functions
        code: types.CodeType = place.translator.f_code
        if not functions or place.index != place.facts.first_line_start or resume_function(code) is not None:
            return []
        module = place.translator.f_globals.get("__name__")
        name = qualified_name(code)
        entered = [one for one in functions if one.matches(name, module)]
        if not entered or not place.progress.enters(place.translator):
            return []
        for one in entered:
            self._host.function_found(one, code.co_filename, place.line)
        return list(entered)

    # -- stopping --------------------------------------------------------------------------------------------------

    def _stop_at_exception(
        self, translator: Translator, raised: RaisedException, watching: Sequence[DataEntry] = ()
    ) -> None:
        """Stop for an exception filter; with ``watching``, for those of the data breakpoints whose conditions hold."""
        place = self._place(translator, self._progress_of(translator))
        if not watching:
            self._stop(place, "exception", raised=raised)
        elif hit := self._stopping(watching, place):
            self._stop(place, "data breakpoint", hit, raised=raised)

    def _stop(
        self,
        place: Place,
        reason: str,
        hit: list[int] | None = None,
        *,
        restarted: bool = False,
        raised: RaisedException | None = None,
    ) -> None:
        top = sys._getframe()
        translator = place.translator
        progress = place.progress
        self._host.hold(
            Stop(
                engine=self.name,
                reason=reason,
                frames=lambda: frames_of(translator, top, self._codes.address_of, self._host),
                description=headline(translator, progress.identity) if raised is None else raised.headline,
                text=explain(reason, translator, progress.identity, top, restarted=restarted)
                if raised is None
                else raised.text,
                hit_breakpoint_ids=hit or [],
                exception=raised,
                origin=Origin(
                    translator,
                    place.index,
                    place.line,
                    tuple(chain_of(translator, top)[1:]),
                    progress.identity,
                    progress.position if progress.began_at_start else -1,
                ),
            )
        )

    def present_frame(self, frame: types.FrameType) -> Frame | None:
        """Traced functions have no running frame."""
        return None

    def listing_of(self, code: types.CodeType) -> None:
        """Return nothing: generated code is not this engine's."""

    def disassemble(self, arguments: DisassembleArguments) -> DisassembleResponseBody | None:
        """List traced instructions; None when the address is not of traced code. Any thread."""
        return self._codes.disassemble(arguments)

    def stop_for_breakpoint_call(self, frame: types.FrameType) -> bool:
        """Stop for ``comptime.breakpoint()``; False when ``frame``, which called ``breakpoint()``, is no such call."""
        translator = comptime_breakpoint_translator(frame)
        if translator is None:
            return False
        progress = self._traces.of(translator)
        if self._host.options.compile_time:
            self._stop(self._place(translator, progress), "breakpoint")
        return True
