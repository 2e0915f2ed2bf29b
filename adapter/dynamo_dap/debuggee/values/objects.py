"""Shows objects of the user's classes by their stored attributes, without running their code.

Attributes come from ``__dict__`` and ``__slots__``; properties are not read and ``__repr__`` is not called. Runs on the
held thread.
"""

from __future__ import annotations

import dataclasses
import sys
import types
from collections.abc import Iterator
from typing import Any

from dynamo_dap.debuggee.bytecode.exact_types import find_in_type, is_a
from dynamo_dap.debuggee.values.model import (
    PREVIEW_OF_CONTAINER,
    Children,
    Deferred,
    Family,
    Location,
    Variable,
    View,
    family_for,
)
from dynamo_dap.debuggee.values.paging import PAGE, in_pages, unique_names
from dynamo_dap.debuggee.values.type_facts import (
    class_dictionary,
    full_name_of,
    instance_dictionary,
    is_python_class,
    module_of,
    mro_of,
    qualified_name_of,
    slots_of,
)


def stored_attributes(value: object) -> Iterator[tuple[str, Any]]:
    """Yield name and value of each attribute that the object stores: slots, then its ``__dict__``."""
    yield from slots_of(value)
    for name, attribute in list(instance_dictionary(value).items()):
        if type(name) is str:
            yield name, attribute


_NOTHING = object()


def stored_attribute(value: Any, name: str, missing: object) -> Any:
    """Return the attribute that ``value`` or its class stores, methods bound; ``missing`` if none, or a property."""
    for slot, stored in slots_of(value):
        if slot == name:
            return stored
    dictionary = instance_dictionary(value)
    # A lookup, not a search: a module may have thousands. A ``dict`` subclass's methods are not called.
    stored = dict.get(dictionary, name, _NOTHING)
    if stored is not _NOTHING:
        return stored
    for registry in ("_parameters", "_buffers", "_modules"):
        entries = dict.get(dictionary, registry)
        if type(entries) is dict and name in entries:
            return entries[name]
    if is_a(value, types.ModuleType):
        return missing
    cls, instance = (value, None) if is_a(value, type) else (type(value), value)
    for base in mro_of(cls):
        if name in class_dictionary(base):
            return _bound(class_dictionary(base)[name], instance, cls, missing)
    return missing


def _bound(found: Any, instance: object, cls: type, missing: object) -> Any:
    kind = type(found)
    if kind is types.FunctionType:
        return found if instance is None else types.MethodType(found, instance)
    if kind is staticmethod:
        return found.__func__
    if kind is classmethod and type(found.__func__) is types.FunctionType:
        return types.MethodType(found.__func__, cls)
    return found if find_in_type(found, "__get__") is None else missing


def attributes_of(value: object, expression: str | None, view: View) -> list[Variable]:
    """Return the object's stored attributes as variables, private ones (``_name``) last."""
    variables = [attribute_variable(name, stored, expression, view) for name, stored in stored_attributes(value)]
    return sorted(variables, key=lambda variable: variable.name.startswith("_"))


def attribute_variable(name: str, value: object, expression: str | None, view: View) -> Variable:
    """Return one attribute of the object that ``expression`` gives."""
    path = f"{expression}.{name}" if expression and name.isidentifier() else None
    return Variable(name, view.value(value, path), path)


def class_variable(value: object, expression: str | None, view: View) -> Variable:
    """Return the object's class as a child: it leads to methods, constants and the definition."""
    path = f"type({expression})" if expression else None
    return Variable("class", view.value(type(value), path), path)


