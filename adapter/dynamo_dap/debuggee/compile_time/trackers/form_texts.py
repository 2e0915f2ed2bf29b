"""The one-line text of a form: ``Tensor f32[3, 4] cpu``, ``[1, x]``, ``function f(x)``. Tracing thread."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from dynamo_dap.debuggee.torch_internals.symbols import expression_of, hint_of, relation_text
from dynamo_dap.debuggee.torch_internals.tensor_facts import facts_of
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
from dynamo_dap.debuggee.values.callables import parameters_of
from dynamo_dap.debuggee.values.containers import items_text
from dynamo_dap.debuggee.values.families import PREVIEW_OF_CONTAINER, family_of
from dynamo_dap.debuggee.values.model import MAXIMUM_TEXT
from dynamo_dap.debuggee.values.objects import fields_text
from dynamo_dap.debuggee.values.type_facts import class_dictionary, mro_of, qualified_name_of

if TYPE_CHECKING:
    from dynamo_dap.debuggee.compile_time.trackers.traced_view import TracedView

_LEAST_ROOM = 8


def text(form: Form, room: int, depth: int, view: TracedView) -> str:
    """Return the form's text in about ``room`` characters, opening ``depth`` more containers."""
    return _TEXTS[type(form)](form, room, depth, view)


def room_of(form: Form) -> int:
    """Return the characters that the text has in a pane."""
    return PREVIEW_OF_CONTAINER if isinstance(form, _CONTAINERS) else MAXIMUM_TEXT


_CONTAINERS = (SequenceForm, SetForm, MappingForm, InstanceForm)


def type_name(form: Form) -> str | None:
    """Return the name of the type that the form's value has."""
    if isinstance(form, TensorForm):
        return form.kind if form.kind.isidentifier() else "Tensor"
    if isinstance(form, NumberForm):
        return type(form.number).__name__
    if isinstance(form, FunctionForm):
        return "function" if form.bound_to is None else "method"
    if isinstance(form, InstanceForm):
        return qualified_name_of(form.cls)
    if isinstance(form, Known | Unrealized):
        return family_of(form.value).type_name(form.value)
    return None if isinstance(form, CellForm) else form.type_name


def tensor_text(form: TensorForm) -> str:
    """Return ``Tensor f32[3, 4] cpu requires_grad``."""
    if not is_tensor(form.example):
        return f"{form.kind} (nothing known yet)" if form.example is None else f"{form.kind} {form.example}"
    return facts_of(form.example, form.kind).text


def is_tensor(value: object) -> bool:
    """Whether ``value`` is a tensor, fake or real."""
    return any(base.__name__ == "Tensor" and base.__module__ == "torch" for base in type(value).__mro__)


def number_text(form: NumberForm) -> str:
    """Return the expression, and the number that it is in this call: ``2*s77 (6 in this call)``."""
    number = form.number
    if not hasattr(number, "node"):
        return repr(number)
    hint = hint_of(number)
    expression = relation_text(expression_of(number))
    return expression if hint is None or str(hint) == expression else f"{expression} ({hint} in this call)"


def _container_text(form: SequenceForm | SetForm | MappingForm, room: int, depth: int, view: TracedView) -> str:
    if isinstance(form, SequenceForm):
        opening, closing, count = form.opening, form.closing, len(form.items)
        parts = _texts(form.items, room, depth, view)
        if form.names:
            named = list(zip(form.names, form.items, strict=False))
            return fields_text(form.type_name, named, room, depth, view)
    elif isinstance(form, SetForm):
        count = len(form.items)
        opening, closing = ("{", "}") if form.type_name == "set" else (f"{form.type_name}({{", "})")
        parts = _texts(form.items, room, depth, view)
        if not count:
            return f"{form.type_name}()"
    else:
        count = len(form.pairs)
        opening, closing = ("{", "}") if form.type_name == "dict" else (f"{form.type_name}({{", "})")
        parts = _pairs(form, room, depth, view)
    if depth <= 0 and count:
        return f"{opening}…{closing}"
    return items_text(opening, parts, count, closing, room)


def _texts(items: Any, room: int, depth: int, view: TracedView) -> Iterator[str]:
    share = max(room // 2, _LEAST_ROOM)
    return (view.text(item, share, depth - 1) for item in items)


def _pairs(form: MappingForm, room: int, depth: int, view: TracedView) -> Iterator[str]:
    share = max(room // 2, _LEAST_ROOM)
    for key, value in form.pairs:
        yield f"{view.text(key, share, depth - 1)}: {view.text(value, share, depth - 1)}"


def _instance_text(form: InstanceForm, room: int, depth: int, view: TracedView) -> str:
    name = qualified_name_of(form.cls)
    if form.contents is not None:
        inside = text(form.contents, room - len(name) - 2, depth, view)
        return inside if inside.startswith(f"{name}(") else f"{name}({inside})"
    from dynamo_dap.debuggee.compile_time.trackers.form_children import instance_attributes

    declared = next(
        (
            own["__dataclass_fields__"]
            for own in map(class_dictionary, mro_of(form.cls))
            if "__dataclass_fields__" in own
        ),
        None,
    )
    if type(declared) is dict:
        attributes = dict(instance_attributes(form, view))
        fields = [(field, attributes[field]) for field, each in declared.items() if each.repr and field in attributes]
        return fields_text(name, fields, room, depth, view)
    return family_of(form.value).text(form.value, room, depth, view)


def _real_text(form: Known | Unrealized, room: int, depth: int, view: TracedView) -> str:
    return family_of(form.value).text(form.value, room, depth, view)


def _cell_text(form: CellForm, room: int, depth: int, view: TracedView) -> str:
    return "<empty cell>" if form.contents is None else view.text(form.contents, room, depth)


def _function_text(form: FunctionForm) -> str:
    kind = "function" if form.bound_to is None else "method"
    return f"{kind} {form.name.rpartition('<locals>.')[2]}({parameters_of(form.code)})"


def _composite_text(form: Composite, room: int, depth: int, view: TracedView) -> str:
    if not form.after:
        return f"{form.title}()" if form.is_call else form.title
    inside = ", ".join(_texts(form.after, room, depth, view))
    if form.title.endswith((" of", ":")) or form.title in ("weak reference to",):
        return f"{form.title} {inside}"
    return f"{form.title}({inside})"


_TEXTS: dict[type, Callable[[Any, int, int, Any], str]] = {
    Known: _real_text,
    Unrealized: _real_text,
    TensorForm: lambda form, room, depth, view: tensor_text(form),
    NumberForm: lambda form, room, depth, view: number_text(form),
    CellForm: _cell_text,
    FunctionForm: lambda form, room, depth, view: _function_text(form),
    InstanceForm: _instance_text,
    Composite: _composite_text,
    SequenceForm: _container_text,
    SetForm: _container_text,
    MappingForm: _container_text,
}
