"""Converts trackers to Python values with which an expression can compute.

Constants stay as they are, and containers are copied. Tensors become FakeTensors and symbols SymInts, or both become
the real values of this call. An object of a user's class is used as it is. But if the traced code changed it or an
object inside it, its methods would see the old values. Then the changed object and all objects that lead to it are
copied, with the pending changes applied. A value that only Dynamo models (an iterator, a context manager) becomes a
placeholder that cannot be advanced or entered. Runs on the tracing thread; a converter lives as long as one evaluation.
"""

from __future__ import annotations

import collections
import functools
import types
from collections.abc import Iterator
from typing import Any

from dynamo_dap.debuggee.bytecode.exact_types import is_a, is_exactly
from dynamo_dap.debuggee.torch_api.graphs.graph_runs import NoRealValue
from dynamo_dap.debuggee.torch_api.graphs.tensor_facts import is_tensor
from dynamo_dap.debuggee.torch_api.objects import Tensor
from dynamo_dap.debuggee.torch_api.traced.symbols import hint_of
from dynamo_dap.debuggee.torch_api.traced.trackers.forms import Form, InstanceForm, NumberForm, TensorForm, is_form
from dynamo_dap.debuggee.torch_api.traced.variable_trackers import Tracker, mutation_state
from dynamo_dap.debuggee.trace.forms import form_family, instance_attributes
from dynamo_dap.debuggee.trace.placeholders import placeholder
from dynamo_dap.debuggee.trace.traced_view import TracedView
from dynamo_dap.debuggee.values.model import EvaluationError
from dynamo_dap.debuggee.values.objects import stored_attributes
from dynamo_dap.debuggee.values.type_facts import instance_dictionary, is_python_class, name_of, qualified_name_of

_COPIED: tuple[type, ...] = (list, dict, set, tuple, collections.deque)
_MOST_ITEMS = 10_000
"""Real containers with more items are not copied."""
_MOST_OBJECTS = 50_000
"""How many objects are searched for changes. A bigger structure is refused: it might be shown with old values."""


class CannotBeCopied(EvaluationError):
    """Raised if an object cannot be copied without running code of its class; the text says so."""


