"""What is below a form: items, attributes with pending changes laid over, metadata of tensors. Tracing thread."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from dynamo_dap.debuggee.compile_time.trackers.form_texts import is_tensor
from dynamo_dap.debuggee.torch_internals.side_effects import is_deleted, pending_attributes
from dynamo_dap.debuggee.torch_internals.symbols import expression_of, hint_of, ranges_of, relation_text, sources_of
from dynamo_dap.debuggee.torch_internals.tensor_facts import facts_of
from dynamo_dap.debuggee.torch_internals.trackers.containers import constant_of
from dynamo_dap.debuggee.torch_internals.trackers.forms import (
    Composite,
    Form,
    FunctionForm,
    InstanceForm,
    MappingForm,
    NumberForm,
    SequenceForm,
    SetForm,
    TensorForm,
    tuple_form,
)
from dynamo_dap.debuggee.values.containers import IndexedItems, item_variable
from dynamo_dap.debuggee.values.model import Children, Deferred, Value, Variable
from dynamo_dap.debuggee.values.objects import class_variable, stored_attributes
from dynamo_dap.debuggee.values.paging import in_pages, unique_names
from dynamo_dap.debuggee.values.tensors import metadata_variables
from dynamo_dap.debuggee.values.type_facts import is_python_class

if TYPE_CHECKING:
    from dynamo_dap.debuggee.compile_time.trackers.traced_view import TracedView


def children(form: Form, expression: str | None, view: TracedView) -> Children | None:
    """Return what is below the form; ``expression`` gives its value again in a watch."""
    make = _CHILDREN.get(type(form))
    return None if make is None else make(form, expression, view)


def _named(parts: Sequence[tuple[str, Any]], view: TracedView) -> list[Variable]:
    return unique_names(Variable(name, _part(value, view)) for name, value in parts)


def _part(value: Any, view: TracedView) -> Value:
    if type(value) in (list, tuple):
        return view.value(tuple_form(value))
    if type(value) is dict:
        return view.value(MappingForm(list(value.items())))
    return view.value(value)


def _sequence(form: SequenceForm, expression: str | None, view: TracedView) -> Children | None:
    if form.names:
        named = list(zip(form.names, form.items, strict=False))

        def page(start: int, stop: int) -> list[Variable]:
            return [_attribute(name, item, expression, view) for name, item in named[start:stop]]

        return in_pages(len(named), page)
    return IndexedItems(len(form.items), form.items.__getitem__, expression, view) if form.items else None


def _attribute(name: str, value: Any, expression: str | None, view: TracedView) -> Variable:
    path = f"{expression}.{name}" if expression and name.isidentifier() else None
    return Variable(name, view.value(value, path), path)


def _mapping(form: MappingForm, expression: str | None, view: TracedView) -> Children | None:
    if not form.pairs:
        return None

    def page(start: int, stop: int) -> list[Variable]:
        return [_item(key, value, expression, view) for key, value in form.pairs[start:stop]]

    return in_pages(len(form.pairs), page)


def _item(key: Any, value: Any, expression: str | None, view: TracedView) -> Variable:
    known, constant = constant_of(key)
    if known:
        return item_variable(constant, value, expression, view)
    return Variable(f"[{view.text(key, 80, 2)}]", view.value(value))


def instance_attributes(form: InstanceForm, view: TracedView) -> list[tuple[str, Any]]:
    """Return the object's attributes: what it stores, with what the traced code stored on it laid over."""
    attributes: dict[str, Any] = {}
    for name, value in stored_attributes(form.value):
        if name in _REGISTRIES and type(value) is dict:
            attributes.update(value)
        else:
            attributes[name] = value
    tracker = view.tracker_for(form.value)
    pending = {} if tracker is None else pending_attributes(view.tx, tracker)
    for name, value in pending.items():
        if is_deleted(value):
            attributes.pop(name, None)
        else:
            attributes[name] = value
    return list(attributes.items())


_REGISTRIES = ("_parameters", "_buffers", "_modules")
_HOOKS = ("hooks", "_version", "_is_full_backward_hook")
_MODULE_BOOKKEEPING = frozenset({"_non_persistent_buffers_set", "_is_torch_compile", "_is_hf_initialized"})


