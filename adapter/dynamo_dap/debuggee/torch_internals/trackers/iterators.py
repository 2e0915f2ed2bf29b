"""Reading trackers of iterators and generators, none of which is advanced.

Importing this module registers the readers. They run on the tracing thread.
"""

from __future__ import annotations

import builtins
import itertools
import sys
import types
from typing import Any

from dynamo_dap.debuggee.torch_internals.trackers.containers import key_of
from dynamo_dap.debuggee.torch_internals.trackers.forms import Composite, Form, SequenceForm, tuple_form
from dynamo_dap.debuggee.torch_internals.trackers.registry import form_of, reads
from dynamo_dap.debuggee.torch_internals.variable_trackers import (
    class_names,
    fields_of,
    is_tracker,
    is_unrealized,
    unwrapped,
)


@reads("LocalGeneratorObjectVariable")
def _generator(_tx: Any, tracker: Any) -> Form:
    fields = fields_of(tracker)
    code, inner = fields["code"], fields.get("inline_tracer")
    builtin = _builtin_iterator(code)
    name = code.co_name if builtin is not None else f"generator {code.co_name}"
    type_name = "generator" if builtin is None else builtin.__name__
    if inner is None:
        return Composite(name, (), type_name, code, cls=builtin)
    if getattr(inner, "generator_exhausted", False):
        return Composite(f"{name} (finished)", (), type_name, code, cls=builtin)
    line = inner.lineno if inner.lineno and inner.lineno > 0 else None
    where = "not started" if line is None else f"at line {line}"
    yielded = getattr(inner, "generated_items", None) or []
    parts: list[tuple[str, Any]] = list(inner.symbolic_locals.items())
    if yielded:
        parts.append(("yielded so far", SequenceForm(list(yielded))))
    if builtin is not None:
        return Composite(name, tuple(parts), type_name, code, cls=builtin)
    return Composite(f"{name} ({where})", tuple(parts), type_name, code)


def _builtin_iterator(code: types.CodeType) -> type | None:
    """Return the iterator type that torch's generator stands in for: ``enumerate``, ``itertools.chain``."""
    polyfills: Any = sys.modules.get("torch._dynamo.polyfills")
    if polyfills is None or not code.co_filename.startswith(tuple(polyfills.__path__)):
        return None
    found = getattr(builtins, code.co_name, None) or getattr(itertools, code.co_name, None)
    return found if isinstance(found, type) else None


@reads("ListIteratorVariable")
def _list_iterator(_tx: Any, tracker: Any) -> Form:
    fields = fields_of(tracker)
    items, index = fields["items"], fields["index"]
    rest = [] if fields.get("is_exhausted") else list(items[index:])
    kind = "tuple" if "TupleIteratorVariable" in class_names(tracker) else "list"
    title = f"{kind} iterator, {len(rest)} of {len(items)} left"
    parts = (("left", SequenceForm(rest)), ("index", index))
    return Composite(title, parts, f"{kind}_iterator", rebuild=lambda convert: iter([convert(item) for item in rest]))


@reads("RangeIteratorVariable")
def _range_iterator(_tx: Any, tracker: Any) -> Form:
    fields = fields_of(tracker)
    left = fields["len"]
    parts = (("next", fields["start"]), ("stop", fields["stop"]), ("step", fields["step"]), ("left", left))
    numbers = (fields["start"], fields["stop"], fields["step"])
    return Composite(
        f"range iterator, {left} left",
        parts,
        "range_iterator",
        rebuild=lambda convert: iter(range(*(convert(number) for number in numbers))),
    )


@reads("DictViewIterator")
def _view_iterator(_tx: Any, tracker: Any) -> Form:
    import copy

    kind = str(type(tracker).view_type)
    inner = fields_of(tracker)["_iter"]
    try:
        left = [_view_item(item) for item in copy.copy(inner)]
    except (TypeError, RuntimeError):
        return Composite(f"iterator of {kind}", ())
    of_set = type(tracker).__name__ == "SetIterator"
    what = "set" if of_set else f"dictionary {kind}"
    cls: type | None = type(iter(set())) if of_set else None  # of the others, Dynamo says the right one
    return Composite(f"iterator of {what}, {len(left)} left", (("left", SequenceForm(left)),), cls=cls)


def _view_item(item: Any) -> Any:
    if type(item) is tuple:
        return tuple_form([key_of(part) for part in item])
    return key_of(item)


@reads("ZipVariable")
def _zip(tx: Any, tracker: Any) -> Form:
    parts = [(str(number), iterable) for number, iterable in enumerate(_listed(tx, fields_of(tracker)["iterable"]))]
    return Composite("zip", tuple(parts), "zip", after=tuple(part for _, part in parts))


@reads("MapVariable")
def _map(tx: Any, tracker: Any) -> Form:
    fields = fields_of(tracker)
    iterables = _listed(tx, fields.get("iterable", fields.get("iterables", ())))
    parts = [("function", fields["fn"]), *((str(number), each) for number, each in enumerate(iterables))]
    return Composite("map", tuple(parts), "map", after=tuple(part for _, part in parts))


@reads("FilterVariable")
def _filter(_tx: Any, tracker: Any) -> Form:
    fields = fields_of(tracker)
    function, iterable = fields["fn"], fields["iterable"]
    return Composite("filter", (("function", function), ("iterable", iterable)), "filter", after=(function, iterable))


@reads("RepeatIteratorVariable")
def _repeat(_tx: Any, tracker: Any) -> Form:
    item = fields_of(tracker)["item"]
    return Composite("repeat", (("item", item),), "repeat", after=(item,))


@reads("CountIteratorVariable")
def _count(_tx: Any, tracker: Any) -> Form:
    fields = fields_of(tracker)
    parts = (("next", fields["item"]), ("step", fields["step"]))
    return Composite("count", parts, "count", after=(fields["item"], fields["step"]))


def _listed(tx: Any, value: Any) -> list[Any]:
    if is_tracker(value) and not is_unrealized(unwrapped(value)):
        form = form_of(tx, value)
        return list(form.items) if isinstance(form, SequenceForm) else [value]
    return list(value) if type(value) in (list, tuple) else [value]
