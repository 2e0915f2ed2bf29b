"""Shows the scope ``Guards``: every guard of the trace so far, as an expression, with the line that caused it.

Runs on the tracing thread.
"""

from __future__ import annotations

import types
import weakref
from typing import Any

from dynamo_dap.debuggee.bytecode.exact_types import is_a, is_exactly
from dynamo_dap.debuggee.torch_api.cache.guards import GuardFacts, ShapeGuardFacts
from dynamo_dap.debuggee.torch_api.traced.sources import steps_of
from dynamo_dap.debuggee.torch_api.traced.traced_frame import TracedFrame
from dynamo_dap.debuggee.torch_api.traced.variable_trackers import Place, is_source, source_name
from dynamo_dap.debuggee.trace.graph_view import place_variable
from dynamo_dap.debuggee.values.model import Children, Deferred, Location, Value, Variable, bounded_text, preview
from dynamo_dap.debuggee.values.objects import stored_attribute
from dynamo_dap.debuggee.values.paging import in_pages
from dynamo_dap.debuggee.values.type_facts import instance_dictionary, qualified_name_of
from dynamo_dap.protocol.texts import in_user_terms

_WIDTH = 80


def guard_children(frame: TracedFrame) -> Children:
    """Return the guards as children, numbered in the order in which the trace installed them."""
    entries = _entries(frame)

    def page(start: int, stop: int) -> list[Variable]:
        return [_variable(frame, start + at, entry) for at, entry in enumerate(entries[start:stop])]

    return in_pages(len(entries), page)


def _entries(frame: TracedFrame) -> list[GuardFacts | ShapeGuardFacts]:
    guards, of_sizes = frame.guards(), frame.shape_guards()
    # The guard SHAPE_ENV means all conditions on sizes, which are listed instead.
    return [*(guard for guard in guards if guard.check != "SHAPE_ENV"), *of_sizes]


def guard_texts(frame: TracedFrame) -> list[tuple[str, GuardFacts | ShapeGuardFacts]]:
    """Return the guards so far, each with its expression."""
    return [
        (guard_expression(frame, entry) if isinstance(entry, GuardFacts) else entry.expression, entry)
        for entry in _entries(frame)
    ]


def _variable(frame: TracedFrame, number: int, entry: GuardFacts | ShapeGuardFacts) -> Variable:
    value = _guard(frame, entry) if isinstance(entry, GuardFacts) else _shape_guard(entry)
    return Variable(str(number), value, declaration=value.location)


def _guard(frame: TracedFrame, guard: GuardFacts) -> Value:
    def facts() -> list[Variable]:
        readable = in_user_terms(guard.name)
        parts = [Variable("type", Value(guard.check))]
        if guard.name:
            text = guard.name if readable == guard.name else f"{readable}, for guards {guard.name}"
            parts.append(Variable("source", Value(text)))
        inside = [] if guard.inside is None else [place_variable("installed in", guard.inside)]
        return [*parts, *_place(guard.place), *inside]

    return Value(
        bounded_text(guard_expression(frame, guard)),
        guard.check,
        Deferred(facts),
        location=_location(guard.place),
    )


def _shape_guard(guard: ShapeGuardFacts) -> Value:
    def facts() -> list[Variable]:
        parts = [("type", "SHAPE_ENV"), ("symbolic", guard.symbolic), ("because", guard.reason)]
        return [*(Variable(name, Value(text)) for name, text in parts), *_place(guard.place)]

    return Value(bounded_text(guard.expression), "SHAPE_ENV", Deferred(facts), location=_location(guard.place))


def _place(place: Place | None) -> list[Variable]:
    return [] if place is None else [place_variable("user line", place)]


def _location(place: Place | None) -> Location | None:
    return None if place is None else Location(place.path, place.line, place.column)


_noted: dict[int, tuple[weakref.ref[object], dict[tuple[str, str], str]]] = {}
"""Guard expressions of attempts, noted before the program continued.

By the identity of the attempt, then by the guard's check and source.
"""


def note_expressions(frame: TracedFrame) -> None:
    """Keep the guards' present expressions, before the program changes its objects."""
    known = {(each.check, each.name): guard_expression(frame, each) for each in frame.guards()}
    key = id(frame.attempt)
    _noted[key] = weakref.ref(frame.attempt, lambda _: _noted.pop(key, None)), known


def guard_expression(frame: TracedFrame, guard: GuardFacts) -> str:
    """Return a guard as Python, like ``type(L['x']) is list``; its check and source if nothing more is known."""
    noted = _noted.get(id(frame.attempt))
    if noted is not None and (guard.check, guard.name) in noted[1]:
        return noted[1][guard.check, guard.name]
    if guard.check in _GLOBAL_STATE:
        return _GLOBAL_STATE[guard.check]
    if guard.check == "TENSOR_MATCH":
        # The example shows each size that may vary as a symbol.
        example = frame.example_of_input(guard.source)
        return f"TENSOR_MATCH {guard.name}" + ("" if example is None else f" as {preview(example, _WIDTH)}")
    if guard.check not in _TEMPLATES:
        return f"{guard.check} {guard.name}".rstrip()
    unknown, known = _TEMPLATES[guard.check]
    value = UNKNOWN if known is None else resolved(frame, guard.source)
    if known is not None and value is not UNKNOWN:
        try:
            text = known.format(name=guard.name, value=_Guarded(value))
            return f"not {guard.name}" if text == f"len({guard.name}) == 0" else text
        except LookupError:
            pass
    return unknown.format(name=guard.name, argument=_argument_text(guard.argument))


