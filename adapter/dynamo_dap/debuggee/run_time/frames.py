"""Frames of generated code as a stopped thread shows them.

Made on the held thread; each dies with its pause. A frame on top is shown twice: in its annotated listing, and (the
next frame of the stack) at the line of the user's file that its instruction is about.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property, partial

from dynamo_dap.debuggee.agent.eager_expressions import complete_python
from dynamo_dap.debuggee.agent.frames import Frame, Position
from dynamo_dap.debuggee.agent.user_code import is_user_file
from dynamo_dap.debuggee.run_time import evaluation
from dynamo_dap.debuggee.run_time.frame_values import FrameValues
from dynamo_dap.debuggee.run_time.generated import GeneratedCode
from dynamo_dap.debuggee.run_time.place import Moment, Place
from dynamo_dap.debuggee.run_time.scopes import scopes_of
from dynamo_dap.debuggee.values.model import ScopeOfFrame, Value, VirtualSource
from dynamo_dap.protocol.types import CompletionItem


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
        return Position(self._place.index + 1)

    def scopes(self) -> Sequence[ScopeOfFrame]:
        """The real state."""
        place, folds = self._place, self._folds_temporaries
        return scopes_of(place.generated, self._values, place.returned, folds_temporaries=folds)

    def evaluate(self, expression: str, context: str) -> Value:
        """Evaluate over locals, globals and ``__stack__``."""
        return evaluation.evaluate(self._values, self._scratch, expression, context, self._console)

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


def _listing_text(generated: GeneratedCode) -> str:
    return generated.listing.text()


def listing_source(generated: GeneratedCode) -> VirtualSource:
    """Return the annotated listing of ``generated`` as a document."""
    return VirtualSource(
        name=f"{generated.function} #{generated.number}.dynamo",
        text=partial(_listing_text, generated),
        mime_type="text/x-python-bytecode",
        key=("generated code", generated.number),
    )
