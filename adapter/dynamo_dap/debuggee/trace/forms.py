"""Shows, evaluates and converts each form of tracker: its text, its children, its Python value.

A form (``torch_api.traced.trackers``) describes the value of a VariableTracker. Each kind has a family here, as each
type of Python has one (``values.model``). The module also resolves paths and converts values, on the tracing thread.
"""

from __future__ import annotations

import collections
import types
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any, Protocol

from dynamo_dap.debuggee.bytecode.exact_types import is_exactly
from dynamo_dap.debuggee.torch_api.graphs.tensor_facts import facts_of, is_tensor, version_of
from dynamo_dap.debuggee.torch_api.traced.symbols import expression_of, hint_of, ranges_of, relation_text, sources_of
from dynamo_dap.debuggee.torch_api.traced.trackers.forms import (
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
    tuple_form,
)
from dynamo_dap.debuggee.torch_api.traced.variable_trackers import Tracker, class_of, constant_of, is_deleted
from dynamo_dap.debuggee.values.callables import location_of_callable, location_of_code, parameters_of
from dynamo_dap.debuggee.values.containers import IndexedItems, item_variable, items_text
from dynamo_dap.debuggee.values.model import Children, Deferred, EvaluationError, Followed, Location, Value, Variable
from dynamo_dap.debuggee.values.objects import (
    attribute_variable,
    class_variable,
    fields_text,
    stored_attribute,
    stored_attributes,
)
from dynamo_dap.debuggee.values.paging import in_pages, unique_names
from dynamo_dap.debuggee.values.python_values import PREVIEW_OF_CONTAINER, Family, View, family_for, family_of
from dynamo_dap.debuggee.values.tensors import metadata_variables, with_data
from dynamo_dap.debuggee.values.type_facts import (
    class_dictionary,
    full_name_of,
    is_python_class,
    mro_of,
    qualified_name_of,
)

UNKNOWN = object()
"""The result of following a path whose value has to be computed."""

_LEAST_WIDTH = 8


class EmptyCell(EvaluationError):
    """A closure's variable has no value yet."""


class Conversion(Protocol):
    """Makes Python values from the trackers of one paused frame, for one evaluation."""

    def convert(self, value: object) -> Any:
        """Return the Python value of a tracker, a form, or a real object."""

    def remember(self, tracker: Tracker | None, value: object) -> object:
        """Note the value of ``tracker`` before its contents are converted: they may contain it."""

    def copied(self, container: object) -> object:
        """Note that the copy ``container`` is complete."""

    def real(self, value: object) -> object:
        """Return a real object, or a copy if the traced code changed it."""

    def instance(self, form: InstanceForm, tracker: Tracker | None) -> object:
        """Return the object of a form; a copy if the traced code made or changed it."""

    def placeholder(self, form: Form, cls: type) -> object:
        """Return the placeholder of a value that only Dynamo has."""

    def globals_of(self, tracker: Tracker | None) -> dict[str, object]:
        """Return the globals of a function that the traced code made."""

    def text(self, form: Form) -> str:
        """Return a form's text for a message."""

    def computed(self, form: TensorForm | NumberForm) -> object:
        """Return a value of the graph: symbolic, or the real one of this call."""


class FormFamily(Family):
    """One kind of form."""

    cls: type = object
    """The class of all values of the kind, as far as it is known."""

    def attribute(self, form: Any, name: str) -> object:
        """Return a stored attribute; ``UNKNOWN`` if it has to be computed."""
        return UNKNOWN

    def item(self, form: Any, key: object) -> object:
        """Return an item by its constant key."""
        return UNKNOWN

    def attribute_names(self, form: Any) -> Iterable[str]:
        """Return the names of stored attributes, without those of the class."""
        return ()

    def python_class(self, form: Any) -> type:
        """Return the class of the value, if known."""
        return self.cls

    def contents(self, form: Any) -> Iterable[object]:
        """Return the parts of the value that a mutation can change."""
        return ()

    @abstractmethod
    def converted(self, form: Any, tracker: Tracker | None, conversion: Conversion) -> object:
        """Return the Python value.

        Raises:
            EvaluationError: there is none; the text says why.
        """


def form_family(form: Form) -> FormFamily:
    """Return the family of a form."""
    family = family_of(form)
    assert isinstance(family, FormFamily)
    return family