@family_for(object)
class ObjectFamily(Family):
    """Any object: ``<ClassName object>`` with its stored attributes below."""

    width = PREVIEW_OF_CONTAINER

    def text(self, value: Any, width: int, depth: int, view: View) -> str:
        """Return the class's name; a dataclass also its fields."""
        fields = dataclass_fields(value)
        if fields is None:
            return f"<{qualified_name_of(type(value))} object>"
        return fields_text(qualified_name_of(type(value)), fields, width, depth, view)

    def children(self, value: Any, expression: str | None, view: View) -> Children | None:
        """Return the attributes, then the class."""

        def make() -> list[Variable]:
            attributes = attributes_of(value, expression, view)
            below = [class_variable(value, expression, view)] if is_python_class(type(value)) else []
            return unique_names([*attributes[: PAGE * 10], *below])

        return Deferred(make)


def dataclass_fields(value: object) -> list[tuple[str, object]] | None:
    """Return the filled fields of a dataclass object that its ``repr`` would show; None for other objects."""
    declared = find_in_type(value, "__dataclass_fields__")
    if type(declared) is not dict:
        return None
    stored = dict(stored_attributes(value))
    shown = [name for name, field in declared.items() if isinstance(field, dataclasses.Field) and field.repr]
    return [(name, stored[name]) for name in shown if name in stored]


def fields_text(name: str, fields: list[tuple[str, object]], width: int, depth: int, view: View) -> str:
    """Return ``Name(field=value, ...)`` in about ``width`` characters."""
    if depth <= 0 and fields:
        return f"{name}(…)"
    parts: list[str] = []
    left = width - len(name) - 2
    for field, value in fields:
        if left < len(field) + _LEAST_WIDTH:
            parts.append("…")
            break
        part = f"{field}={view.text(value, left - len(field) - 1, depth - 1)}"
        parts.append(part)
        left -= len(part) + 2
    return f"{name}({', '.join(parts)})"


_LEAST_WIDTH = 12
"""With fewer characters left, no further item is shown."""


@family_for(type)
class Classes(Family):
    """Classes: their constants, methods and bases, and where they are defined."""

    kind = "class"

    def text(self, value: type, width: int, depth: int, view: View) -> str:
        """Return ``<class 'module.Name'>``."""
        return f"<class '{full_name_of(value)}'>"

    def type_name(self, value: type) -> str:
        """Return the metaclass's name."""
        return qualified_name_of(type(value))

    def children(self, value: type, expression: str | None, view: View) -> Children | None:
        """Return the bases, then what the class itself defines, in pages."""
        if not is_python_class(value):
            return None

        def entries() -> list[tuple[str, object]]:
            dictionary = class_dictionary(value)
            shown = [(str(name), item) for name, item in dictionary.items() if name not in _UNINTERESTING]
            return sorted(shown, key=lambda entry: entry[0].startswith("__"))

        def page(start: int, stop: int) -> list[Variable]:
            return [attribute_variable(name, item, expression, view) for name, item in entries()[start:stop]]

        def bases() -> list[Variable]:
            above = [base for base in mro_of(value)[1:] if base is not object]
            return unique_names(Variable(f"base {qualified_name_of(base)}", view.value(base)) for base in above)

        return Deferred(lambda: [*bases(), *in_pages(len(entries()), page).named()])

    def location(self, value: type) -> Location | None:
        """Return the first line of the class, as far as its methods show it."""
        return location_of_class(value)


def location_of_class(cls: type) -> Location | None:
    """Return the place of a class: its first line if Python keeps it (3.13), else that of its first method."""
    dictionary = class_dictionary(cls)
    methods = [item.__code__ for item in dictionary.values() if type(item) is types.FunctionType]
    module = sys.modules.get(module_of(cls))
    path = None if module is None else instance_dictionary(module).get("__file__")
    # dataclasses add methods whose code is in their own file.
    own = [code for code in methods if code.co_filename == path]
    if not own:
        return None
    first = min(own, key=lambda code: code.co_firstlineno)
    line = dictionary.get("__firstlineno__", first.co_firstlineno)
    return Location(first.co_filename, max(line, 1)) if type(line) is int else None


_UNINTERESTING = frozenset({"__dict__", "__weakref__", "__doc__", "__module__", "__dataclass_fields__"})
