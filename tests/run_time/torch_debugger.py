"""Runs torch's own debugger of generated code, the peer, with a scripted prompt.

Its prompt reads commands with ``input`` and prints results. A script answers the prompt, and reads the debugger's
state at each stop, so that tests compare objects instead of texts.
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
    """The place at which torch's debugger showed its prompt."""

    name: str
    offset: int
    instruction: str
    stack: list[Any]
    locals: dict[str, Any]
    counted_depth: int = 0
    """The stack depth that torch's debugger has counted from its steps."""


@dataclass
class TorchDebugger:
    """Steps a program to its end with torch's debugger, repeating one command."""

    command: str = "s"
    look: Callable[[PeerStop], None] = field(default=lambda stop: None)
    stops: list[PeerStop] = field(default_factory=list)
    limit: int = 3000

    def run(self, program: Callable[[], Any]) -> Any:
        """Run ``program`` under torch's debugger, and discard the debugger's output."""
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
