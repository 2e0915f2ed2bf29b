"""Real objects that a trace refers to, read without the user's code: attributes, items, and the way back from a source.

Tracing thread.
"""

from __future__ import annotations

import types
from typing import Any

from dynamo_dap.debuggee.torch_internals.sources import steps_of
from dynamo_dap.debuggee.values.objects import stored_attributes
from dynamo_dap.debuggee.values.type_facts import class_dictionary, instance_dictionary, mro_of

UNKNOWN = object()
"""What reading returns when only the user's code could tell."""


def stored_attribute(value: Any, name: str) -> Any:
    """Return an attribute that ``value`` or its class stores; ``UNKNOWN`` for a property and for what is not there."""
    for stored_name, stored in stored_attributes(value):
        if stored_name == name:
            return stored
    for registry in ("_parameters", "_buffers", "_modules"):
        entries = instance_dictionary(value).get(registry)
        if type(entries) is dict and name in entries:
            return entries[name]
    return class_attribute(value, name)


def class_attribute(value: Any, name: str) -> Any:
    """Return what the class of ``value``, or the class ``value``, stores, methods bound; ``UNKNOWN`` for a property."""
    if isinstance(value, type):
        return _bound(_find(value, name), None, value)
    if isinstance(value, types.ModuleType):
        return instance_dictionary(value).get(name, UNKNOWN)
    return _bound(_find(type(value), name), value, type(value))


def _find(cls: type, name: str) -> Any:
    for base in mro_of(cls):
        dictionary = class_dictionary(base)
        if name in dictionary:
            return dictionary[name]
    return UNKNOWN


def _bound(found: Any, instance: Any, cls: type) -> Any:
    kind = type(found)
    if kind is types.FunctionType:
        return found if instance is None else types.MethodType(found, instance)
    if kind is staticmethod:
        return found.__func__
    if kind is classmethod and type(found.__func__) is types.FunctionType:
        return types.MethodType(found.__func__, cls)
    if _find(kind, "__get__") is not UNKNOWN:
        return UNKNOWN
    return found


def resolve(source: Any, local_scope: dict[str, Any], global_scope: dict[str, Any]) -> Any:
    """Return the real object behind a source of Dynamo's; ``UNKNOWN`` when only the user's code could tell."""
    value: Any = UNKNOWN
    for step, argument in steps_of(source) or ():
        if step == "local":
            value = local_scope.get(argument, UNKNOWN)
        elif step == "global":
            value = global_scope.get(argument, UNKNOWN)
        else:
            value = _step(value, step, argument)
        if value is UNKNOWN:
            break
    return value


def _step(value: Any, step: str, argument: Any) -> Any:
    try:
        if step == "attribute":
            if argument == "__dict__":
                return instance_dictionary(value)
            return stored_attribute(value, argument)
        if step == "item" and type(value) in (list, tuple, dict) and type(argument) in (int, str, bool):
            return value[argument]
        if step == "type":
            return type(value)
        if step == "code" and type(value) is types.FunctionType:
            return value.__code__
    except LookupError:
        pass
    return UNKNOWN