@family_for(Known, Unrealized)
class _RealObjects(FormFamily):
    """An unchanged object of the program."""

    def text(self, form: Known | Unrealized, width: int, depth: int, view: View) -> str:
        return family_of(form.value).text(form.value, width, depth, view)

    def present(self, form: Known | Unrealized, expression: str | None, view: View) -> Value:
        return family_of(form.value).present(form.value, expression, view)

    def attribute(self, form: Known | Unrealized, name: str) -> object:
        return UNKNOWN if is_tensor(form.value) else stored_attribute(form.value, name, UNKNOWN)

    def item(self, form: Known | Unrealized, key: object) -> object:
        if not is_exactly(form.value, (list, tuple, dict)):
            return UNKNOWN
        try:
            return form.value[key]
        except (LookupError, TypeError):
            return UNKNOWN

    def attribute_names(self, form: Known | Unrealized) -> Iterable[str]:
        return instance_attributes(InstanceForm(form.value, type(form.value)))

    def python_class(self, form: Known | Unrealized) -> type:
        return type(form.value)

    def converted(self, form: Known | Unrealized, tracker: Tracker | None, conversion: Conversion) -> object:
        if type(form.value).__name__ == "LazySymNodeFormatString":
            raise EvaluationError("this string has no value yet: it is formatted after the graph has run")
        return conversion.real(form.value)


@family_for(TensorForm)
class _Tensors(FormFamily):
    """Tensors: their metadata."""

    kind = "data"

    def text(self, form: TensorForm, width: int, depth: int, view: View) -> str:
        if not is_tensor(form.example):
            return f"{form.kind} (nothing known yet)" if form.example is None else f"{form.kind} {form.example}"
        return with_data(facts_of(form.example, form.kind).text, view.little_data(form), width, depth)

    def present(self, form: TensorForm, expression: str | None, view: View) -> Value:
        shown = super().present(form, expression, view)
        return replace(shown, data_range=lambda: view.data_range(form), printed_text=lambda: view.printed_text(form))

    def type_name(self, form: TensorForm) -> str:
        return form.kind if form.kind.isidentifier() else "Tensor"

    def children(self, form: TensorForm, expression: str | None, view: View) -> Children | None:
        if not is_tensor(form.example):
            return None

        def make() -> list[Variable]:
            variables = metadata_variables(facts_of(form.example, form.kind))
            if expression is None:
                return variables
            paths = [f"{expression}.{each.name}{_CALLED.get(each.name, '')}" for each in variables]
            return [replace(each, evaluate_name=path) for each, path in zip(variables, paths, strict=True)]

        return Deferred(make)

    def python_class(self, form: TensorForm) -> type:
        return next((base for base in mro_of(type(form.example)) if full_name_of(base) == "torch.Tensor"), object)

    def contents(self, form: TensorForm) -> Iterable[object]:
        return (version_of(form.example),)

    def converted(self, form: TensorForm, tracker: Tracker | None, conversion: Conversion) -> object:
        if form.example is None and form.number is None:
            raise EvaluationError("this tensor has no metadata yet")
        return conversion.computed(form) if form.number is None else form.number


_CALLED = {"stride": "()"}


@family_for(NumberForm)
class _Numbers(FormFamily):
    """Symbolic numbers: their expression, and the number in this call."""

    kind = "data"

    def text(self, form: NumberForm, width: int, depth: int, view: View) -> str:
        number = form.number
        if not hasattr(number, "node"):
            return repr(number)
        hint = hint_of(number)
        expression = relation_text(expression_of(number))
        return expression if hint is None or str(hint) == expression else f"{expression} ({hint} in this call)"

    def type_name(self, form: NumberForm) -> str:
        return type(form.number).__name__

    def children(self, form: NumberForm, expression: str | None, view: View) -> Children | None:
        return Deferred(lambda: _parts_of_number(form.number)) if hasattr(form.number, "node") else None

    def python_class(self, form: NumberForm) -> type:
        return type(form.number)

    def converted(self, form: NumberForm, tracker: Tracker | None, conversion: Conversion) -> object:
        return conversion.computed(form)


def _parts_of_number(number: object) -> list[Variable]:
    hint = hint_of(number)
    variables = [
        Variable("expression", Value(relation_text(expression_of(number)))),
        Variable("hint", Value("none: it depends on the data of a tensor" if hint is None else str(hint))),
    ]
    variables += [Variable(f"range of {symbol}", Value(text)) for symbol, text in ranges_of(number)]
    return variables + [Variable(f"{symbol} is", Value(text)) for symbol, text in sources_of(number)]


