"""Frames of ordinary Python below (or in place of) an engine's frames: real locals, shown as values.

Made and used on the held thread; each dies with its pause.
"""

from __future__ import annotations

import types
from collections.abc import Iterator, Sequence

from dynamo_dap.debuggee.agent.frames import Frame, Position
from dynamo_dap.debuggee.agent.user_code import is_debugger_file, is_user_file
from dynamo_dap.debuggee.values.expressions import complete_in_frame, evaluate_in_frame, is_true_in_frame
from dynamo_dap.debuggee.values.frame_scopes import scopes_of_frame
from dynamo_dap.debuggee.values.model import ScopeOfFrame, Value, VirtualSource
from dynamo_dap.protocol.types import CompletionItem


class EagerFrame(Frame):
    """A frame of ordinary Python."""

    def __init__(self, frame: types.FrameType) -> None:
        self._frame = frame
        self.is_user_code = is_user_file(frame.f_code.co_filename)

    @property
    def name(self) -> str:
        """The function's qualified name, as far as this Python knows it."""
        code = self._frame.f_code
        return getattr(code, "co_qualname", code.co_name)

    @property
    def source(self) -> str | VirtualSource | None:
        """The file."""
        return self._frame.f_code.co_filename

    @property
    def position(self) -> Position:
        """The current line, with the columns of the instruction where this Python has them."""
        return position_in_code(self._frame.f_code, self._frame.f_lasti, self._frame.f_lineno)

    def scopes(self) -> Sequence[ScopeOfFrame]:
        """Locals and globals."""
        return scopes_of_frame(self._frame)

    def evaluate(self, expression: str, context: str) -> Value:
        """Evaluate over the frame's names."""
        return evaluate_in_frame(self._frame, expression, context)

    def is_true(self, expression: str) -> bool:
        """Evaluate a condition."""
        return is_true_in_frame(self._frame, expression)

    def completions(self, text: str, column: int) -> Sequence[CompletionItem]:
        """Complete names and attributes."""
        return complete_in_frame(self._frame, text, column)


def position_in_code(code: types.CodeType, offset: int, line: int | None) -> Position:
    """Return the position of the instruction at ``offset`` bytes (``f_lasti``); ``line`` where the code has none."""
    if hasattr(code, "co_positions") and offset >= 0:
        for index, (start, end, column, end_column) in enumerate(code.co_positions()):
            if index == offset // 2 and start is not None and column is not None:
                return Position(start, column + 1, end, None if end_column is None else end_column + 1)
    return Position(line or max(1, code.co_firstlineno))


def eager_frames(top: types.FrameType | None) -> list[Frame]:
    """Return the stack of ordinary Python from ``top`` down, without the debugger's own frames."""
    return [EagerFrame(frame) for frame in walk(top) if not is_debugger_file(frame.f_code.co_filename)]


def walk(top: types.FrameType | None) -> Iterator[types.FrameType]:
    """Yield ``top`` and its callers."""
    while top is not None:
        yield top
        top = top.f_back
