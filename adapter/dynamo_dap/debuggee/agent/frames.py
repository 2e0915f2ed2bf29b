"""Models the frames of a held thread's stack: those of engines, and those of ordinary Python.

The held thread makes the frames at the first request for the stack, and uses them for later requests. They live until
the thread resumes.
"""

from __future__ import annotations

import sys
import types
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from dynamo_dap.debuggee.agent.breakpoints import WatchedVariable
from dynamo_dap.debuggee.agent.eager_expressions import complete_python, evaluate_python, is_true_python
from dynamo_dap.debuggee.agent.user_code import is_user_file
from dynamo_dap.debuggee.values.eager_frames import shown_name
from dynamo_dap.debuggee.values.model import (
    WHAT_CAN_BE_SET,
    EvaluationError,
    ScopeOfFrame,
    ShownTensor,
    Value,
    VirtualSource,
    Watchable,
    WriteRefused,
)
from dynamo_dap.debuggee.values.python_values import globals_of, locals_of
from dynamo_dap.debuggee.values.triton_blocks import program_scope
from dynamo_dap.protocol.wire.types import CompletionItem


@dataclass(frozen=True, slots=True)
class Position:
    """A range of source text: 1-based lines and columns, ``end_column`` exclusive as in DAP; None if unknown."""

    line: int
    column: int = 1
    end_line: int | None = None
    end_column: int | None = None


LOG_CONTEXT = "log"
"""A value for ``context`` in ``Frame.evaluate``, in addition to DAP's: the expression is in a log message."""


class Frame(ABC):
    """One frame of a stack. Each engine has subclasses."""

    is_label: bool = False
    """Whether this is only a separator between kinds of frames."""
    is_user_code: bool = True
    """Whether the frame runs the user's code. ``justMyCode`` hides other frames, except the top frame."""
    is_writable: ClassVar[bool] = False
    """Whether ``write`` assigns anything."""
    instruction_pointer_reference: str | None = None

    @property
    @abstractmethod
    def name(self) -> str:
        """The name shown in the call stack."""

    @property
    @abstractmethod
    def source(self) -> str | VirtualSource | None:
        """A file's absolute path, a virtual source, or None."""

    @property
    @abstractmethod
    def position(self) -> Position:
        """The current place in ``source``."""

    @abstractmethod
    def scopes(self) -> Sequence[ScopeOfFrame]:
        """Return the groups of variables to show, most interesting first."""

    def evaluate(self, expression: str, context: str) -> Value:
        """Return the value of ``expression`` in this frame.

        ``context`` is DAP's (``watch``, ``hover``, ``repl``, ``clipboard``, ``variables``) or ``LOG_CONTEXT``.

        Raises:
            EvaluationError: the expression has no value; the message is for the user.
            Exception: whatever the expression raises; the user sees it as the expression's own exception.
        """
        raise EvaluationError("nothing can be evaluated in this frame")

    def tensor(self, expression: str) -> ShownTensor:
        """Return the tensor to which ``expression`` evaluates, with its data. Raises like ``evaluate``."""
        children = self.evaluate(expression, "watch").children
        if children is None:
            raise EvaluationError(f"{expression} is not a tensor")
        return children.tensor()

    def is_true(self, expression: str) -> bool:
        """Return whether ``expression``, a breakpoint's condition, is true in this frame. Raises like ``evaluate``."""
        raise EvaluationError("nothing can be evaluated in this frame")

    def watched(self, name: str) -> Watchable | None:
        """Return the variable ``name`` as the subject of a data breakpoint; None if it cannot be watched."""
        return None

    def write(self, expression: str, value: str) -> Value:
        """Assign the value of the expression ``value`` to the assignable ``expression`` (DAP ``setExpression``)."""
        raise WriteRefused(f"nothing can be assigned in this frame: {WHAT_CAN_BE_SET}")

    def jump_to(self, path: str, line: int) -> Any:
        """Return the target of a jump to ``line`` of ``path``; None if this kind of frame cannot jump.

        Raises:
            WriteRefused: the frame cannot jump to this line; the text says why.
        """
        return None

    def completions(self, text: str, column: int) -> Sequence[CompletionItem]:
        """Return completions of ``text`` for a cursor before the 1-based ``column``."""
        return ()


