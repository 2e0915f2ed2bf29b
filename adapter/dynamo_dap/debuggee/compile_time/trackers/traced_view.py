"""How values look inside a trace: a tracker as what it stands for, a real object with its pending changes laid over.

Made for one pause; runs on the tracing thread. Nothing here realizes a lazy tracker, adds a guard or a node.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from dynamo_dap.debuggee.compile_time.trackers import form_children, form_texts
from dynamo_dap.debuggee.compile_time.trackers.stand_ins import form_behind, is_stand_in
from dynamo_dap.debuggee.compile_time.trackers.tracker_facts import tracker_facts
from dynamo_dap.debuggee.torch_internals.side_effects import tracker_of_object
from dynamo_dap.debuggee.torch_internals.symbols import is_symbolic
from dynamo_dap.debuggee.torch_internals.tensor_facts import is_fake_tensor, kind_of
from dynamo_dap.debuggee.torch_internals.trackers import form_of
from dynamo_dap.debuggee.torch_internals.trackers.forms import (
    CellForm,
    Composite,
    Form,
    FunctionForm,
    InstanceForm,
    Known,
    NumberForm,
    TensorForm,
    Unrealized,
)
from dynamo_dap.debuggee.torch_internals.variable_trackers import is_tracker, unwrapped
from dynamo_dap.debuggee.values.callables import location_of_callable, location_of_code
from dynamo_dap.debuggee.values.families import DEPTH_OF_PREVIEW
from dynamo_dap.debuggee.values.model import (
    MAXIMUM_TEXT,
    Children,
    Interrupted,
    Location,
    Value,
    Variable,
    bounded_text,
    text_of_raised,
)
from dynamo_dap.debuggee.values.python_values import View, family_of

_SCALARS: frozenset[type] = frozenset({int, float, complex, bool, str, bytes, type(None)})
"""Types of objects that Dynamo keeps by value: never tracked by identity."""


UNREALIZED = " (unrealized)"
"""Behind the text of a value that the traced code has not used yet."""


class TracedView(View):
    """Values as the paused translator sees them."""

    def __init__(self, tx: Any) -> None:
        """``tx`` is the translator of the frame."""
        self.tx = tx

    def value(self, value: object, expression: str | None = None) -> Value:
        """Return a tracker, a form, or a real object as it is shown."""
        if is_tracker(value):
            return self._guarded(value, lambda: self._tracker(value, expression))
        if isinstance(value, Form):
            return self._guarded(value, lambda: self.of_form(value, expression))
        tracker = self.tracker_for(value)
        if tracker is not None:
            return self._guarded(value, lambda: self._tracker(tracker, expression))
        form = symbolic_form(value)
        if form is not None:
            return self._guarded(value, lambda: self.of_form(form, expression))
        return super().value(value, expression)

    def text(self, value: object, room: int = MAXIMUM_TEXT, depth: int = DEPTH_OF_PREVIEW) -> str:
        """Return the text alone."""
        try:
            return bounded_text(self._text(value, room, depth), max(room, 1))
        except Interrupted:
            raise
        except BaseException as problem:  # noqa: BLE001 - one broken tracker must not hide its neighbours
            return f"<{type(value).__name__}: {type(problem).__name__}>"

    def tracker_for(self, value: object) -> Any:
        """Return the tracker that Dynamo keeps for a real object; None for scalars and what it has not met."""
        if type(value) in _SCALARS:
            return None
        tracker = tracker_of_object(self.tx, value)
        return tracker if tracker is not None and is_tracker(tracker) else None

    def of_form(self, form: Form, expression: str | None = None) -> Value:
        """Return a form as it is shown."""
        if isinstance(form, CellForm):
            return Value("<empty cell>") if form.contents is None else self.value(form.contents, expression)
        if isinstance(form, Known | Unrealized):
            shown = family_of(form.value).present(form.value, expression, self)
            if isinstance(form, Known):
                return shown
            text = shown.text + UNREALIZED
            return Value(text, shown.type_name, shown.children, shown.kind, location=shown.location)
        return Value(
            text=bounded_text(form_texts.text(form, form_texts.room_of(form), DEPTH_OF_PREVIEW, self)),
            type_name=form_texts.type_name(form),
            children=form_children.children(form, expression, self),
            kind=_kind(form),
            location=_location(form),
        )

    def _text(self, value: object, room: int, depth: int) -> str:
        if isinstance(value, Form):
            return form_texts.text(value, room, depth, self)
        tracker = value if is_tracker(value) else self.tracker_for(value)
        if tracker is None:
            form = symbolic_form(value)
            if form is not None:
                return form_texts.text(form, room, depth, self)
            return family_of(value).text(value, room, depth, self)
        return form_texts.text(form_of(self.tx, tracker), room, depth, self)

    def _tracker(self, tracker: Any, expression: str | None) -> Value:
        form = form_of(self.tx, tracker)
        shown = self.of_form(form, expression)
        facts = tracker_facts(unwrapped(tracker), form)
        if not facts:
            return shown
        children = Followed(shown.children, facts)
        return Value(shown.text, shown.type_name, children, shown.kind, shown.attributes, location=shown.location)

    def _guarded(self, value: object, make: Callable[[], Value]) -> Value:
        try:
            return make()
        except Interrupted:
            raise
        except BaseException as problem:  # noqa: BLE001 - one broken tracker must not hide its neighbours
            return Value(f"<{type(value).__name__}: cannot be shown ({text_of_raised(problem)})>")


class Followed(Children):
    """Children of a value, and behind them what Dynamo knows about it."""

    def __init__(self, children: Children | None, facts: Sequence[Variable]) -> None:
        """``facts`` stand after the named children."""
        self._children = children
        self._facts = facts

    @property
    def named_count(self) -> int:
        """How many named children there are, the facts included."""
        return (self._children.named_count if self._children else 0) + len(self._facts)

    @property
    def indexed_count(self) -> int:
        """How many indexed children there are."""
        return self._children.indexed_count if self._children else 0

    def named(self) -> Sequence[Variable]:
        """Return the value's own children, then the facts."""
        return [*(self._children.named() if self._children else ()), *self._facts]

    def indexed(self, start: int, count: int) -> Sequence[Variable]:
        """Return one page of indexed children."""
        return self._children.indexed(start, count) if self._children else ()


def symbolic_form(value: object) -> Form | None:
    """Return the form of a SymInt or FakeTensor that an expression computed, or of a stand-in; None for others."""
    if is_symbolic(value):
        return NumberForm(value, None)
    if is_stand_in(value):
        return form_behind(value)
    return TensorForm(value, None, kind_of(value)) if is_fake_tensor(value) else None


def _kind(form: Form) -> str | None:
    if isinstance(form, FunctionForm):
        return "method"
    return "data" if isinstance(form, TensorForm | NumberForm) else None


def _location(form: Form) -> Location | None:
    if isinstance(form, FunctionForm):
        return location_of_code(form.code)
    if isinstance(form, Composite) and form.code is not None:
        return location_of_code(form.code)
    if isinstance(form, Composite) and form.type_name == "function" and form.after:
        return location_of_callable(form.after[0])
    return family_of(form.value).location(form.value) if isinstance(form, InstanceForm) else None


def present_tracker(tx: Any, tracker: Any, expression: str | None = None) -> Value:
    """Return what ``tracker`` stands for, as it is shown; ``expression`` gives it again in a watch."""
    return TracedView(tx).value(tracker, expression)