def _instance(form: InstanceForm, expression: str | None, view: TracedView) -> Children:
    def named() -> list[Variable]:
        attributes = instance_attributes(form, view)
        if _is_module(form.cls):
            attributes = [each for each in attributes if not (each[0].startswith("_") and _is_bookkeeping(*each))]
            attributes.sort(key=lambda each: each[0] == "training")
        else:
            attributes.sort(key=lambda each: each[0].startswith("_"))
        variables = [_attribute(str(name), value, expression, view) for name, value in attributes]
        if is_python_class(form.cls):
            variables.append(class_variable(form.value, expression, view))
        return unique_names(variables)

    if form.contents is None:
        return Deferred(named)
    return _WithAttributes(children(form.contents, expression, view), named)


class _WithAttributes(Children):
    """A container of a user's class: its items, then what it stores beside them."""

    def __init__(self, items: Children | None, attributes: Any) -> None:
        self._items = items
        self._attributes = Deferred(attributes)

    @property
    def indexed_count(self) -> int:
        return self._items.indexed_count if self._items else 0

    def named(self) -> Sequence[Variable]:
        return [*(self._items.named() if self._items else ()), *self._attributes.named()]

    def indexed(self, start: int, count: int) -> Sequence[Variable]:
        return self._items.indexed(start, count) if self._items else ()


def _is_module(cls: type) -> bool:
    return any(base.__module__ == "torch.nn.modules.module" and base.__name__ == "Module" for base in cls.__mro__)


def _is_bookkeeping(name: str, value: Any) -> bool:
    return any(part in name for part in _HOOKS) or value is None or name in _MODULE_BOOKKEEPING


def _tensor(form: TensorForm, expression: str | None) -> list[Variable]:
    variables = metadata_variables(facts_of(form.example, form.kind))
    if expression is None:
        return variables
    return [
        Variable(each.name, each.value, f"{expression}.{each.name}{_CALLED.get(each.name, '')}") for each in variables
    ]


_CALLED = {"stride": "()"}


def _number(form: NumberForm) -> list[Variable]:
    number = form.number
    expression = expression_of(number)
    hint = hint_of(number)
    variables = [
        Variable("expression", Value(relation_text(expression))),
        Variable("hint", Value("none: it depends on the data of a tensor" if hint is None else str(hint))),
    ]
    variables += [Variable(f"range of {symbol}", Value(text)) for symbol, text in ranges_of(number)]
    variables += [Variable(f"{symbol} is", Value(text)) for symbol, text in sources_of(number)]
    return variables


def _function(form: FunctionForm, view: TracedView) -> list[Variable]:
    parts: list[tuple[str, Any]] = []
    if form.bound_to is not None:
        parts.append(("__self__", form.bound_to))
    if form.function is not None:
        parts.append(("__func__", form.function))
    if form.defaults is not None:
        parts.append(("defaults", form.defaults))
    if form.keyword_defaults is not None:
        parts.append(("keyword defaults", form.keyword_defaults))
    parts += [(f"closure {name}", cell) for name, cell in form.closure]
    return _named(parts, view)


def _set(form: SetForm, _expression: str | None, view: TracedView) -> Children | None:
    items = [(str(number), item) for number, item in enumerate(form.items)]
    return in_pages(len(items), lambda start, stop: _named(items[start:stop], view)) if items else None


def _composite(form: Composite, _expression: str | None, view: TracedView) -> Children | None:
    return Deferred(lambda: _named(form.parts, view), count=len(form.parts)) if form.parts else None


def _of_tensor(form: TensorForm, expression: str | None, _view: TracedView) -> Children | None:
    return Deferred(lambda: _tensor(form, expression)) if is_tensor(form.example) else None


def _of_number(form: NumberForm, _expression: str | None, _view: TracedView) -> Children | None:
    return Deferred(lambda: _number(form)) if hasattr(form.number, "node") else None


_CHILDREN: dict[type, Callable[[Any, str | None, Any], Children | None]] = {
    SequenceForm: _sequence,
    SetForm: _set,
    MappingForm: _mapping,
    InstanceForm: _instance,
    TensorForm: _of_tensor,
    NumberForm: _of_number,
    FunctionForm: lambda form, expression, view: Deferred(lambda: _function(form, view)),
    Composite: _composite,
}
