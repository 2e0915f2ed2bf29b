"""Presents generated frames of a stopped thread.

They are made on the held thread, and live as long as the pause. The top frame is shown twice: in its annotated listing,
and as the next frame of the stack at the user's line of its instruction.
"""

from __future__ import annotations

import os
import re
import types
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from typing import Any

from dynamo_dap.debuggee.agent.eager_expressions import complete_python
from dynamo_dap.debuggee.agent.frames import Frame, Position
from dynamo_dap.debuggee.agent.user_code import is_user_file
from dynamo_dap.debuggee.generated import evaluation
from dynamo_dap.debuggee.generated.frame_values import FrameValues
from dynamo_dap.debuggee.generated.known_code import GeneratedCode, made_once
from dynamo_dap.debuggee.generated.purpose import without_comment
from dynamo_dap.debuggee.generated.scopes import scopes_of
from dynamo_dap.debuggee.torch_api.code_objects.dynamo_names import shown_names
from dynamo_dap.debuggee.torch_api.compiles.compile_records import Statement
from dynamo_dap.debuggee.values.model import (
    EvaluationError,
    Fixed,
    Location,
    ScopeOfFrame,
    Value,
    Variable,
    VirtualSource,
)
from dynamo_dap.protocol.requests.contract import INSTRUCTIONS, STATEMENTS
from dynamo_dap.protocol.wire.types import CompletionItem

_OF_LISTING = re.compile(r"__listing__\[(\d+)\]")


class Phase(Enum):
    """Where a frame is, relative to its current instruction."""

    BEFORE = "before"
    """The instruction runs next: the stack is complete."""
    INSIDE = "inside"
    """The instruction is running: a call, whose operands are in use."""
    RAISED = "raised"
    """The instruction has raised: the operands are gone."""


@dataclass(slots=True)
class RunningFrame:
    """A frame of generated code and its position, read on the frame's own thread."""

    generated: GeneratedCode
    frame: types.FrameType
    index: int
    phase: Phase = Phase.BEFORE
    operands: tuple[Any, ...] | None = None
    """The operands of an instruction that raised, if they were kept."""
    returned: tuple[str, object] | None = None
    """Name and returned value of the frame that a step has just left."""
    statement: Statement | None = None
    """The user's statement whose breakpoint stopped here, if one group of instructions executes several statements."""


class GeneratedFrame(Frame):
    """A frame of generated code, at its instruction in the listing."""

    is_writable = True
    _folds_temporaries = False
    """Whether a group hides Dynamo's temporaries. False here: compiler engineers read these frames."""

    def __init__(self, running: RunningFrame, console: Callable[[str], None]) -> None:
        """Show ``running``; the output of expressions goes to ``console``."""
        # Conditions are evaluated in such a frame at every instruction: compute everything lazily.
        self._running = running
        self._console = console
        self._scratch: dict[str, object] = {}

    @cached_property
    def _values(self) -> FrameValues:
        running = self._running
        values = FrameValues(running.generated, running.frame, running.index, is_whole=running.phase is Phase.BEFORE)
        values.operands = running.operands
        return values

    @property
    def instruction_pointer_reference(self) -> str | None:  # type: ignore[override]  # read-only here
        """The address of the current instruction."""
        return self._running.generated.reference(self._running.index)

    @property
    def name(self) -> str:
        """Names the function and its compiled version: ``fn (generated #0)``."""
        return self._running.generated.name

    @property
    def source(self) -> str | VirtualSource | None:
        """The annotated listing."""
        return listing_source(self._running.generated)

    @property
    def position(self) -> Position:
        """The line of the current instruction in the listing."""
        return Position(self._running.generated.document().line_of(self._running.index))

    def scopes(self) -> Sequence[ScopeOfFrame]:
        """Return the scopes with the real state."""
        running, folds = self._running, self._folds_temporaries
        return scopes_of(running.generated, self._values, running.returned, folds_temporaries=folds)

    def evaluate(self, expression: str, context: str) -> Value:
        """Evaluate over locals, globals and ``__stack__``; ``__listing__[7]`` explains a line of the listing."""
        asked = _OF_LISTING.fullmatch(expression.strip())
        if asked is not None:
            return self._explained(int(asked[1]))
        return evaluation.evaluate(self._values, self._scratch, expression, context, self._console)

    def _explained(self, line: int) -> Value:
        explanation = self._running.generated.document().explanation(line)
        if explanation is None:
            raise EvaluationError(f"line {line} of the listing shows no instruction")
        below = [Variable("whole", Value(explanation.text))]
        for statement in explanation.purpose.statements:
            where = f"{os.path.basename(statement.path)}:{statement.line}"
            below.append(
                Variable(
                    where, Value(without_comment(statement.text), location=Location(statement.path, statement.line))
                )
            )
        below += [Variable(str(number), Value(text)) for number, text in enumerate(explanation.instructions, 1)]
        return Value(shown_names(explanation.purpose.title), children=Fixed(tuple(below)), kind="virtual")

    def is_true(self, expression: str) -> bool:
        """Evaluate a condition."""
        return evaluation.is_true(self._values, expression)

    def write(self, expression: str, value: str) -> Value:
        """Assign to a local, a slot ``__stack__[i]``, or an attribute or item of an expression's value."""
        return evaluation.assign(self._values, expression, value)

    def completions(self, text: str, column: int) -> Sequence[CompletionItem]:
        """Complete names and attributes."""
        return complete_python(text, column, {**self._values.frame.f_globals, **self._values.locals(), "__stack__": []})


class UserFrame(GeneratedFrame):
    """The same frame, at the user's line of the current instruction."""

    _folds_temporaries = True

    def __init__(self, running: RunningFrame, console: Callable[[str], None]) -> None:
        """Show the frame like ``GeneratedFrame``."""
        super().__init__(running, console)
        self.is_user_code = is_user_file(running.generated.path)
        continued = running.generated.continued_line(running.index)
        statement = running.statement or running.generated.listing.statement_at(running.index)
        if continued is not None:
            statement = None
        self._path = statement.path if statement is not None else running.generated.path
        line = statement.line if statement is not None else running.generated.listing.user_line(running.index)
        self._line = line or 1

    @property
    def name(self) -> str:
        """The user's function."""
        return self._running.generated.user_name

    @property
    def source(self) -> str | VirtualSource | None:
        """The user's file."""
        return self._path

    @property
    def position(self) -> Position:
        """The user's line of the running statement, else the code's own line."""
        return Position(self._line)


_SHOWN_AS = {STATEMENTS: (".py", "text/x-python"), INSTRUCTIONS: (".dynamo", "text/x-python-bytecode")}
"""By form of the listing: the suffix of the document's name, and its MIME type for editors."""


def listing_source(generated: GeneratedCode, form: str | None = None) -> VirtualSource:
    """Return a listing of ``generated`` as a document, by default in the present form."""
    form = form or generated.form
    suffix, mime_type = _SHOWN_AS[form]
    return VirtualSource(
        name=f"{generated.function} #{generated.number}{suffix}",
        text=made_once(lambda: generated.document(form).text()),
        mime_type=mime_type,
        key=("generated code", generated.number, form),
    )
