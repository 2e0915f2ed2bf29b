"""Real objects with the pending changes of the traced code laid over: copies of what changed, and of what holds it.

Calling a method on the real object would see the old values. An object from which no changed object can be reached is
used as it is. Tracing thread; lives as long as one evaluation.
"""

from __future__ import annotations

import types
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from dynamo_dap.debuggee.compile_time.trackers.form_children import instance_attributes
from dynamo_dap.debuggee.compile_time.trackers.traced_view import TracedView
from dynamo_dap.debuggee.torch_internals.side_effects import changed_objects
from dynamo_dap.debuggee.torch_internals.trackers.forms import Form, InstanceForm
from dynamo_dap.debuggee.torch_internals.variable_trackers import mutation_state
from dynamo_dap.debuggee.values.model import EvaluationError
from dynamo_dap.debuggee.values.objects import stored_attributes
from dynamo_dap.debuggee.values.type_facts import instance_dictionary, is_python_class, qualified_name_of

if TYPE_CHECKING:
    from dynamo_dap.debuggee.compile_time.conversion import Converter

_MOST_OBJECTS = 50_000
"""Objects looked at in search of changed ones; a bigger structure is refused rather than shown with old values."""


class CannotBeCopied(EvaluationError):
    """An object cannot be made without running code of its class; the text says so."""


class Overlay:
    """Lays the pending changes over real objects.

    The converter that converts what the objects hold owns the overlay, and is handed in with each call: a reference
    back would be a cycle, which keeps the program's tensors alive after the pause.
    """

    def __init__(self, tx: Any, view: TracedView) -> None:
        """``view`` tells what Dynamo tracks."""
        self._view = view
        self._changed = changed_objects(tx)
        self._copies: dict[int, Any] = {}
        self._leading: dict[int, bool] = {}
        self._kept: list[Any] = []

    def laid_over(self, value: Any, converter: Converter) -> Any:
        """Return ``value``, or a copy with the changes when something it holds was changed."""
        if not self._changed or not _can_hold(value) or not self._leads_to_change(value):
            return value
        return self._copy(value, converter)

    def instance(self, form: InstanceForm, tracker: Any, converter: Converter) -> Any:
        """Return the object of a form: itself, or a copy when the traced code made or changed it."""
        value = form.value
        made = tracker is not None and mutation_state(tracker) == "new"
        if not made and not (self._changed and self._leads_to_change(value)):
            return value
        if form.contents is not None:
            return self._copied_container(form, tracker, converter)
        return self._copy(value, converter, form, tracker)

    def _leads_to_change(self, value: Any) -> bool:
        """Whether a changed object can be reached from ``value``: a walk over stored attributes and containers."""
        if id(value) in self._leading:
            return self._leading[id(value)]
        found = False
        seen: dict[int, Any] = {id(value): value}
        pending = [value]
        while pending and not found:
            each = pending.pop()
            if id(each) in self._changed:
                found = True
            for below in _held_by(each):
                if id(below) not in seen and (_can_hold(below) or id(below) in self._changed):
                    seen[id(below)] = below
                    pending.append(below)
            if len(seen) > _MOST_OBJECTS:
                raise EvaluationError(
                    f"the {qualified_name_of(type(value))} is too big to lay the changes of the traced code over a copy"
                )
        self._kept.append(value)
        self._leading[id(value)] = found
        return found

    def _copy(self, value: Any, converter: Converter, form: InstanceForm | None = None, tracker: Any = None) -> Any:
        if id(value) in self._copies:
            return self._copies[id(value)]
        if type(value) is types.FunctionType:
            return self._copied_function(value, converter)
        if type(value) is types.MethodType:
            return types.MethodType(value.__func__, converter.convert(value.__self__))
        copied = _empty_like(value)
        self._copies[id(value)] = copied
        converter.begin(tracker, copied)
        attributes = dict(instance_attributes(form or InstanceForm(value, type(value)), self._view))
        registries = _registries(value)
        for name, registry in registries.items():
            object.__setattr__(copied, name, {key: converter.convert(attributes.get(key)) for key in registry})
        in_registry = {key for registry in registries.values() for key in registry}
        for name, attribute in attributes.items():
            if name not in in_registry and name not in registries:
                object.__setattr__(copied, name, _converted(attribute, converter))
        return copied

    def _copied_container(self, form: InstanceForm, tracker: Any, converter: Converter) -> Any:
        contents: Form = form.contents
        base: Any = next((base for base in (dict, list, set, frozenset, tuple) if issubclass(form.cls, base)), None)
        items = converter.convert(contents)
        if base in (tuple, frozenset):
            return base.__new__(form.cls, items)
        if base is None or form.cls.__new__ not in (dict.__new__, list.__new__, set.__new__, object.__new__):
            raise CannotBeCopied(f"a {qualified_name_of(form.cls)} cannot be copied to lay its changes over")
        copied: Any = base.__new__(form.cls)
        converter.begin(tracker, copied)
        if base is dict:
            dict.update(copied, items)
        elif base is list:
            list.extend(copied, items)
        else:
            set.update(copied, items)
        for name, attribute in instance_attributes(form, self._view):
            object.__setattr__(copied, name, _converted(attribute, converter))
        return copied

    def _copied_function(self, value: types.FunctionType, converter: Converter) -> types.FunctionType:
        cells = tuple(types.CellType() for _ in value.__closure__ or ())
        copied = types.FunctionType(value.__code__, value.__globals__, value.__name__, value.__defaults__, cells)
        copied.__kwdefaults__ = value.__kwdefaults__
        copied.__qualname__ = value.__qualname__
        self._copies[id(value)] = copied
        for cell, original in zip(cells, value.__closure__ or (), strict=True):
            try:
                cell.cell_contents = converter.convert(original)
            except (ValueError, EvaluationError):
                continue
        return copied


class _Unavailable:
    """Stands in a copied object for an attribute that has no value while tracing."""

    def __init__(self, reason: str) -> None:
        self.reason = reason


def _converted(attribute: Any, converter: Converter) -> Any:
    try:
        return converter.convert(attribute)
    except EvaluationError as problem:
        return _Unavailable(str(problem))


def _can_hold(value: Any) -> bool:
    """Whether other objects can be stored in ``value`` where the traced code can change them."""
    kind = type(value)
    if kind in (list, dict, set, tuple, types.FunctionType, types.MethodType, types.CellType):
        return True
    return is_python_class(kind) and not isinstance(value, type | types.ModuleType)


def _held_by(value: Any) -> Iterator[Any]:
    kind = type(value)
    if isinstance(value, dict):
        yield from list(dict.values(value))
    elif isinstance(value, list | tuple | set | frozenset):
        yield from list(value)
    elif kind is types.FunctionType:
        yield from value.__closure__ or ()
        return
    elif kind is types.MethodType:
        yield value.__self__
        return
    elif kind is types.CellType:
        try:
            yield value.cell_contents
        except ValueError:
            return
    for _, attribute in stored_attributes(value):
        yield attribute


def _empty_like(value: Any) -> Any:
    try:
        return object.__new__(type(value))
    except TypeError:
        name = qualified_name_of(type(value))
        raise CannotBeCopied(f"a {name} cannot be copied to lay the changes of the traced code over") from None


def _registries(value: Any) -> dict[str, dict[str, Any]]:
    """Return the registries of an ``nn.Module``; empty for other objects."""
    stored = instance_dictionary(value)
    if "_parameters" not in stored or "_modules" not in stored:
        return {}
    return {name: dict(stored.get(name) or {}) for name in ("_parameters", "_buffers", "_modules")}
