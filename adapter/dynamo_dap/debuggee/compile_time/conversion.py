"""Trackers as Python values that an expression can compute with.

Constants are themselves; tensors are their FakeTensors; symbols are SymInts; containers are copies. An object of a
user's class is itself, unless the traced code changed it or something it holds: then a copy with the changes. What
Dynamo only models (an iterator, a context manager) has a stand-in that cannot be used up. Tracing thread; a converter
lives as long as one evaluation.
"""

from __future__ import annotations

import collections
import types
from collections.abc import Callable
from typing import Any

from dynamo_dap.debuggee.compile_time.overlay import CannotBeCopied, Overlay
from dynamo_dap.debuggee.compile_time.trackers.stand_ins import stand_in
from dynamo_dap.debuggee.compile_time.trackers.traced_view import TracedView
from dynamo_dap.debuggee.torch_internals.trackers import form_of
from dynamo_dap.debuggee.torch_internals.trackers.containers import constant_of
from dynamo_dap.debuggee.torch_internals.trackers.forms import (
    CellForm,
    Composite,
    Form,
    FunctionForm,
    InstanceForm,
    Known,
    MappingForm,
    NumberForm,
    SequenceForm,
    SetForm,
    TensorForm,
    Unrealized,
)
from dynamo_dap.debuggee.torch_internals.variable_trackers import class_of, field, is_tracker, unwrapped
from dynamo_dap.debuggee.values.model import EvaluationError

_COPIED: tuple[type, ...] = (list, dict, set, tuple, collections.deque)


class EmptyCell(EvaluationError):
    """A closure's variable has no value yet."""