class _Guarded:
    """A guarded object, for guard templates; raises ``LookupError`` for a missing attribute or item."""

    def __init__(self, value: object) -> None:
        self._value = value

    def __str__(self) -> str:
        return preview(self._value, _WIDTH)

    @property
    def type(self) -> str:
        return qualified_name_of(type(self._value))

    @property
    def length(self) -> int:
        bases: tuple[Any, ...] = (dict, list, tuple, set, frozenset)
        base = next((base for base in bases if is_a(self._value, base)), None)
        if base is None:
            raise LookupError
        return int(base.__len__(self._value))

    @property
    def keys(self) -> str:
        if not is_a(self._value, dict):
            raise LookupError
        return preview(list(dict.keys(self._value)), _WIDTH)


UNKNOWN = object()
"""The result of resolving if only the user's code could find the object."""


def resolved(frame: TracedFrame, source: object) -> Any:
    """Return the real object of a Dynamo source; ``UNKNOWN`` if only the user's code could find it."""
    local_scope, global_scope = frame.scopes_of_sources
    value = UNKNOWN
    for step, argument in steps_of(source) or ():
        if step in ("local", "global"):
            value = (local_scope if step == "local" else global_scope).get(argument, UNKNOWN)
        else:
            value = _step(value, step, argument)
        if value is UNKNOWN:
            break
    return value


def _step(value: Any, step: str, argument: Any) -> object:
    if step == "attribute":
        return instance_dictionary(value) if argument == "__dict__" else stored_attribute(value, argument, UNKNOWN)
    if step == "item" and is_exactly(value, (list, tuple, dict)) and is_exactly(argument, (int, str, bool)):
        try:
            return value[argument]
        except LookupError:
            return UNKNOWN
    if step == "type":
        return type(value)
    return value.__code__ if step == "code" and type(value) is types.FunctionType else UNKNOWN


_GLOBAL_STATE = {
    "GRAD_MODE": "torch.is_grad_enabled() as now",
    "DETERMINISTIC_ALGORITHMS": "torch.are_deterministic_algorithms_enabled() as now",
    "DEFAULT_DEVICE": "default device as now",
    "TORCH_FUNCTION_STATE": "torch function modes as now",
    "GLOBAL_STATE": "global state (grad mode, autocast, threads, dtype, determinism) as now",
    "FSDP_TRAINING_STATE": "FSDP training state as now",
    "AUTOGRAD_SAVED_TENSORS_HOOKS": "saved-tensor hooks as now",
}


def _argument_text(argument: object) -> str:
    named = source_name(argument) if is_source(argument) else None
    return named if named is not None else preview(argument, _WIDTH)


_SAME_TYPE = ("type({name}) as now", "type({name}) is {value.type}")
_EQUAL = ("{name} as now", "{name} == {value}")
_IDENTICAL = ("{name} is the same object", "{name} is {value}")
_SAME_KEYS = ("keys of {name} as now", "list({name}.keys()) == {value.keys}")
_TEMPLATES: dict[str, tuple[str, str | None]] = {
    "TYPE_MATCH": _SAME_TYPE,
    "CONSTANT_SUBCLASS_MATCH": _SAME_TYPE,
    "NN_MODULE": _SAME_TYPE,
    "EQUALS_MATCH": _EQUAL,
    "CONSTANT_MATCH": _EQUAL,
    "RANGE_ITERATOR_MATCH": _EQUAL,
    "ID_MATCH": _IDENTICAL,
    "BOOL_MATCH": _IDENTICAL,
    "CLASS_MATCH": _IDENTICAL,
    "MODULE_MATCH": _IDENTICAL,
    "PYMODULE_MATCH": _IDENTICAL,
    "FUNCTION_MATCH": _IDENTICAL,
    "BUILTIN_MATCH": _IDENTICAL,
    "CLOSURE_MATCH": ("{name}.__code__ as now", "{name}.__code__ is that of {value}"),
    "SEQUENCE_LENGTH": ("len({name}) as now", "len({name}) == {value.length}"),
    "DICT_KEYS_MATCH": _SAME_KEYS,
    "MAPPING_KEYS_CHECK": _SAME_KEYS,
    "TUPLE_ITERATOR_LEN": ("length of {name} as now", None),
    "NONE_MATCH": ("{name} is None", None),
    "NOT_NONE_MATCH": ("{name} is not None", None),
    "WEAKREF_ALIVE": ("{name} is not None", None),
    "EMPTY_NN_MODULE_HOOKS_DICT": ("not {name}", None),
    "HASATTR": ("hasattr({name}, {argument})", None),
    "NOT_PRESENT_IN_GENERIC_DICT": ("{argument} not in {name}.__dict__", None),
    "DICT_CONTAINS": ("{argument} in {name}", None),
    "DICT_NOT_CONTAINS": ("{argument} not in {name}", None),
    "SET_CONTAINS": ("{argument} in {name}", None),
    "SET_NOT_CONTAINS": ("{argument} not in {name}", None),
    "DUPLICATE_INPUT": ("{name} is {argument}", None),
    "OBJECT_ALIASING": ("{name} is {argument}", None),
}
"""For each check, its text if the object is unknown, and if it is known (None: the same text)."""
