"""Reads Dynamo's VariableTrackers without realizing them, and the attributes that traced code stored on their values.

``isinstance`` on a lazy tracker realizes it (adds guards and graph inputs), and so does almost any attribute, since its
class forwards attributes that it lacks. So trackers are read through their ``__dict__`` alone, and distinguished by
``type``. Runs on the tracing thread.
"""

from __future__ import annotations

import functools
import sys
from typing import Any, NamedTuple

from dynamo_dap.debuggee.bytecode.exact_types import is_exactly
from dynamo_dap.debuggee.torch_api.objects import Translator

Tracker = object
"""A ``VariableTracker``, or a real object or form that Dynamo keeps in its place; opaque to other packages."""

_dictionary = object.__getattribute__


def is_tracker(value: object) -> bool:
    """Return whether ``value`` is a VariableTracker, lazy or not."""
    module = sys.modules.get("torch._dynamo.variables.base")
    if module is None:
        return False
    # By identity: the metaclass of a user's class may have an ``__eq__``, which we must not call.
    return any(base is module.VariableTracker for base in type.__dict__["__mro__"].__get__(type(value)))


def fields_of(tracker: object) -> dict[str, Any]:
    """Return the tracker's own fields, not a copy: do not change the dictionary."""
    fields: dict[str, object] = _dictionary(tracker, "__dict__")
    return fields


def field(tracker: object, name: str, default: object = None) -> Any:
    """Return one field of the tracker, or ``default`` if this version of torch has no such field."""
    return fields_of(tracker).get(name, default)


def class_names(tracker: object) -> tuple[str, ...]:
    """Return the names of the tracker's class and its bases, most derived first."""
    return tuple(base.__name__ for base in type.__dict__["__mro__"].__get__(type(tracker)))


def unwrapped(tracker: Tracker) -> Any:
    """Return the real tracker behind a lazy one that is realized already, else the tracker itself."""
    for _ in range(_WRAPPERS):
        cache = fields_of(tracker).get("_cache")
        behind = getattr(cache, "vt", None)
        if behind is None:
            return tracker
        tracker = behind
    return tracker


_WRAPPERS = 8
"""How many nested lazy trackers are followed; torch makes one."""


def is_unrealized(tracker: object) -> bool:
    """Return whether this is a lazy tracker whose object the traced code has not touched yet."""
    return "_cache" in fields_of(tracker) and getattr(fields_of(tracker)["_cache"], "vt", None) is None


def held_value(tracker: object) -> object:
    """Return the real object that an unrealized tracker holds."""
    return fields_of(tracker)["_cache"].value


def source_of(tracker: object) -> object:
    """Return the value's origin (a torch ``Source``); None if the traced code made it."""
    source = fields_of(tracker).get("source")
    if source is None and is_unrealized(tracker):
        return getattr(fields_of(tracker)["_cache"], "source", None)
    return source


def source_name(source: Any) -> str | None:
    """Return the expression of a source, as guards write it: ``L['x']``; None if it has no expression."""
    if source is None:
        return None
    try:
        name = source.name
        return str(name() if callable(name) else name) or None
    except (NotImplementedError, AttributeError):
        return type(source).__name__


def is_source(value: object) -> bool:
    """Return whether ``value`` is one of Dynamo's sources."""
    return type(value).__module__ == "torch._dynamo.source"


class Place(NamedTuple):
    """A place in the user's code: 1-based line and column."""

    path: str
    line: int
    column: int


@functools.lru_cache(maxsize=4096)  # asked for each guard of each compile
def is_torchs(path: str) -> bool:
    """Return whether a traced file belongs to torch."""
    return path.startswith(str(sys.modules["torch"].__path__[0]))


def users_frame(stack: Any) -> tuple[Place, str, Place | None]:
    """Return a traceback summary's innermost frame outside torch: place, function, and the innermost of all.

    The last is None if it is the same. A library function of torch represents the line that called it.
    """
    innermost = stack[-1]
    user = next((frame for frame in reversed(stack) if not is_torchs(frame.filename)), innermost)
    return _place_of(user), str(user.name), None if innermost is user else _place_of(innermost)


def _place_of(frame: Any) -> Place:
    return Place(frame.filename, frame.lineno or 1, (getattr(frame, "colno", None) or 0) + 1)


def created_at(tracker: object) -> Place | None:
    """Return the place of the instruction that made the tracker, if this torch version notes it.

    NULL on the value stack is a marker, not a value, and has no place.
    """
    place = fields_of(tracker).get("source_location")
    if place is None or type(tracker).__name__ == "NullVariable":
        return None
    return Place(place.filename, place.lineno, (place.col_offset or 0) + 1)