def _texts(items: Iterable[object], width: int, depth: int, view: View) -> Iterator[str]:
    share = max(width // 2, _LEAST_WIDTH)
    return (view.text(item, share, depth - 1) for item in items)


def _named(parts: Iterable[tuple[str, object]], view: View) -> list[Variable]:
    return unique_names(Variable(name, view.value(_as_form(value))) for name, value in parts)


def _as_form(value: Any) -> object:
    """Return a bare container of trackers as a form."""
    if is_exactly(value, (list, tuple)):
        return tuple_form(value)
    return MappingForm(list(value.items())) if type(value) is dict else value


class _Containers(FormFamily):
    """Containers: values with items."""

    width = PREVIEW_OF_CONTAINER

    def type_name(self, form: SequenceForm | SetForm | MappingForm) -> str:
        return form.type_name


@family_for(SequenceForm)
class _SequenceForms(_Containers):
    """Items by number, or by the field of a named tuple."""

    def text(self, form: SequenceForm, width: int, depth: int, view: View) -> str:
        if form.names:
            return fields_text(form.type_name, list(zip(form.names, form.items, strict=False)), width, depth, view)
        if depth <= 0 and form.items:
            return f"{form.opening}…{form.closing}"
        texts = _texts(form.items, width, depth, view)
        return items_text(form.opening, texts, len(form.items), form.closing, width)

    def children(self, form: SequenceForm, expression: str | None, view: View) -> Children | None:
        if not form.names:
            return IndexedItems(len(form.items), form.items.__getitem__, expression, view) if form.items else None
        named = list(zip(form.names, form.items, strict=False))

        def page(start: int, stop: int) -> list[Variable]:
            return [attribute_variable(name, item, expression, view) for name, item in named[start:stop]]

        return in_pages(len(named), page)

    def attribute(self, form: SequenceForm, name: str) -> object:
        return form.items[form.names.index(name)] if name in form.names else UNKNOWN

    def item(self, form: SequenceForm, key: Any) -> object:
        is_there = type(key) is int and -len(form.items) <= key < len(form.items)
        return form.items[key] if is_there else UNKNOWN

    def attribute_names(self, form: SequenceForm) -> Iterable[str]:
        return form.names

    def python_class(self, form: SequenceForm) -> type:
        return form.cls or (tuple if form.type_name == "tuple" else list)

    def contents(self, form: SequenceForm) -> Iterable[object]:
        return form.items

    def converted(self, form: SequenceForm, tracker: Tracker | None, conversion: Conversion) -> object:
        if form.type_name in ("list", "deque"):
            items: Any = [] if form.type_name == "list" else collections.deque()
            conversion.remember(tracker, items)
            items.extend(conversion.convert(item) for item in form.items)
            return conversion.copied(items)
        converted = tuple(conversion.convert(item) for item in form.items)
        if form.cls is not None:
            try:
                return tuple.__new__(form.cls, converted)
            except TypeError:  # a struct sequence, such as torch.return_types.max
                return form.cls(converted)
        make_view = _VIEWS.get(form.type_name)
        return converted if make_view is None else make_view(converted)


_VIEWS: dict[str, Callable[[tuple[Any, ...]], object]] = {
    "dict_keys": lambda items: dict.fromkeys(items).keys(),
    "dict_values": lambda items: dict(enumerate(items)).values(),
    "dict_items": lambda items: dict(items).items(),
}
"""Functions that make a dictionary view from its items."""


@family_for(SetForm)
class _SetForms(_Containers):
    """Items without number."""

    cls = set

    def text(self, form: SetForm, width: int, depth: int, view: View) -> str:
        opening, closing = ("{", "}") if form.type_name == "set" else (f"{form.type_name}({{", "})")
        if not form.items:
            return f"{form.type_name}()"
        if depth <= 0:
            return f"{opening}…{closing}"
        return items_text(opening, _texts(form.items, width, depth, view), len(form.items), closing, width)

    def children(self, form: SetForm, expression: str | None, view: View) -> Children | None:
        items = [(str(number), item) for number, item in enumerate(form.items)]
        return in_pages(len(items), lambda start, stop: _named(items[start:stop], view)) if items else None

    def contents(self, form: SetForm) -> Iterable[object]:
        return form.items

    def converted(self, form: SetForm, tracker: Tracker | None, conversion: Conversion) -> object:
        items = {conversion.convert(item) for item in form.items}
        return frozenset(items) if form.type_name == "frozenset" else conversion.copied(items)


@family_for(MappingForm)
class _MappingForms(_Containers):
    """Items by key."""

    cls = dict

    def text(self, form: MappingForm, width: int, depth: int, view: View) -> str:
        opening, closing = ("{", "}") if form.type_name == "dict" else (f"{form.type_name}({{", "})")
        if depth <= 0 and form.pairs:
            return f"{opening}…{closing}"
        texts = (": ".join(_texts(pair, width, depth, view)) for pair in form.pairs)
        return items_text(opening, texts, len(form.pairs), closing, width)

    def children(self, form: MappingForm, expression: str | None, view: View) -> Children | None:
        if not form.pairs:
            return None

        def item(key: object, value: object) -> Variable:
            known, constant = constant_of(key)
            if known:
                return item_variable(constant, value, expression, view)
            return Variable(f"[{view.text(key, 80, 2)}]", view.value(value))

        return in_pages(len(form.pairs), lambda start, stop: [item(*pair) for pair in form.pairs[start:stop]])

    def item(self, form: MappingForm, key: object) -> object:
        for each, value in form.pairs:
            known, constant = constant_of(each)
            if known and type(constant) is type(key) and constant == key:
                return value
        return UNKNOWN

    def contents(self, form: MappingForm) -> Iterable[object]:
        return [part for pair in form.pairs for part in pair]

    def converted(self, form: MappingForm, tracker: Tracker | None, conversion: Conversion) -> object:
        items: dict[object, object] = collections.OrderedDict() if form.type_name == "OrderedDict" else {}
        conversion.remember(tracker, items)
        for key, value in form.pairs:
            known, constant = constant_of(key)
            items[constant if known else conversion.convert(key)] = conversion.convert(value)
        return conversion.copied(items)


_REGISTRIES = ("_parameters", "_buffers", "_modules")
_HOOKS = ("hooks", "_version", "_is_full_backward_hook")
_MODULE_BOOKKEEPING = frozenset({"_non_persistent_buffers_set", "_is_torch_compile", "_is_hf_initialized"})


def instance_attributes(form: InstanceForm) -> dict[str, object]:
    """Return an object's attributes: those it stores, and those that the traced code stored on it."""
    attributes: dict[str, object] = {}
    for name, value in stored_attributes(form.value):
        attributes.update(value if name in _REGISTRIES and type(value) is dict else {name: value})
    for name, value in form.stored.items():
        if is_deleted(value):
            attributes.pop(name, None)
        else:
            attributes[name] = value
    return attributes


@family_for(InstanceForm)
class _Instances(FormFamily):
    """Instances of classes: attributes, and items if the class is a container."""

    width = PREVIEW_OF_CONTAINER

    def text(self, form: InstanceForm, width: int, depth: int, view: View) -> str:
        name = qualified_name_of(form.cls)
        if form.contents is not None:
            inside = family_of(form.contents).text(form.contents, width - len(name) - 2, depth, view)
            return inside if inside.startswith(f"{name}(") else f"{name}({inside})"
        declared = [class_dictionary(base).get("__dataclass_fields__") for base in mro_of(form.cls)]
        fields = next((each for each in declared if each is not None), None)
        if type(fields) is not dict:
            return family_of(form.value).text(form.value, width, depth, view)
        stored = instance_attributes(form)
        shown = [(field, stored[field]) for field, each in fields.items() if each.repr and field in stored]
        return fields_text(name, shown, width, depth, view)

    def type_name(self, form: InstanceForm) -> str:
        return qualified_name_of(form.cls)

    def location(self, form: InstanceForm) -> Location | None:
        return family_of(form.value).location(form.value)

    def children(self, form: InstanceForm, expression: str | None, view: View) -> Children | None:

        def named() -> list[Variable]:
            attributes = list(instance_attributes(form).items())
            if any(full_name_of(base) == "torch.nn.modules.module.Module" for base in mro_of(form.cls)):
                attributes = [each for each in attributes if not (each[0].startswith("_") and _is_bookkeeping(*each))]
                attributes.sort(key=lambda each: each[0] == "training")
            else:
                attributes.sort(key=lambda each: each[0].startswith("_"))
            variables = [attribute_variable(str(name), value, expression, view) for name, value in attributes]
            if is_python_class(form.cls):
                variables.append(class_variable(form.value, expression, view))
            return unique_names(variables)

        if form.contents is None:
            return Deferred(named)
        return Followed(family_of(form.contents).children(form.contents, expression, view), named)

    def attribute(self, form: InstanceForm, name: str) -> object:
        stored = instance_attributes(form)
        if name in stored:
            return stored[name]
        is_gone = name in form.stored or is_tensor(form.value)
        return UNKNOWN if is_gone else stored_attribute(form.value, name, UNKNOWN)

    def item(self, form: InstanceForm, key: object) -> object:
        return UNKNOWN if form.contents is None else form_family(form.contents).item(form.contents, key)

    def attribute_names(self, form: InstanceForm) -> Iterable[str]:
        return instance_attributes(form)

    def python_class(self, form: InstanceForm) -> type:
        return form.cls

    def contents(self, form: InstanceForm) -> Iterable[object]:
        return [part for pair in sorted(form.stored.items()) for part in pair]

    def converted(self, form: InstanceForm, tracker: Tracker | None, conversion: Conversion) -> object:
        return conversion.instance(form, tracker)


def _is_bookkeeping(name: str, value: object) -> bool:
    return any(part in name for part in _HOOKS) or value is None or name in _MODULE_BOOKKEEPING


@family_for(FunctionForm)
class _MadeFunctions(FormFamily):
    """Functions that the traced code made, and methods."""

    kind = "method"
    cls = types.FunctionType

    def text(self, form: FunctionForm, width: int, depth: int, view: View) -> str:
        return f"{self.type_name(form)} {form.name.rpartition('<locals>.')[2]}({parameters_of(form.code)})"

    def type_name(self, form: FunctionForm) -> str:
        return "function" if form.bound_to is None else "method"

    def location(self, form: FunctionForm) -> Location | None:
        return location_of_code(form.code)

    def children(self, form: FunctionForm, expression: str | None, view: View) -> Children | None:
        parts = {
            "__self__": form.bound_to,
            "__func__": form.function,
            "defaults": form.defaults,
            "keyword defaults": form.keyword_defaults,
        }
        known = [(name, part) for name, part in parts.items() if part is not None]
        closure = [(f"closure {name}", cell) for name, cell in form.closure]
        return Deferred(lambda: _named([*known, *closure], view))

    def converted(self, form: FunctionForm, tracker: Tracker | None, conversion: Conversion) -> object:
        if form.function is not None:
            bound_to = form.bound_to
            return form.function if bound_to is None else types.MethodType(form.function, conversion.convert(bound_to))
        cells = tuple(types.CellType() for _ in form.closure)
        defaults = None if form.defaults is None else tuple(conversion.convert(form.defaults))
        name = form.name.rpartition(".")[2]
        function = types.FunctionType(form.code, conversion.globals_of(tracker), name, defaults, cells)
        conversion.remember(tracker, function)
        if form.keyword_defaults is not None:
            function.__kwdefaults__ = dict(conversion.convert(form.keyword_defaults))
        for cell, (_, contents) in zip(cells, form.closure, strict=True):
            try:
                cell.cell_contents = conversion.convert(contents)
            except EmptyCell:
                continue
        return function


@family_for(CellForm)
class _CellForms(FormFamily):
    """Cells of closures: shown as their contents."""

    def text(self, form: CellForm, width: int, depth: int, view: View) -> str:
        return "<empty cell>" if form.contents is None else view.text(form.contents, width, depth)

    def present(self, form: CellForm, expression: str | None, view: View) -> Value:
        return Value("<empty cell>") if form.contents is None else view.value(form.contents, expression)

    def converted(self, form: CellForm, tracker: Tracker | None, conversion: Conversion) -> object:
        if form.contents is None:
            raise EmptyCell("the variable has no value yet")
        return conversion.convert(form.contents)


@family_for(Composite)
class _Composites(FormFamily):
    """Anything else: a title, and its parts by name."""

    def text(self, form: Composite, width: int, depth: int, view: View) -> str:
        if not form.after:
            return f"{form.title}()" if form.is_call else form.title
        inside = ", ".join(_texts(form.after, width, depth, view))
        continues = form.title.endswith((" of", ":", "reference to"))
        return f"{form.title} {inside}" if continues else f"{form.title}({inside})"

    def type_name(self, form: Composite) -> str | None:
        return form.type_name

    def location(self, form: Composite) -> Location | None:
        if form.code is not None:
            return location_of_code(form.code)
        return location_of_callable(form.after[0]) if form.type_name == "function" and form.after else None

    def children(self, form: Composite, expression: str | None, view: View) -> Children | None:
        return Deferred(lambda: _named(form.parts, view), count=len(form.parts)) if form.parts else None

    def attribute(self, form: Composite, name: str) -> object:
        return dict(form.parts).get(name, UNKNOWN)

    def attribute_names(self, form: Composite) -> Iterable[str]:
        return [name for name, _ in form.parts if name.isidentifier()]

    def converted(self, form: Composite, tracker: Tracker | None, conversion: Conversion) -> object:
        if form.rebuild is not None:
            return form.rebuild(conversion.convert)
        cls = form.cls or (None if tracker is None else class_of(tracker))
        if cls is None:
            raise EvaluationError(f"{conversion.text(form)} has no value to compute with during the trace")
        return conversion.placeholder(form, cls)
