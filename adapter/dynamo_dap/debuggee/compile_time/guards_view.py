"""The ``Guards`` scope: every guard that the trace has asked for, as an expression, with the line that caused it.

Tracing thread.
"""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

from dynamo_dap.debuggee.compile_time.graph_view import place_variable
from dynamo_dap.debuggee.torch_internals.guards import GuardFacts, ShapeGuardFacts
from dynamo_dap.debuggee.torch_internals.sources import as_the_user_wrote, steps_of
from dynamo_dap.debuggee.torch_internals.traced_frame import TracedFrame
from dynamo_dap.debuggee.torch_internals.variable_trackers import Place, is_source, source_name
from dynamo_dap.debuggee.values.families import preview
from dynamo_dap.debuggee.values.model import Children, Deferred, Location, Value, Variable, bounded_text
from dynamo_dap.debuggee.values.objects import stored_attribute
from dynamo_dap.debuggee.values.paging import in_pages
from dynamo_dap.debuggee.values.type_facts import instance_dictionary, qualified_name_of

_ROOM = 80


def guard_children(frame: TracedFrame) -> Children:
    """Return the guards as children, numbered in the order in which the trace asked for them."""
    entries = _entries(frame)

    def page(start: int, stop: int) -> list[Variable]:
        return [_variable(frame, start + at, entry) for at, entry in enumerate(entries[start:stop])]

    return in_pages(len(entries), page)


def _entries(frame: TracedFrame) -> list[GuardFacts | ShapeGuardFacts]:
    return [*frame.guards(), *frame.shape_guards()]


def guard_texts(frame: TracedFrame) -> list[tuple[str, GuardFacts | ShapeGuardFacts]]:
    """Return the guards asked for so far, each with its expression."""
    return [
        (guard_expression(frame, entry) if isinstance(entry, GuardFacts) else entry.expression, entry)
        for entry in _entries(frame)
    ]


def _variable(frame: TracedFrame, number: int, entry: GuardFacts | ShapeGuardFacts) -> Variable:
    value = _guard(frame, entry) if isinstance(entry, GuardFacts) else _shape_guard(entry)
    return Variable(str(number), value, declaration=value.location)


def _guard(frame: TracedFrame, guard: GuardFacts) -> Value:
    def facts() -> list[Variable]:
        readable = as_the_user_wrote(guard.name)
        parts = [Variable("type", Value(guard.check))]
        if guard.name:
            text = guard.name if readable == guard.name else f"{readable}, for guards {guard.name}"
            parts.append(Variable("source", Value(text)))
        inside = [] if guard.inside is None else [place_variable("asked for in", guard.inside)]
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


def guard_expression(frame: TracedFrame, guard: GuardFacts) -> str:
    """Return a guard as readable Python: ``type(L['x']) is list``; its name and source where nothing more is known."""
    if guard.check in _GLOBAL_STATE:
        return _GLOBAL_STATE[guard.check]
    write = _WRITERS.get(guard.check)
    if write is None:
        return f"{guard.check} {guard.name}".rstrip()
    if guard.check == "TENSOR_MATCH":
        return _tensor(frame, guard)
    return write(guard, resolved(frame, guard.source))


UNKNOWN = object()
"""What resolving gives when only the user's code could tell."""


def resolved(frame: TracedFrame, source: Any) -> Any:
    """Return the real object behind a source of Dynamo's; ``UNKNOWN`` when only the user's code could tell."""
    local_scope, global_scope = frame.scopes_of_sources
    value: Any = UNKNOWN
    for step, argument in steps_of(source) or ():
        if step in ("local", "global"):
            value = (local_scope if step == "local" else global_scope).get(argument, UNKNOWN)
        else:
            value = _step(value, step, argument)
        if value is UNKNOWN:
            break
    return value


def _step(value: Any, step: str, argument: Any) -> Any:
    if step == "attribute":
        return instance_dictionary(value) if argument == "__dict__" else stored_attribute(value, argument, UNKNOWN)
    if step == "item" and type(value) in (list, tuple, dict) and type(argument) in (int, str, bool):
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
    "SHAPE_ENV": "the conditions on sizes below",
}

Writer = Callable[[GuardFacts, Any], str]