def mutation_state(tracker: object) -> str:
    """Return the value's mutation state in Dynamo: ``new``, ``modified``, ``immutable`` ..."""
    mutation = fields_of(tracker).get("mutation_type")
    if mutation is None:
        return "immutable"
    kind = type(mutation).__name__
    if kind == "ValueMutationExisting":
        return "existed before, modified" if mutation.is_modified else "existed before, not modified"
    return _MUTATIONS.get(kind, kind)


def is_modified(tracker: object) -> bool:
    """Return whether the traced code modified a container, or an object with one, that existed before the trace."""
    own = fields_of(tracker)
    base = own.get("_base_vt")
    of_base = None if base is None else fields_of(base).get("mutation_type")
    mutations = (own.get("mutation_type"), of_base)
    return any(getattr(each, "is_modified", False) for each in mutations)


_MUTATIONS = {
    "ValueMutationNew": "new",
    "AttributeMutationNew": "new",
    "AttributeMutationExisting": "existed before",
}


def node_of(tracker: object) -> Any:
    """Return the FX node that computes the value; None if it is not in the graph."""
    return getattr(fields_of(tracker).get("proxy"), "node", None)


def class_of(tracker: object) -> type | None:
    """Return the value's class in traced code; None if Dynamo does not know it yet.

    Trackers whose class can be found only by making the value are not read.
    """
    base = sys.modules["torch._dynamo.variables.base"].VariableTracker
    asked: Any = getattr(type(tracker), "python_type", None)
    try:
        kind = _class_by_name(tracker) if asked is base.python_type else asked(tracker)
    except (AttributeError, KeyError, NotImplementedError, TypeError):
        return None
    return kind if isinstance(kind, type) else None


def _class_by_name(tracker: Any) -> object:
    """Return the call that recreates a context manager after the graph, from its tracker."""
    return getattr(sys.modules[type(tracker).module_name(tracker)], type(tracker).fn_name(tracker))


def held_trackers(tracker: object) -> list[tuple[str, object]]:
    """Return every tracker inside ``tracker``, with the field's name: the parts of an unknown class."""
    own = fields_of(tracker)
    return [(name, value) for name, value in own.items() if name not in _BOOKKEEPING and _holds(value)]


_BOOKKEEPING = frozenset({"mutation_type", "source", "source_location", "parents_tracker", "user_code_variable_name"})


def _holds(value: object) -> bool:
    if is_tracker(value):
        return True
    if is_exactly(value, (list, tuple)):
        return any(is_tracker(item) for item in value)  # type: ignore[attr-defined]  # a container by its type
    return type(value) is dict and any(is_tracker(item) for item in value.values())


def key_of(key: object) -> object:
    """Return the tracker inside a dictionary's hashable key."""
    return key if is_tracker(key) else getattr(key, "vt", key)


def constant_in(value: object) -> Any:
    """Return the constant of a ConstantVariable, or ``value`` when it is not a tracker."""
    value = unwrapped(value) if "_cache" in getattr(value, "__dict__", ()) else value
    return fields_of(value)["value"] if type(value).__name__ == "ConstantVariable" else value


def constant_of(value: object) -> tuple[bool, object]:
    """Return whether a key is a constant, and the constant."""
    value = unwrapped(value) if is_tracker(value) else value
    if not is_tracker(value):
        return True, value
    if is_unrealized(value):
        return True, held_value(value)
    is_constant = type(value).__name__ == "ConstantVariable"
    return is_constant, fields_of(value)["value"] if is_constant else None


def original_pairs(tracker: object) -> list[tuple[object, object]]:
    """Return the keys and values that a tracked dictionary had when Dynamo met it."""
    fields = fields_of(tracker)
    base = fields.get("_base_vt")
    items = (fields_of(base) if base is not None else fields).get("original_items") or {}
    return [(key_of(key), value) for key, value in dict(items).items()]


def pending_attributes(tx: Translator, tracker: object) -> dict[str, object]:
    """Return what the traced code stored on ``tracker``: name to tracker, a ``DeletedVariable`` for ``del``."""
    stored: dict[str, object] = tx.output.side_effects.store_attr_mutations.get(unwrapped(tracker), {})
    return stored


def is_deleted(tracker: object) -> bool:
    """Return whether a pending attribute is a deletion."""
    return type(tracker).__name__ == "DeletedVariable"


def cell_contents(tx: Translator, cell: object) -> object:
    """Return the tracker of what a cell holds now; None for an empty one."""
    pending = pending_attributes(tx, cell)
    if "cell_contents" in pending:
        return pending["cell_contents"]
    return fields_of(cell).get("pre_existing_contents")


def changed_variable(tracker: object, name: str, source: str) -> str | None:
    """Return the variable that a pending store changes (``nonlocal total``, ``global counter``), or None."""
    kind = type(tracker).__name__
    if kind == "CellVariable":
        return f"nonlocal {fields_of(tracker).get('local_name') or source}"
    return f"global {name}" if kind == "NewGlobalVariable" else None
