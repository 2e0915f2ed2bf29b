"""Reads facts about a type and an object's storage without running code of the object's class.

``type(x).__name__``, ``x.__dict__`` and ``getattr`` can all be redefined by a metaclass, a property or ``__getattr__``.
The descriptors of ``type`` and ``object`` themselves cannot. Runs on any thread.
"""

from __future__ import annotations

import types
from collections.abc import Iterator, Mapping
from typing import Any

from dynamo_dap.debuggee.bytecode.exact_types import find_in_type, has_base, is_a, is_exactly

_mro = type.__dict__["__mro__"].__get__
_name = type.__dict__["__name__"].__get__
_qualified_name = type.__dict__["__qualname__"].__get__
_type_dictionary = type.__dict__["__dict__"].__get__
_type_module = type.__dict__["__module__"].__get__


def mro_of(cls: type) -> tuple[type, ...]:
    """Return the method resolution order of ``cls``."""
    found: tuple[type, ...] = _mro(cls)
    return found


def name_of(cls: type) -> str:
    """Return the class's name."""
    return str(_name(cls))


def qualified_name_of(cls: type) -> str:
    """Return the class's qualified name, without its module and without ``<locals>``."""
    return str(_qualified_name(cls)).rpartition("<locals>.")[2]


def module_of(cls: type) -> str:
    """Return the name of the module that defines ``cls``, empty when it does not say."""
    module = _type_module(cls)
    return module if type(module) is str else ""


def full_name_of(cls: type) -> str:
    """Return module and qualified name, and for a builtin the name alone."""
    module = module_of(cls)
    return qualified_name_of(cls) if module in ("builtins", "") else f"{module}.{qualified_name_of(cls)}"


def class_dictionary(cls: type) -> Any:
    """Return the class's own ``__dict__`` (a mapping proxy)."""
    return _type_dictionary(cls)


def instance_dictionary(value: object) -> dict[str, Any]:
    """Return the object's own ``__dict__``; an empty one when it has none or hides it behind a property."""
    descriptor = dictionary_descriptor(value)
    if descriptor is None:
        return {}
    found = descriptor.__get__(value, type(value))
    return found if is_a(found, dict) else {}


def dictionary_descriptor(value: object) -> Any:
    """Return Python's descriptor of the object's own ``__dict__``; None if there is none or a property hides it."""
    found = find_in_type(value, "__dict__")
    return found if is_exactly(found, (types.GetSetDescriptorType, types.MemberDescriptorType)) else None


def slots_of(value: object) -> Iterator[tuple[str, object]]:
    """Yield name and value of every filled slot, base classes first."""
    for cls in reversed(mro_of(type(value))):
        if not is_python_class(cls):
            continue
        for name, descriptor in class_dictionary(cls).items():
            if type(descriptor) is types.MemberDescriptorType:
                try:
                    yield name, descriptor.__get__(value, type(value))
                except AttributeError:
                    continue


def is_python_class(cls: type) -> bool:
    """Return whether a class statement made ``cls``. Members of C types are not shown as slots or attributes."""
    return bool(_flags(cls) & (_HEAP_TYPE | _IMMUTABLE_TYPE) == _HEAP_TYPE)


_flags = type.__dict__["__flags__"].__get__
_HEAP_TYPE = 1 << 9
"""``Py_TPFLAGS_HEAPTYPE``. Newer versions put more C types of the standard library on the heap."""
_IMMUTABLE_TYPE = 1 << 8
"""``Py_TPFLAGS_IMMUTABLETYPE``: such C types have it; a class from a class statement never does."""


VARIABLE, FUNCTION, METHOD, PROPERTY, FIELD = "variable", "function", "method", "property", "field"
_FUNCTIONS = (types.FunctionType, types.BuiltinFunctionType, types.MethodType, types.MethodWrapperType)
_METHODS = (
    *_FUNCTIONS,
    types.MethodDescriptorType,
    types.WrapperDescriptorType,
    types.ClassMethodDescriptorType,
    classmethod,
    staticmethod,
)
_PROPERTIES = (property, types.GetSetDescriptorType, types.MemberDescriptorType)


def kind_of(value: object) -> str:
    """Return DAP's completion kind for a name of ``value``."""
    if is_a(value, types.ModuleType):
        return "module"
    if is_a(value, type):
        return "class"
    return FUNCTION if is_exactly(value, _FUNCTIONS) else VARIABLE


def kinds_in(value: object) -> dict[str, str]:
    """Return the names of a real object's members, with DAP's completion kinds."""
    cls = type(value)
    if has_base(cls, type):
        assert isinstance(value, type)
        return {**kinds_of_members(value, {}), **kinds_of_members(cls, {})}
    return kinds_of_members(cls, instance_dictionary(value))


def kinds_of_members(cls: type, own: Mapping[str, object]) -> dict[str, str]:
    """Return the names of an object's members with DAP's completion kinds: ``own``, then its class's, sorted."""
    is_module = has_base(cls, types.ModuleType)
    kinds: dict[str, str] = {}
    for name, value in own.items():
        kind = kind_of(value)
        kinds[str(name)] = FIELD if kind == VARIABLE and not is_module else kind
    inherited: dict[str, str] = {}
    for base in mro_of(cls):
        for name, value in class_dictionary(base).items():
            inherited.setdefault(str(name), _kind_in_class(value))
    for name in sorted(inherited, key=lambda name: (name.startswith("_"), name)):
        kinds.setdefault(name, inherited[name])
    return kinds


def _kind_in_class(value: object) -> str:
    if is_exactly(value, _METHODS):
        return METHOD
    if is_exactly(value, _PROPERTIES):
        return PROPERTY
    kind = kind_of(value)
    return FIELD if kind == VARIABLE else kind
