"""Reading each class of VariableTracker into a form: a table by class name, looked up along the MRO.

By name, so that another version of torch, with other classes, degrades to a base class's reading, and in the end to
``read_unknown``: the class's name in words, with every tracker its fields hold. Runs on the tracing thread.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from dynamo_dap.debuggee.torch_internals.trackers.forms import (
    Composite,
    Form,
    Known,
    Unrealized,
)
from dynamo_dap.debuggee.torch_internals.variable_trackers import (
    class_names,
    field,
    fields_of,
    held_trackers,
    held_value,
    is_unrealized,
    unwrapped,
)

Reader = Callable[[Any, Any], Form]
"""``reader(tx, tracker)``; the tracker is unwrapped and realized."""

_readers: dict[str, Reader] = {}


def reads(*names: str) -> Callable[[Reader], Reader]:
    """Register a reader for classes of these names and their subclasses."""

    def register(reader: Reader) -> Reader:
        for name in names:
            _readers[name] = reader
        return reader

    return register


def form_of(tx: Any, tracker: Any) -> Form:
    """Return what the tracker stands for. Nothing is realized, guarded or added to the graph."""
    tracker = unwrapped(tracker)
    if is_unrealized(tracker):
        computed = "ComputedLazyConstantVariable" in class_names(tracker)  # torch 2.15: only its guards are put off
        return Known(held_value(tracker)) if computed else Unrealized(held_value(tracker))
    for name in class_names(tracker):
        reader = _readers.get(name)
        if reader is not None:
            try:
                return reader(tx, tracker)
            except (AttributeError, KeyError, TypeError):  # a field of another version: read it as an unknown class
                break
    return read_unknown(tx, tracker)


def reader_names() -> tuple[str, ...]:
    """Return the names of the classes that have a reader of their own."""
    return tuple(_readers)


def in_words(class_name: str) -> str:
    """Return the name of a tracker class as words: ``GradModeVariable`` -> ``grad mode``."""
    stem = re.sub(r"(Variable|VariableTracker)$", "", class_name)
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", " ", stem).replace("_", " ").lower()


def read_unknown(_tx: Any, tracker: Any) -> Form:
    """Return a form that says the class, with the trackers it holds as parts."""
    value = field(tracker, "value", _NOTHING)
    parts = held_trackers(tracker)
    if value is not _NOTHING:
        parts.insert(0, ("value", value))
    return Composite(in_words(type(tracker).__name__), tuple(parts))


_NOTHING = object()


def contents_of(tx: Any, tracker: Any) -> Form | None:
    """Return the form of what an object of a builtin container's subclass contains; None for others.

    The container is a tracker of its own (``_base_vt``); from torch 2.15 on the object's tracker is the container.
    """
    base = field(tracker, "_base_vt")
    if base is not None:
        return form_of(tx, base)
    if "items" not in fields_of(tracker):
        return None
    names = [name for name in class_names(tracker) if name in _CONTAINERS and name in _readers]
    return _readers[names[0]](tx, tracker) if names else None


_CONTAINERS = frozenset(
    {"ConstDictVariable", "ListVariable", "TupleVariable", "SetVariable", "FrozensetVariable", "DequeVariable"}
)


def constant_in(value: Any) -> Any:
    """Return the constant of a ConstantVariable, or ``value`` when it is no tracker."""
    value = unwrapped(value) if "_cache" in getattr(value, "__dict__", ()) else value
    return fields_of(value)["value"] if type(value).__name__ == "ConstantVariable" else value
