"""A frame of a held thread's stack, as an engine presents it.

Frames are made on the held thread when the stack is first asked for, serve requests on that thread, and die with
the pause.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from dynamo_dap.debuggee.values.model import (
    WHAT_CAN_BE_SET,
    EvaluationError,
    ScopeOfFrame,
    Value,
    VirtualSource,
    Watchable,
    WriteRefused,
)
from dynamo_dap.protocol.types import CompletionItem


@dataclass(frozen=True, slots=True)
class Position:
    """Where a frame is: 1-based lines and columns, ``end_column`` exclusive as in DAP; None where unknown."""

    line: int
    column: int = 1
    end_line: int | None = None
    end_column: int | None = None


LOG_CONTEXT = "log"
"""The context of an expression in a log message, besides DAP's ``watch``, ``hover``, ``repl`` and ``clipboard``."""


class Frame(ABC):
    """One frame. Engines subclass it; only what is abstract has to be given."""

    is_label: bool = False
    """A mere divider between kinds of frames."""
    is_user_code: bool = True
    """Frames that are not are shown subtly or left out under ``justMyCode``, unless they are on top."""
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
        """The groups of variables to show, most interesting first."""

    def evaluate(self, expression: str, context: str) -> Value:
        """Return the value of ``expression`` in this frame.

        ``context`` is DAP's: watch, hover, repl, clipboard, variables.

        Raises:
            EvaluationError: it has no value; the text is for a person. Anything else raised is shown as the
                expression's own exception.
        """
        raise EvaluationError("nothing can be evaluated in this frame")

    def is_true(self, expression: str) -> bool:
        """Whether ``expression`` is true in this frame: the condition of a breakpoint. Raises as ``evaluate`` does."""
        raise EvaluationError("nothing can be evaluated in this frame")

    def watched(self, name: str) -> Watchable | None:
        """Return what a data breakpoint on a variable is about; None when there can be none."""
        return None

    def write(self, expression: str, value: str) -> Value:
        """Assign the value of the expression ``value`` to the assignable ``expression`` (DAP ``setExpression``)."""
        raise WriteRefused(f"nothing can be assigned in this frame: {WHAT_CAN_BE_SET}")

    def completions(self, text: str, column: int) -> Sequence[CompletionItem]:
        """Completions for ``text`` with the cursor before the 1-based ``column``."""
        return ()