class Converter:
    """Converts what one paused frame holds; the same tracker always to the same value."""

    def __init__(self, tx: Any, view: TracedView) -> None:
        """``view`` tells what Dynamo tracks."""
        self._tx = tx
        self._view = view
        self._converted: dict[int, Any] = {}
        self._kept: list[Any] = []
        self._origins: dict[int, Any] = {}
        self._overlay = Overlay(tx, view)
        self._copies: list[tuple[Any, list[int]]] = []

    def convert(self, value: Any) -> Any:
        """Return the Python value of a tracker, a form, or a real object.

        Raises:
            EvaluationError: it has none; the text says why.
        """
        if isinstance(value, Form):
            return self._of_form(value, None)
        tracker = unwrapped(value) if is_tracker(value) else self._view.tracker_for(value)
        if tracker is None:
            return self._real(value)
        if id(tracker) in self._converted:
            return self._converted[id(tracker)]
        self._kept.append(tracker)
        return self._remember(tracker, self._of_form(form_of(self._tx, tracker), tracker))

    def origin_of(self, value: object) -> Any:
        """Return the tracker that ``value`` was converted from; None for what the expression made."""
        return self._origins.get(id(value))

    def check_unchanged(self) -> None:
        """See that the expression did not change a copy, expecting to change the program's object.

        Raises:
            EvaluationError: it did.
        """
        for copied, marks in self._copies:
            if _marks(copied) != marks:
                raise EvaluationError(
                    f"this changed a copy of the program's {type(copied).__name__}: "
                    "the program's own objects cannot be changed while tracing"
                )

    def copied(self, container: Any) -> Any:
        """Note that ``container`` is a copy, complete now."""
        self._copies.append((container, _marks(container)))
        return container

    def begin(self, tracker: Any, value: Any) -> Any:
        """Remember ``value`` for ``tracker`` before its contents are converted: what it holds may hold it."""
        return self._remember(tracker, value)

    def _remember(self, tracker: Any, value: Any) -> Any:
        if tracker is not None:
            self._converted[id(tracker)] = value
            if not _is_shared(value):
                self._origins[id(value)] = tracker
                self._kept.append(value)
        return value

    def _of_form(self, form: Form, tracker: Any) -> Any:
        return _CONVERSIONS[type(form)](self, form, tracker)

    def _real(self, value: Any) -> Any:
        if type(value) in _COPIED:
            return self._copied(value)
        try:
            return self._overlay.laid_over(value, self)
        except CannotBeCopied:
            return self._stand_in(InstanceForm(value, type(value)), type(value))

    def _known(self, form: Known | Unrealized, tracker: Any) -> Any:
        value = form.value
        if type(value).__name__ == "LazySymNodeFormatString":
            raise EvaluationError("a string that is formatted when the graph has run has no value yet")
        return self._real(value)

    def _copied(self, value: Any) -> Any:
        """Return a copy of a builtin container, with what it holds converted."""
        found = self._converted.get(id(value))
        if found is not None:
            return found
        kind = type(value)
        if len(value) > _MOST_ITEMS:
            return value
        self._kept.append(value)
        if kind is tuple:
            return tuple(self.convert(item) for item in value)
        if kind is set:
            return self.copied({self.convert(item) for item in value})
        if kind is dict:
            copied: Any = {}
            self._converted[id(value)] = copied
            copied.update({key: self.convert(item) for key, item in dict.items(value)})
            return self.copied(copied)
        copied = kind() if kind is list else kind(maxlen=value.maxlen)
        self._converted[id(value)] = copied
        copied.extend(self.convert(item) for item in list(value))
        return self.copied(copied)

    def _tensor(self, form: TensorForm, tracker: Any) -> Any:
        raw = None if tracker is None else field(tracker, "raw_value")
        if raw is not None:
            return raw
        if form.example is None:
            raise EvaluationError("this tensor has no metadata yet")
        return form.example

    def _sequence(self, form: SequenceForm, tracker: Any) -> Any:
        if form.type_name in ("list", "deque"):
            items: Any = [] if form.type_name == "list" else collections.deque()
            self.begin(tracker, items)
            items.extend(self.convert(item) for item in form.items)
            return self.copied(items)
        converted = tuple(self.convert(item) for item in form.items)
        if form.cls is not None:
            try:
                return tuple.__new__(form.cls, converted)
            except TypeError:  # a struct sequence, such as torch.return_types.max
                return form.cls(converted)
        make_view = _VIEWS.get(form.type_name)
        return converted if make_view is None else make_view(converted)

    def _set(self, form: SetForm, tracker: Any) -> Any:
        items = {self.convert(item) for item in form.items}
        return frozenset(items) if form.type_name == "frozenset" else self.copied(items)

    def _mapping(self, form: MappingForm, tracker: Any) -> Any:
        items: dict[Any, Any] = collections.OrderedDict() if form.type_name == "OrderedDict" else {}
        self.begin(tracker, items)
        for key, value in form.pairs:
            known, constant = constant_of(key)
            items[constant if known else self.convert(key)] = self.convert(value)
        return self.copied(items)

    def _instance(self, form: InstanceForm, tracker: Any) -> Any:
        try:
            return self._overlay.instance(form, tracker, self)
        except CannotBeCopied:
            return self._stand_in(form, form.cls)

    def _function(self, form: FunctionForm, tracker: Any) -> Any:
        if form.bound_to is not None and form.function is not None:
            return types.MethodType(form.function, self.convert(form.bound_to))
        if form.function is not None:
            return form.function
        return self._made_function(form, tracker)

    def _made_function(self, form: FunctionForm, tracker: Any) -> Any:
        """Return a real function for one that the traced code made, with what its cells hold now."""
        cells = tuple(types.CellType() for _ in form.closure)
        names = field(tracker, "f_globals", self._tx.f_globals) if tracker is not None else self._tx.f_globals
        defaults = None if form.defaults is None else tuple(self.convert(form.defaults))
        function = types.FunctionType(form.code, names, form.name.rpartition(".")[2], defaults, cells)
        self.begin(tracker, function)
        if form.keyword_defaults is not None:
            function.__kwdefaults__ = dict(self.convert(form.keyword_defaults))
        for cell, (_, contents) in zip(cells, form.closure, strict=True):
            self._fill(cell, contents)
        return function

    def _fill(self, cell: types.CellType, contents: Any) -> None:
        try:
            cell.cell_contents = self.convert(contents)
        except EvaluationError as problem:
            if not isinstance(problem, EmptyCell):
                raise

    def _cell(self, form: CellForm, tracker: Any) -> Any:
        if form.contents is None:
            raise EmptyCell("the variable has no value yet")
        return self.convert(form.contents)

    def _composite(self, form: Composite, tracker: Any) -> Any:
        if form.rebuild is not None:
            return form.rebuild(self.convert)
        cls = form.cls or (None if tracker is None else class_of(tracker))
        if cls is None:
            raise EvaluationError(f"{self._view.text(form, 80)} cannot be computed with while tracing")
        return self._stand_in(form, cls)

    def _stand_in(self, form: Form, cls: type) -> object:
        return stand_in(form, cls, self._view.text(form, 80))


_MOST_ITEMS = 10_000
"""Items beyond which a real container of the program is used as it is, not copied."""

_VIEWS: dict[str, Callable[[tuple[Any, ...]], Any]] = {
    "dict_keys": lambda items: dict.fromkeys(items).keys(),
    "dict_values": lambda items: dict(enumerate(items)).values(),
    "dict_items": lambda items: dict(items).items(),
}
"""Make a view of a dictionary of what it shows."""

_CONVERSIONS: dict[type, Callable[[Converter, Any, Any], Any]] = {
    Known: Converter._known,
    Unrealized: Converter._known,
    TensorForm: Converter._tensor,
    NumberForm: lambda converter, form, tracker: form.number,
    SequenceForm: Converter._sequence,
    SetForm: Converter._set,
    MappingForm: Converter._mapping,
    InstanceForm: Converter._instance,
    FunctionForm: Converter._function,
    CellForm: Converter._cell,
    Composite: Converter._composite,
}


def _marks(container: Any) -> list[int]:
    """Return what a container holds, by identity."""
    if isinstance(container, dict):
        return [id(each) for pair in dict.items(container) for each in pair]
    return [id(each) for each in container]


def _is_shared(value: object) -> bool:
    """Whether Python may use one object for many values: its identity says nothing of where it came from."""
    return value is None or type(value) in (int, float, bool, str, bytes, complex, tuple, frozenset)
