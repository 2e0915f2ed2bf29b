"""torch's own debugger of generated code, run with a scripted prompt: the peer.

Its prompt reads commands with ``input`` and prints what it finds. A script answers the prompt, and checks the
debugger's state where it stands, so that objects are compared and not their texts.
"""

from __future__ import annotations

import builtins
import contextlib
import io
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

import torch


@dataclass
class PeerStop:
    """Where torch's debugger prompted."""

    name: str
    offset: int
    instruction: str
    stack: list[Any]
    locals: dict[str, Any]
    counted_depth: int = 0
    """The depth that it has counted from the steps taken."""


@dataclass
class TorchDebugger:
    """Steps a program with torch's debugger by one command, to its end."""

    command: str = "s"
    look: Callable[[PeerStop], None] = field(default=lambda stop: None)
    stops: list[PeerStop] = field(default_factory=list)
    limit: int = 3000

    def run(self, program: Callable[[], Any]) -> Any:
        """Run ``program`` under torch's debugger; what it prints is thrown away."""
        with (
            mock.patch.object(builtins, "input", self._answer),
            contextlib.redirect_stdout(io.StringIO()),
            torch._dynamo.bytecode_debugger.debug() as self._context,
        ):
            return program()

    def _answer(self, prompt: object = "") -> str:
        state = sys._getframe(1).f_locals["state"]
        stack = self._context._get_stack_for_eval(state, is_current_frame=True)
        instruction = state.offset_to_inst[state.current_offset]
        name, offset = state.code.co_name, state.current_offset
        stop = PeerStop(name, offset, instruction.opname, stack, dict(state.frame.f_locals), state.current_stack_depth)
        self.stops.append(stop)
        self.look(stop)
        return self.command if len(self.stops) < self.limit else "c"
