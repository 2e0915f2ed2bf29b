"""Reading trackers of lists, tuples, sets, dictionaries and their views.

Importing this module registers the readers. They run on the tracing thread.
"""

from __future__ import annotations

from typing import Any

from dynamo_dap.debuggee.torch_internals.trackers.forms import (
    Composite,
    Form,
    MappingForm,
    SequenceForm,
    SetForm,
    tuple_form,
)
from dynamo_dap.debuggee.torch_internals.trackers.registry import contents_of, form_of, reads
from dynamo_dap.debuggee.torch_internals.variable_trackers import (
    fields_of,
    held_value,
    is_tracker,
    is_unrealized,
    unwrapped,
)


@reads("BaseListVariable", "ListVariable")
def _list(_tx: Any, tracker: Any) -> Form:
    return SequenceForm(fields_of(tracker)["items"])


@reads("TupleVariable")
def _tuple(_tx: Any, tracker: Any) -> Form:
    return tuple_form(fields_of(tracker)["items"])


@reads("SizeVariable")
def _size(_tx: Any, tracker: Any) -> Form:
    return SequenceForm(fields_of(tracker)["items"], "torch.Size", "torch.Size([", "])")


@reads("DequeVariable")
def _deque(_tx: Any, tracker: Any) -> Form:
    return SequenceForm(fields_of(tracker)["items"], "deque", "deque([", "])")


@reads("RangeVariable")
def _range(_tx: Any, tracker: Any) -> Form:
    items = fields_of(tracker)["items"]
    parts = tuple(zip(("start", "stop", "step"), items, strict=False))
    return Composite(
        "range", parts, "range", after=tuple(items), rebuild=lambda convert: range(*(convert(item) for item in items))
    )


@reads("SliceVariable")
def _slice(_tx: Any, tracker: Any) -> Form:
    items = fields_of(tracker)["items"]
    parts = tuple(zip(("start", "stop", "step"), items, strict=False))
    return Composite(
        "slice", parts, "slice", after=tuple(items), rebuild=lambda convert: slice(*(convert(item) for item in items))
    )


@reads("SetVariable")
def _set(_tx: Any, tracker: Any) -> Form:
    return SetForm([key_of(key) for key in fields_of(tracker)["items"]])


@reads("FrozensetVariable")
def _frozen_set(_tx: Any, tracker: Any) -> Form:
    return SetForm([key_of(key) for key in fields_of(tracker)["items"]], "frozenset")


@reads("OrderedSetVariable")
def _ordered_set(_tx: Any, tracker: Any) -> Form:
    return SetForm([key_of(key) for key in fields_of(tracker)["items"]], "OrderedSet")


@reads("DictKeySetVariable")
def _key_set(_tx: Any, tracker: Any) -> Form:
    return SetForm([key_of(key) for key in fields_of(tracker)["items"]], "dict_keys")


@reads("ConstDictVariable")
def _dictionary(_tx: Any, tracker: Any) -> Form:
    fields = fields_of(tracker)
    cls = fields.get("user_cls", dict)
    return MappingForm(pairs_of(fields["items"]), cls.__name__ if isinstance(cls, type) else "dict")


@reads("DunderDictVariable")
def _attribute_dictionary(tx: Any, tracker: Any) -> Form:
    """Read ``obj.__dict__``; the proxy that stands in for its items would make trackers while iterating."""
    proxy = fields_of(tracker)["items"]
    stored = dict(proxy.item_dict)
    stored.update(tx.output.side_effects.store_attr_mutations.get(proxy.item, {}))
    kept = [(name, value) for name, value in stored.items() if type(value).__name__ != "DeletedVariable"]
    return MappingForm(kept)


@reads("MappingProxyVariable")
def _mapping_proxy(tx: Any, tracker: Any) -> Form:
    form = form_of(tx, fields_of(tracker)["dv_dict"])
    return MappingForm(form.pairs, "mappingproxy") if isinstance(form, MappingForm) else form


@reads("DictKeysVariable", "DictValuesVariable", "DictItemsVariable", "DictViewVariable")
def _view(tx: Any, tracker: Any) -> Form:
    kind = str(type(tracker).kv)
    form = form_of(tx, fields_of(tracker)["dv_dict"])
    pairs = form.pairs if isinstance(form, MappingForm) else ()
    parts = {"keys": [key for key, _ in pairs], "values": [value for _, value in pairs]}.get(kind)
    items: list[Any] = parts if parts is not None else [tuple_form(pair) for pair in pairs]
    return SequenceForm(items, f"dict_{kind}", f"dict_{kind}([", "])")


def key_of(key: Any) -> Any:
    """Return the tracker inside a dictionary's hashable key."""
    return key if is_tracker(key) else getattr(key, "vt", key)


def pairs_of(items: Any) -> list[tuple[Any, Any]]:
    """Return keys and values of a tracked dictionary."""
    return [(key_of(key), value) for key, value in dict.items(items)]


@reads("NamedTupleVariable", "StructSequenceVariable")
def _named_tuple(tx: Any, tracker: Any) -> Form:
    fields = fields_of(tracker)
    form = contents_of(tx, tracker)
    cls = fields["value_type"]
    names: tuple[str, ...] = tuple(getattr(cls, "_fields", ()) or getattr(cls, "__match_args__", ()))
    items = form.items if isinstance(form, SequenceForm) else ()
    name = fields["value_type"].__name__
    if len(names) != len(items):
        names = ()
    return SequenceForm(items, name, f"{name}(", ")", names, fields["value_type"])


def constant_of(value: Any) -> tuple[bool, Any]:
    """Return whether a key is a constant, and the constant."""
    value = unwrapped(value) if is_tracker(value) else value
    if not is_tracker(value):
        return True, value
    if is_unrealized(value):
        return True, held_value(value)
    if type(value).__name__ == "ConstantVariable":
        return True, fields_of(value)["value"]
    return False, None


def original_pairs(tracker: Any) -> list[tuple[Any, Any]]:
    """Return the keys and values that a tracked dictionary had when Dynamo met it."""
    fields = fields_of(tracker)
    base = fields.get("_base_vt")
    items = (fields_of(base) if base is not None else fields).get("original_items") or {}
    return [(key_of(key), value) for key, value in dict(items).items()]