def _same_type(guard: GuardFacts, value: Any) -> str:
    if value is UNKNOWN:
        return f"type({guard.name}) as now"
    return f"type({guard.name}) is {qualified_name_of(type(value))}"


def _equal(guard: GuardFacts, value: Any) -> str:
    return f"{guard.name} as now" if value is UNKNOWN else f"{guard.name} == {preview(value, _ROOM)}"


def _identical(guard: GuardFacts, value: Any) -> str:
    return f"{guard.name} is the same object" if value is UNKNOWN else f"{guard.name} is {preview(value, _ROOM)}"


def _same_code(guard: GuardFacts, value: Any) -> str:
    return (
        f"{guard.name}.__code__ as now"
        if value is UNKNOWN
        else f"{guard.name}.__code__ is that of {preview(value, _ROOM)}"
    )


def _length(guard: GuardFacts, value: Any) -> str:
    length = _safe_length(value)
    if length is None:
        return f"len({guard.name}) as now"
    return f"len({guard.name}) == {length}" if length else f"not {guard.name}"


def _safe_length(value: Any) -> int | None:
    for base in (dict, list, tuple, set, frozenset):
        if isinstance(value, base):
            return base.__len__(value)  # type: ignore[arg-type]
    return None


def _keys(guard: GuardFacts, value: Any) -> str:
    if not isinstance(value, dict):
        return f"keys of {guard.name} as now"
    return f"list({guard.name}.keys()) == {preview(list(dict.keys(value)), _ROOM)}"


def _tensor(frame: TracedFrame, guard: GuardFacts) -> str:
    """Return what is checked of a tensor, with the sizes that may vary as symbols."""
    example = frame.example_of_input(guard.source)
    return (
        f"TENSOR_MATCH {guard.name}" if example is None else f"TENSOR_MATCH {guard.name} as {preview(example, _ROOM)}"
    )


def _with_argument(template: str) -> Writer:
    return lambda guard, _: template.format(name=guard.name, argument=_argument_text(guard.argument))


def _argument_text(argument: Any) -> str:
    named = source_name(argument) if is_source(argument) else None
    return named if named is not None else preview(argument, _ROOM)


_WRITERS: dict[str, Writer] = {
    "TYPE_MATCH": _same_type,
    "CONSTANT_SUBCLASS_MATCH": _same_type,
    "NN_MODULE": _same_type,
    "EQUALS_MATCH": _equal,
    "CONSTANT_MATCH": _equal,
    "ID_MATCH": _identical,
    "BOOL_MATCH": _identical,
    "NONE_MATCH": lambda guard, _: f"{guard.name} is None",
    "NOT_NONE_MATCH": lambda guard, _: f"{guard.name} is not None",
    "CLASS_MATCH": _identical,
    "MODULE_MATCH": _identical,
    "PYMODULE_MATCH": _identical,
    "FUNCTION_MATCH": _identical,
    "BUILTIN_MATCH": _identical,
    "CLOSURE_MATCH": _same_code,
    "SEQUENCE_LENGTH": _length,
    "TUPLE_ITERATOR_LEN": lambda guard, _: f"length of {guard.name} as now",
    "RANGE_ITERATOR_MATCH": _equal,
    "DICT_KEYS_MATCH": _keys,
    "MAPPING_KEYS_CHECK": _keys,
    "TENSOR_MATCH": lambda guard, _: guard.name,
    "WEAKREF_ALIVE": lambda guard, _: f"{guard.name} is not None",
    "EMPTY_NN_MODULE_HOOKS_DICT": lambda guard, _: f"not {guard.name}",
    "HASATTR": _with_argument("hasattr({name}, {argument})"),
    "NOT_PRESENT_IN_GENERIC_DICT": _with_argument("{argument} not in {name}.__dict__"),
    "DICT_CONTAINS": _with_argument("{argument} in {name}"),
    "DICT_NOT_CONTAINS": _with_argument("{argument} not in {name}"),
    "SET_CONTAINS": _with_argument("{argument} in {name}"),
    "SET_NOT_CONTAINS": _with_argument("{argument} not in {name}"),
    "DUPLICATE_INPUT": _with_argument("{name} is {argument}"),
    "OBJECT_ALIASING": _with_argument("{name} is {argument}"),
}
