"""Reports events of generated code by ``sys.settrace``: Python 3.11 and older.

A trace function is set just before generated code begins and removed when the thread's last frame of generated code
ends. Meanwhile every event is passed on to the previous trace function. That function sees the same frames, lines,
returns and exceptions as without the debugger, generated frames included.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from functools import partial
from types import CodeType, FrameType
from typing import Any

from dynamo_dap.debuggee.agent.tracing import ChainingTracer, TraceFunction, set_trace
from dynamo_dap.debuggee.generated.events import Sink
from dynamo_dap.debuggee.generated.known_code import GeneratedCode, GeneratedCodes
from dynamo_dap.debuggee.torch_api.skipping import never_compile
from dynamo_dap.debuggee.wrapping.patches import Patches


class TraceEvents:
    """Reports instructions of generated code by ``sys.settrace``, as an ``events.Source``."""

    problem: str | None = None

    def __init__(self, sink: Sink, codes: GeneratedCodes) -> None:
        """Send events to ``sink``; ``codes`` knows generated code by identity."""
        self._sink = sink
        self._codes = codes
        self._threads = threading.local()
        self._closed = False
        self._patches = Patches("stops in generated code", self.close)
        self._hooks = self._patches.guarded(self._report, None), self._patches.guarded(self._is_over, True)
        never_compile(_ThreadTracer.on_call)
        never_compile(_ThreadTracer.on_event)

    def about_to_run(self, generated: GeneratedCode, code: CodeType) -> None:
        """Set the trace function, for the ``call`` event of the frame that begins now."""
        if not self._patches.is_off:
            self._closed = False
            self._tracer().expect(code)

    def _is_over(self, generated: GeneratedCode, frame: FrameType) -> bool:
        """Return whether ``frame`` needs no more events; tracing takes most of a call's time."""
        return frame.f_lasti == generated.entry_offset and self._sink.needs_no_events(generated)

    def watch(self, generated: GeneratedCode, code: CodeType) -> None:
        """Do nothing: frames are traced from their beginning, or from ``watch_running`` on their own thread."""

    def watch_running(self, generated: GeneratedCode, frame: FrameType) -> None:
        """Trace ``frame`` from its present instruction on."""
        if not self._patches.is_off:
            self._closed = False
            self._tracer().trace_frame(generated, frame)

    def passes(self, generated: GeneratedCode, code: CodeType) -> None:
        """Do nothing: a frame is traced only if its beginning is expected."""

    def keep_only(self, wanted: set[int]) -> None:
        """Do nothing: a traced frame stays traced to its end, and another thread cannot change that."""

    def want_raises(self, wanted: bool) -> None:
        """Choose whether to report raised exceptions, too."""

    def close(self) -> None:
        """Report nothing from now on; trace functions disappear as their frames end."""
        self._closed = True

    def _tracer(self) -> _ThreadTracer:
        tracer: _ThreadTracer | None = getattr(self._threads, "tracer", None)
        if tracer is None:
            tracer = self._threads.tracer = _ThreadTracer(*self._hooks, self._codes)
        return tracer

    def _report(self, generated: GeneratedCode, frame: FrameType, event: str, argument: Any) -> None:
        if self._closed:
            return
        if event == "opcode":
            self._sink.on_instruction(generated, frame, frame.f_lasti)
        elif event == "exception":
            self._sink.on_raise(generated, frame, frame.f_lasti, argument[1])
        elif event == "return":
            instruction = generated.table.at(frame.f_lasti)
            if instruction is not None and instruction.is_return:
                self._sink.on_return(generated, frame, argument)
            else:
                self._sink.on_unwind(generated, frame)


class _ThreadTracer(ChainingTracer):
    """A thread's trace function, and the previous one."""

    def __init__(
        self,
        report: Callable[[GeneratedCode, FrameType, str, object], None],
        is_over: Callable[[GeneratedCode, FrameType], bool],
        codes: GeneratedCodes,
    ) -> None:
        self._report = report
        self._is_over = is_over
        self._codes = codes
        self._expected: CodeType | None = None
        self._before_reinstalls_itself = False
        """Whether ``before`` is in C and must install itself again at a call, because it would miss lines otherwise."""
        self._traced: set[int] = set()
        """``id`` of the traced frames, all of them running."""
        # One bound method for the life of the tracer, so that it can be recognised.
        self._function: TraceFunction = self.on_call

    def expect(self, code: CodeType) -> None:
        self._expected = code
        self._install()

    def trace_frame(self, generated: GeneratedCode, frame: FrameType) -> None:
        if id(frame) in self._traced:
            return
        self._install()
        self._trace(generated, frame, frame.f_trace)

    def _install(self) -> None:
        current: Any = sys.gettrace()
        if current is not self._function:
            # Frames traced so far, if any, lost their events to the other trace function.
            self._traced.clear()
            self.before = current
            set_trace(self._function)

    def _remove_when_done(self) -> None:
        if not self._traced and sys.gettrace() is self._function:
            set_trace(self.before)
            self.before = None
            if self._before_reinstalls_itself:
                self._before_reinstalls_itself = False
                _call()

    def on_call(self, frame: FrameType, event: str, argument: object) -> TraceFunction | None:
        before = self.before
        local: TraceFunction | None = before(frame, event, argument) if before is not None else None
        if before is not None and sys.gettrace() is before:
            # A trace function in C, like coverage's, installs itself when it is called from Python.
            self._before_reinstalls_itself = True
            set_trace(self._function)
        expected = self._expected
        if expected is None or frame.f_code is not expected:
            return local
        self._expected = None
        return self._trace(self._codes.add(expected), frame, local)

    def _trace(self, generated: GeneratedCode, frame: FrameType, before: TraceFunction | None) -> TraceFunction:
        """Trace one frame, and pass the events on to ``before``."""
        asked_for = {"opcode": frame.f_trace_opcodes, "line": frame.f_trace_lines}
        traced = _TracedFrame(
            generated, before, {event for event, is_asked_for in asked_for.items() if not is_asked_for}
        )
        self._traced.add(id(frame))
        function = partial(self.on_event, traced)
        traced.function = function
        frame.f_trace_opcodes = True
        frame.f_trace = function
        return function

    def on_event(self, traced: _TracedFrame, frame: FrameType, event: str, argument: object) -> TraceFunction | None:
        self._report(traced.generated, frame, event, argument)
        if traced.before is not None and event not in traced.withheld:
            traced.before = traced.before(frame, event, argument)
        if event == "return":
            self._traced.discard(id(frame))
            self._remove_when_done()
        elif event == "opcode" and self._is_over(traced.generated, frame):
            return self._leave(traced, frame)
        return traced.function

    def _leave(self, traced: _TracedFrame, frame: FrameType) -> TraceFunction | None:
        """Stop tracing a frame, and restore its state."""
        frame.f_trace_opcodes = "opcode" not in traced.withheld
        frame.f_trace_lines = "line" not in traced.withheld
        if traced.before is None:
            del frame.f_trace
        else:
            frame.f_trace = traced.before
        self._traced.discard(id(frame))
        self._remove_when_done()
        return traced.before


def _call() -> None:
    """Emit a call event for other trace functions."""


class _TracedFrame:
    """One traced frame, with its previous trace function."""

    __slots__ = ("before", "function", "generated", "withheld")

    def __init__(self, generated: GeneratedCode, before: TraceFunction | None, withheld: set[str]) -> None:
        self.generated = generated
        self.before = before
        self.withheld = withheld
        """Events that the previous trace function did not ask for."""
        self.function: TraceFunction