class Converter:
    """Converts the values of one paused frame. Two conversions of one tracker give the same object."""

    def __init__(self, view: TracedView, *, real: bool = False) -> None:
        """Use ``view`` to show values that cannot be converted. With ``real``, convert to this call's data."""
        self._real_data = real
        self._frame = view.frame
        self._view = view
        self._converted: dict[int, object] = {}
        self._kept: list[object] = []
        self._origins: dict[int, object] = {}
        self._copies: list[tuple[object, list[int]]] = []
        self._leading: dict[int, bool] = {}
        self.why_not_proven: str | None = None
        """Why the program's call may compute other data than it was converted to; None if it cannot."""

    @functools.cached_property
    def _changed(self) -> frozenset[int]:
        return self._frame.changed_objects()

    def convert(self, value: object) -> Any:
        """Return the Python value of a tracker, a form, or a real object.

        Raises:
            EvaluationError: the value has none; the text says why.
        """
        if is_form(value):
            return form_family(value).converted(value, None, self)
        tracker = self._frame.tracker_of(value)
        if tracker is None:
            return self.real(value)
        if id(tracker) in self._converted:
            return self._converted[id(tracker)]
        self._kept.append(tracker)
        form = self._frame.form_of(tracker)
        return self.remember(tracker, form_family(form).converted(form, tracker, self))

    def origin_of(self, value: object) -> Tracker | None:
        """Return the tracker that ``value`` was converted from; None for a value that the expression made."""
        return self._origins.get(id(value))

    def check_unchanged(self) -> None:
        """Check that the expression has not changed a copy of the program's object.

        Raises:
            EvaluationError: it has changed one.
        """
        for copied, marks in self._copies:
            if _marks(copied) != marks:
                raise EvaluationError(
                    f"this changed a copy of the program's {name_of(type(copied))}: "
                    "the program's own objects cannot be changed while tracing"
                )

    # -- what forms convert themselves with: see ``forms.Conversion`` ----------------------------------------------

    def copied(self, container: object) -> object:
        """Note that ``container`` is a copy, complete now."""
        self._copies.append((container, _marks(container)))
        return container

    def remember(self, tracker: Tracker | None, value: object) -> Any:
        """Note the value of ``tracker``."""
        if tracker is not None:
            self._converted[id(tracker)] = value
            if not _is_shared(value):
                self._origins[id(value)] = tracker
                self._kept.append(value)
        return value

    def globals_of(self, tracker: Tracker | None) -> dict[str, object]:
        """Return the globals of a function that the traced code made."""
        return self._frame.globals_of_function(tracker)

    def text(self, form: Form) -> str:
        """Return a form's text for a message."""
        return self._view.text(form, 80)

    def computed(self, form: TensorForm | NumberForm) -> object:
        """Return the FakeTensor or symbol of a value of the graph, or the real value of this call."""
        symbolic = form.example if isinstance(form, TensorForm) else form.number
        if not self._real_data:
            return symbolic
        if form.node is None:
            return hint_of(symbolic) if isinstance(form, NumberForm) else symbolic
        try:
            value = self._frame.real_value(form.node)
        except NoRealValue as problem:
            raise EvaluationError(str(problem)) from None
        self.why_not_proven = self.why_not_proven or self._frame.why_not_proven(form.node)
        return value.detach() if isinstance(form, TensorForm) else value

    def placeholder(self, form: Form, cls: type) -> object:
        """Return the placeholder of a value that only Dynamo has."""
        return placeholder(form, cls, self.text(form))

    def real(self, value: object) -> object:
        """Return a real object; a copy with the changes if something inside it was changed."""
        if is_exactly(value, _COPIED):
            return self._copied(value)
        if is_tensor(value):
            return self._as_written(value)
        if not self._changed or not _can_hold(value) or not self._leads_to_change(value):
            return value
        try:
            return self._copy(self._frame.instance_form(value), None)
        except CannotBeCopied:
            return self.placeholder(InstanceForm(value, type(value)), type(value))

    def _as_written(self, tensor: Tensor) -> object:
        try:
            return self._frame.as_written(tensor)
        except NoRealValue as problem:
            raise EvaluationError(str(problem)) from None

    def instance(self, form: InstanceForm, tracker: Tracker | None) -> object:
        """Return the object of a form; a copy if the traced code made or changed it."""
        made = tracker is not None and mutation_state(tracker) == "new"
        if not made and not (self._changed and self._leads_to_change(form.value)):
            return form.value
        try:
            return self._copy(form, tracker) if form.contents is None else self._copied_container(form, tracker)
        except CannotBeCopied:
            return self.placeholder(form, form.cls)

    # -- copies ----------------------------------------------------------------------------------------------------

    def _copied(self, value: Any) -> object:
        """Return a copy of a builtin container, with its contents converted."""
        known = self._converted.get(id(value))
        if known is not None:
            return known
        kind = type(value)
        if len(value) > _MOST_ITEMS:
            return value
        self._kept.append(value)
        if kind is tuple:
            return tuple(self.convert(item) for item in value)
        if kind is set:
            return self.copied({self.convert(item) for item in value})
        copied: Any = kind(maxlen=value.maxlen) if kind is collections.deque else kind()
        self._converted[id(value)] = copied
        if kind is dict:
            copied.update({key: self.convert(item) for key, item in dict.items(value)})
        else:
            copied.extend(self.convert(item) for item in list(value))
        return self.copied(copied)

    def _copy(self, form: InstanceForm, tracker: Tracker | None) -> object:
        value = form.value
        if id(value) in self._converted:
            return self._converted[id(value)]
        self._kept.append(value)
        if type(value) is types.FunctionType:
            return self._copied_function(value)
        if type(value) is types.MethodType:
            return types.MethodType(value.__func__, self.convert(value.__self__))
        copied = self._converted[id(value)] = _empty_like(value)
        self.remember(tracker, copied)
        attributes = instance_attributes(form)
        registries = _registries(value)
        for name, registry in registries.items():
            object.__setattr__(copied, name, {key: self.convert(attributes.get(key)) for key in registry})
        in_registry = {key for registry in registries.values() for key in registry}
        left = {name: each for name, each in attributes.items() if name not in in_registry and name not in registries}
        self._set_attributes(copied, left)
        return copied

    def _copied_container(self, form: InstanceForm, tracker: Tracker | None) -> object:
        base: Any = next((base for base in (dict, list, set, frozenset, tuple) if issubclass(form.cls, base)), None)
        items = self.convert(form.contents)
        if base in (tuple, frozenset):
            return base.__new__(form.cls, items)
        if base is None or form.cls.__new__ not in (dict.__new__, list.__new__, set.__new__, object.__new__):
            raise CannotBeCopied(f"a {qualified_name_of(form.cls)} cannot be copied to apply its pending changes")
        copied = self.remember(tracker, base.__new__(form.cls))
        (base.extend if base is list else base.update)(copied, items)
        self._set_attributes(copied, instance_attributes(form))
        return copied

    def _set_attributes(self, copied: object, attributes: dict[str, object]) -> None:
        for name, attribute in attributes.items():
            try:
                value = self.convert(attribute)
            except EvaluationError as problem:
                value = _Unavailable(str(problem))
            object.__setattr__(copied, name, value)

    def _copied_function(self, value: types.FunctionType) -> types.FunctionType:
        cells = tuple(types.CellType() for _ in value.__closure__ or ())
        copied = types.FunctionType(value.__code__, value.__globals__, value.__name__, value.__defaults__, cells)
        copied.__kwdefaults__ = value.__kwdefaults__
        copied.__qualname__ = value.__qualname__
        self._converted[id(value)] = copied
        for cell, original in zip(cells, value.__closure__ or (), strict=True):
            try:
                cell.cell_contents = self.convert(original)
            except (ValueError, EvaluationError):
                continue
        return copied

    def _leads_to_change(self, value: object) -> bool:
        """Return whether a changed object is reachable from ``value``: a walk over stored attributes and containers."""
        if id(value) in self._leading:
            return self._leading[id(value)]
        leads = False
        seen: dict[int, object] = {id(value): value}
        pending = [value]
        while pending and not leads:
            each = pending.pop()
            if id(each) in self._changed:
                leads = True
            for below in _held_by(each):
                if id(below) not in seen and (_can_hold(below) or id(below) in self._changed):
                    seen[id(below)] = below
                    pending.append(below)
            if len(seen) > _MOST_OBJECTS:
                raise EvaluationError(
                    f"the {qualified_name_of(type(value))} is too big to be copied with the changes of the traced code"
                )
        self._kept.append(value)
        self._leading[id(value)] = leads
        return leads


