"""Frames of generated code as a stopped thread shows them.

Made on the held thread; each dies with its pause. A frame on top is shown twice: in its annotated listing, and (the
next frame of the stack) at the line of the user's file that its instruction is about.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from functools import cached_property

from dynamo_dap.debuggee.agent.eager_expressions import complete_python
from dynamo_dap.debuggee.agent.frames import Frame, Position
from dynamo_dap.debuggee.agent.user_code import is_user_file
from dynamo_dap.debuggee.run_time import evaluation
from dynamo_dap.debuggee.run_time.frame_values import FrameValues
from dynamo_dap.debuggee.run_time.generated import GeneratedCode
from dynamo_dap.debuggee.run_time.place import Moment, Place
from dynamo_dap.debuggee.run_time.purpose import without_comment
from dynamo_dap.debuggee.run_time.scopes import scopes_of
from dynamo_dap.debuggee.torch_internals.dynamo_names import shown_names
from dynamo_dap.debuggee.values.model import (
    EvaluationError,
    Fixed,
    Location,
    ScopeOfFrame,
    Value,
    Variable,
    VirtualSource,
)
from dynamo_dap.protocol.contract import INSTRUCTIONS, STATEMENTS
from dynamo_dap.protocol.types import CompletionItem

_OF_LISTING = re.compile(r"__listing__\[(\d+)\]")


class GeneratedFrame(Frame):
    """A frame of generated code, at its instruction in the listing."""

    is_writable = True
    _folds_temporaries = False
    """Here a compiler's engineer looks at them."""

    def __init__(self, place: Place, console: Callable[[str], None]) -> None:
        """What expressions print goes to ``console``."""
        # Conditions are evaluated in such a frame at every instruction: nothing is made before it is needed.
        self._place = place
        self._console = console
        self._scratch: dict[str, object] = {}

    @cached_property
    def _values(self) -> FrameValues:
        place = self._place
        values = FrameValues(place.generated, place.frame, place.index, is_whole=place.moment is Moment.BEFORE)
        values.operands = place.operands
        return values

    @property
    def instruction_pointer_reference(self) -> str | None:  # type: ignore[override]
        """The address of the current instruction."""
        return self._place.generated.reference(self._place.index)

    @property
    def name(self) -> str:
        """``fn (generated #0)``."""
        return self._place.generated.name

    @property
    def source(self) -> str | VirtualSource | None:
        """The annotated listing."""
        return listing_source(self._place.generated)

    @property
    def position(self) -> Position:
        """The line of the current instruction in the listing."""
        return Position(self._place.generated.document().line_of(self._place.index))

    def scopes(self) -> Sequence[ScopeOfFrame]:
        """The real state."""
        place, folds = self._place, self._folds_temporaries
        return scopes_of(place.generated, self._values, place.returned, folds_temporaries=folds)

    def evaluate(self, expression: str, context: str) -> Value:
        """Evaluate over locals, globals and ``__stack__``; ``__listing__[7]`` explains a line of the listing."""
        asked = _OF_LISTING.fullmatch(expression.strip())
        if asked is not None:
            return self._explained(int(asked[1]))
        return evaluation.evaluate(self._values, self._scratch, expression, context, self._console)

    def _explained(self, line: int) -> Value:
        told = self._place.generated.document().told(line)
        if told is None:
            raise EvaluationError(f"line {line} of the listing shows no instruction")
        below = [Variable("whole", Value(told.text))]
        for one in told.purpose.statements:
            where = f"{os.path.basename(one.path)}:{one.line}"
            below.append(Variable(where, Value(without_comment(one.text), location=Location(one.path, one.line))))
        below += [Variable(str(number), Value(text)) for number, text in enumerate(told.instructions, 1)]
        return Value(shown_names(told.purpose.title), children=Fixed(tuple(below)), kind="virtual")

    def is_true(self, expression: str) -> bool:
        """Evaluate a condition."""
        return evaluation.is_true(self._values, expression)

    def write(self, expression: str, value: str) -> Value:
        """Assign to a local, a slot ``__stack__[i]``, or an attribute or item of what an expression gives."""
        return evaluation.assign(self._values, expression, value)

    def completions(self, text: str, column: int) -> Sequence[CompletionItem]:
        """Complete names and attributes."""
        return complete_python(text, column, {**self._values.frame.f_globals, **self._values.locals(), "__stack__": []})


class UserFrame(GeneratedFrame):
    """The same frame, at the line of the user's file that the current instruction is about."""

    _folds_temporaries = True

    def __init__(self, place: Place, console: Callable[[str], None]) -> None:
        """As ``GeneratedFrame``."""
        super().__init__(place, console)
        self.is_user_code = is_user_file(place.generated.path)
        statement = place.statement or place.generated.listing.statement_at(place.index)
        self._path = statement.path if statement is not None else place.generated.path
        line = statement.line if statement is not None else place.generated.listing.user_line(place.index)
        self._line = line or 1

    @property
    def name(self) -> str:
        """The user's function."""
        return self._place.generated.user_name

    @property
    def source(self) -> str | VirtualSource | None:
        """The user's file."""
        return self._path

    @property
    def position(self) -> Position:
        """The line of the statement that is carried out, else the line that the code carries."""
        return Position(self._line)


_SHOWN_AS = {STATEMENTS: (".py", "text/x-python"), INSTRUCTIONS: (".dynamo", "text/x-python-bytecode")}
"""Suffix of the name, and what editors take it for."""


def listing_source(generated: GeneratedCode, form: str | None = None) -> VirtualSource:
    """Return a listing of ``generated`` as a document, in the form that is shown now, if none is given."""
    form = form or generated.form
    suffix, mime_type = _SHOWN_AS[form]
    return VirtualSource(
        name=f"{generated.function} #{generated.number}{suffix}",
        text=lambda: generated.document(form).text(),
        mime_type=mime_type,
        key=("generated code", generated.number, form),
    )