class EagerFrame(Frame):
    """A frame of ordinary Python."""

    def __init__(self, frame: types.FrameType, console: Callable[[str], None]) -> None:
        """Evaluate in ``frame``; the output of expressions goes to ``console``."""
        self._frame = frame
        self._console = console
        self._assigned: dict[str, object] = {}
        self.is_user_code = is_user_file(frame.f_code.co_filename)

    @property
    def name(self) -> str:
        """The user's name of the function."""
        return shown_name(self._frame.f_code)

    @property
    def source(self) -> str | VirtualSource | None:
        """The file."""
        return self._frame.f_code.co_filename

    @property
    def position(self) -> Position:
        """The current line; from Python 3.11 on, the exact range of the current instruction."""
        return position_in_code(self._frame.f_code, self._frame.f_lasti, self._frame.f_lineno)

    def scopes(self) -> Sequence[ScopeOfFrame]:
        """Return locals and globals; in a Triton kernel also the running program of its grid."""
        program = program_scope(self._frame, is_user_file)
        return (
            ScopeOfFrame("Locals", locals_of(self._frame), "locals"),
            *(() if program is None else (program,)),
            ScopeOfFrame("Globals", globals_of(self._frame), "globals", expensive=True),
        )

    def evaluate(self, expression: str, context: str) -> Value:
        """Evaluate over the frame's names."""
        names = dict(self._frame.f_locals) | self._assigned
        value = evaluate_python(expression, context, self._frame.f_globals, names, self._console)
        self._assigned.update({name: names[name] for name in names.keys() - self._frame.f_locals.keys()})
        return value

    def watched(self, name: str) -> WatchedVariable | None:
        """Return ``name`` if it is a part of a local variable's value: ordinary Python watches nothing else."""
        variable = WatchedVariable.of(name, self._frame.f_code)
        root, steps = variable.parts
        return variable if steps and root in self._frame.f_code.co_varnames else None

    def is_true(self, expression: str) -> bool:
        """Evaluate a condition."""
        return is_true_python(expression, self._frame.f_globals, self._frame.f_locals)

    def completions(self, text: str, column: int) -> Sequence[CompletionItem]:
        """Complete names and attributes."""
        return complete_python(text, column, {**self._frame.f_globals, **self._frame.f_locals})


GLOBALS_FILE = "<globals>"
"""The file of ``frame_of_globals``."""

_EVALUATED_FRAME = compile("__import__('sys')._getframe()", GLOBALS_FILE, "eval")


def frame_of_globals() -> types.FrameType:
    """Return a finished frame for reading and assigning the globals of the program's ``__main__``."""
    frame: types.FrameType = eval(_EVALUATED_FRAME, vars(sys.modules["__main__"]))
    return frame


class GlobalsFrame(EagerFrame):
    """The frame in which requests that name no frame are evaluated. It is in no stack."""

    is_writable = True

    def __init__(self, console: Callable[[str], None]) -> None:
        """Evaluate in the program's globals; the output of expressions goes to ``console``."""
        super().__init__(frame_of_globals(), console)

    def evaluate(self, expression: str, context: str) -> Value:
        """Evaluate over the program's globals, to which statements assign."""
        names = self._frame.f_globals
        return evaluate_python(expression, context, names, names, self._console)

    def write(self, expression: str, value: str) -> Value:
        """Assign to a global, or inside an object that a global holds."""
        self.evaluate(f"{expression} = ({value})", "repl")
        return self.evaluate(expression, "watch")


def position_in_code(code: types.CodeType, offset: int, line: int | None) -> Position:
    """Return the position of the instruction at byte ``offset`` (``f_lasti``); ``line`` if the code has no columns."""
    if hasattr(code, "co_positions") and offset >= 0:
        for index, (start, end, column, end_column) in enumerate(code.co_positions()):
            if index == offset // 2 and start is not None and column is not None:
                return Position(start, column + 1, end, None if end_column is None else end_column + 1)
    return Position(line or max(1, code.co_firstlineno))


def caller_frame() -> types.FrameType:
    """Return the frame that called this function's caller.

    If a function kept its own frame in a local variable, the frame would refer to itself. It would then live until the
    next garbage collection, with all objects in the frames below it.
    """
    return sys._getframe(2)


def walk(top: types.FrameType | None) -> Iterator[types.FrameType]:
    """Yield ``top`` and its callers."""
    while top is not None:
        yield top
        top = top.f_back
