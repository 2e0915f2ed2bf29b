"""Frames of a paused trace: the chain of inlined functions, the frame being compiled, and the eager callers below.

Made on the held tracing thread; they die with the pause.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Sequence
from dataclasses import replace

from dynamo_dap.debuggee.agent.engine import Host
from dynamo_dap.debuggee.agent.frames import LOG_CONTEXT, Frame, Position
from dynamo_dap.debuggee.agent.user_code import is_user_file
from dynamo_dap.debuggee.agent.watched_variable import WatchedVariable
from dynamo_dap.debuggee.compile_time.completion import completions
from dynamo_dap.debuggee.compile_time.data_watch import watched_variable
from dynamo_dap.debuggee.compile_time.evaluation import evaluate, evaluate_to_python
from dynamo_dap.debuggee.compile_time.symbolic_scopes import scopes_of
from dynamo_dap.debuggee.compile_time.trackers.traced_view import UNREALIZED
from dynamo_dap.debuggee.torch_internals.dynamo_names import user_function_name
from dynamo_dap.debuggee.torch_internals.translator import Translator, chain_of, frame_below_trace, instruction_at
from dynamo_dap.debuggee.values.model import ScopeOfFrame, Value, VirtualSource
from dynamo_dap.protocol.types import CompletionItem


class TranslatorFrame(Frame):
    """A function that Dynamo is tracing."""

    def __init__(self, translator: Translator, address: int, scratch: dict[str, object], host: Host) -> None:
        """Show ``translator``, which stands at the instruction with ``address``.

        ``scratch`` keeps the names that statements in the debug console assign; what they print goes to ``host``.
        """
        self.instruction_pointer_reference = hex(address)
        self._translator = translator
        self._scratch = scratch
        self._host = host
        self.is_user_code = is_user_file(translator.f_code.co_filename)

    @property
    def name(self) -> str:
        """The user's name of the function."""
        return user_function_name(self._translator.f_code)

    @property
    def source(self) -> str | VirtualSource | None:
        """The user's file."""
        return str(self._translator.f_code.co_filename)

    @property
    def position(self) -> Position:
        """The place of the instruction being executed."""
        instruction = self._translator.instructions[instruction_at(self._translator)]
        positions = instruction.positions
        line = self._translator.lineno
        if positions is None or positions.lineno is None or positions.col_offset is None:
            return Position(line)
        end = positions.end_col_offset
        return Position(
            positions.lineno, positions.col_offset + 1, positions.end_lineno, None if end is None else end + 1
        )

    def scopes(self) -> Sequence[ScopeOfFrame]:
        """The symbolic state."""
        return scopes_of(self._translator, self._host.listing_of)

    def evaluate(self, expression: str, context: str) -> Value:
        """Evaluate over the symbolic state."""
        value = evaluate(self._translator, expression, context, console=self._host.print, scratch=self._scratch)
        # In a line that is printed it says nothing about the program.
        text = value.text.removesuffix(UNREALIZED) if context == LOG_CONTEXT else value.text
        return replace(value, text=text)

    def is_true(self, expression: str) -> bool:
        """Evaluate a condition."""
        return bool(evaluate_to_python(self._translator, expression))

    def watched(self, name: str) -> WatchedVariable | None:
        """Return what a data breakpoint on a local variable is about."""
        return watched_variable(self._translator, name)

    def completions(self, text: str, column: int) -> Sequence[CompletionItem]:
        """Complete symbolic names."""
        return completions(self._translator, text, column)


def frames_of(
    translator: Translator,
    top: types.FrameType,
    address_of: Callable[[Translator, int], int],
    host: Host,
) -> list[Frame]:
    """Return the whole stack of a thread that traces.

    ``top`` is the Python frame that the hook runs in; ``address_of`` gives the address of a translator's instruction;
    ``host`` presents the Python frames that called into Dynamo.
    """
    scratch: dict[str, object] = {}
    symbolic: list[Frame] = [
        TranslatorFrame(one, address_of(one, instruction_at(one)), scratch, host) for one in chain_of(translator, top)
    ]
    return symbolic + list(host.python_stack(frame_below_trace(top)))
