"""Reports events of generated code by ``sys.monitoring``: Python 3.12 and newer.

The debugger has its own tool id, since pydevd and torch's debugger both take ``DEBUGGER_ID``. Events of instructions
and returns are turned on per code object, so they slow down no other code. Events of raised exceptions exist only for
the whole interpreter; they are on while needed. No callback returns ``DISABLE``: each execution of an instruction is
reported.
"""

from __future__ import annotations

import sys
from types import CodeType, FrameType
from typing import Any

from dynamo_dap.debuggee.generated.events import Sink
from dynamo_dap.debuggee.generated.known_code import GeneratedCode, GeneratedCodes
from dynamo_dap.debuggee.torch_api.skipping import never_compile
from dynamo_dap.debuggee.wrapping.locks import Level, reentrant_lock
from dynamo_dap.debuggee.wrapping.patches import Patches

TOOL_NAME = "dynamo-dap"
_OWN_IDS = (4, 3)
"""The ids that Python does not reserve."""


class MonitoringEvents:
    """Reports instructions of generated code by ``sys.monitoring``, as an ``events.Source``."""

    def __init__(self, sink: Sink, codes: GeneratedCodes) -> None:
        """Send events to ``sink``; ``codes`` knows generated code by identity."""
        self._sink = sink
        self._codes = codes
        self._monitoring = sys.monitoring  # type: ignore[attr-defined]  # Python 3.12 and newer
        self._tool: int | None = None
        self._watched: dict[int, GeneratedCode] = {}
        self._wants_raises = False
        self._lock = reentrant_lock("monitored code", Level.HOOKS)
        self.problem: str | None = None
        self._patches = patches = Patches("stops in generated code", self.close)
        self._instruction, self._return = (
            patches.guarded(sink.on_instruction, None),
            patches.guarded(sink.on_return, None),
        )
        self._raise, self._unwind = patches.guarded(sink.on_raise, None), patches.guarded(sink.on_unwind, None)

    def about_to_run(self, generated: GeneratedCode, code: CodeType) -> None:
        """Watch ``code``, once for all its frames."""
        # New code may have the identity of freed code.
        if self._watched.get(id(code)) is not generated:
            self.watch(generated, code)

    def watch_running(self, generated: GeneratedCode, frame: FrameType) -> None:
        """Watch the code of ``frame``: local events reach frames that run already."""
        self.about_to_run(generated, frame.f_code)

    def watch(self, generated: GeneratedCode, code: CodeType) -> None:
        """Watch ``code`` from now on, in frames that run already as well."""
        with self._lock:
            if self._patches.is_off or self._watched.get(id(code)) is generated or self._take_tool() is None:
                return
            self._watched[id(code)] = generated
            events = self._monitoring.events
            self._monitoring.set_local_events(self._tool, code, events.INSTRUCTION | events.PY_RETURN)

    def passes(self, generated: GeneratedCode, code: CodeType) -> None:
        """Stop watching ``code``, unless a frame of another call still needs its events."""
        key = id(code)
        if key not in self._watched or not self._sink.needs_no_events(generated):
            return
        with self._lock:
            if key in self._watched:
                self._unwatch(key)

    def keep_only(self, wanted: set[int]) -> None:
        """Stop watching all other code."""
        with self._lock:
            for key in [key for key in self._watched if key not in wanted]:
                self._unwatch(key)

    def _unwatch(self, key: int) -> None:
        generated = self._watched.pop(key)
        code = generated.code_if_alive
        if code is not None and self._tool is not None:
            self._monitoring.set_local_events(self._tool, code, 0)

    def want_raises(self, wanted: bool) -> None:
        """Turn the interpreter's raise events on or off."""
        with self._lock:
            if wanted == self._wants_raises or (wanted and (self._patches.is_off or self._take_tool() is None)):
                return
            self._wants_raises = wanted
            self._set_global_events()

    def _set_global_events(self) -> None:
        events = self._monitoring.events
        self._monitoring.set_events(self._tool, events.RAISE | events.PY_UNWIND if self._wants_raises else 0)

    def close(self) -> None:
        """Stop watching and free the tool id."""
        with self._lock:
            self.keep_only(set())
            if self._tool is None:
                return
            self._wants_raises = False
            self._set_global_events()
            for event in self._callbacks():
                self._monitoring.register_callback(self._tool, event, None)
            self._monitoring.free_tool_id(self._tool)
            self._tool = None

    def _take_tool(self) -> int | None:
        if self._tool is None:
            self._tool = next((number for number in _OWN_IDS if self._monitoring.get_tool(number) is None), None)
            if self._tool is None:
                self.problem = "every tool id of sys.monitoring is taken: generated code cannot be stepped"
                return None
            self._monitoring.use_tool_id(self._tool, TOOL_NAME)
            for event, callback in self._callbacks().items():
                never_compile(callback)
                self._monitoring.register_callback(self._tool, event, callback)
        return self._tool

    def _callbacks(self) -> dict[int, Any]:
        events = self._monitoring.events
        return {
            events.INSTRUCTION: self._on_instruction,
            events.PY_RETURN: self._on_return,
            events.RAISE: self._on_raise,
            events.PY_UNWIND: self._on_unwind,
        }

    # -- callbacks: the thread that runs the code; an exception that leaves one becomes the program's ------------------

    def _on_instruction(self, code: CodeType, offset: int) -> None:
        generated = self._watched.get(id(code))
        if generated is not None:
            self._instruction(generated, sys._getframe(1), offset)

    def _on_return(self, code: CodeType, offset: int, value: object) -> None:
        generated = self._watched.get(id(code))
        if generated is not None:
            self._return(generated, sys._getframe(1), value)

    def _on_raise(self, code: CodeType, offset: int, exception: BaseException) -> None:
        generated = self._watched.get(id(code))
        if generated is not None:
            self._raise(generated, sys._getframe(1), offset, exception)

    def _on_unwind(self, code: CodeType, offset: int, exception: BaseException) -> None:
        generated = self._watched.get(id(code))
        if generated is not None:
            self._unwind(generated, sys._getframe(1))