class _Unavailable:
    """Replaces an attribute of a copied object that has no value while tracing."""

    def __init__(self, reason: str) -> None:
        self.reason = reason


def _marks(container: Any) -> list[int]:
    """Return a container's contents, by identity."""
    if is_a(container, dict):
        return [id(each) for pair in dict.items(container) for each in pair]
    return [id(each) for each in container]


def _is_shared(value: object) -> bool:
    """Return whether Python may share one object for many values, so that its identity proves no origin."""
    return value is None or is_exactly(value, (int, float, bool, str, bytes, complex, tuple, frozenset))


def _can_hold(value: object) -> bool:
    """Return whether ``value`` may contain objects that the traced code can change."""
    if is_exactly(value, (list, dict, set, tuple, types.FunctionType, types.MethodType, types.CellType)):
        return True
    return is_python_class(type(value)) and not is_a(value, type) and not is_a(value, types.ModuleType)


def _held_by(value: Any) -> Iterator[object]:
    kind = type(value)
    if kind is types.FunctionType:
        yield from value.__closure__ or ()
        return
    if kind is types.MethodType:
        yield value.__self__
        return
    base = next((each for each in (dict, list, tuple, set, frozenset) if is_a(value, each)), None)
    if base is dict:
        yield from list(dict.values(value))
    elif base is not None:
        yield from list(base.__iter__(value))
    elif kind is types.CellType:
        try:
            yield value.cell_contents
        except ValueError:
            return
    for _, attribute in stored_attributes(value):
        yield attribute


def _empty_like(value: object) -> object:
    try:
        return object.__new__(type(value))
    except TypeError:
        name = qualified_name_of(type(value))
        raise CannotBeCopied(f"a {name} cannot be copied to apply the changes of the traced code") from None


def _registries(value: object) -> dict[str, dict[str, object]]:
    """Return the registries of an ``nn.Module``; empty for other objects."""
    stored = instance_dictionary(value)
    if "_parameters" not in stored or "_modules" not in stored:
        return {}
    return {name: dict(stored.get(name) or {}) for name in ("_parameters", "_buffers", "_modules")}
