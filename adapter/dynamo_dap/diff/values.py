"""Finds the first value that differs between two runs. It has no side effects."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import zip_longest

from dynamo_dap.diff.model import Difference
from dynamo_dap.protocol.requests.hashed_calls import RANDOM_STATE, HashedCall, HashedValue
from dynamo_dap.records.model import Place

_LINE = re.compile(r"at line \d+")
_OF_PROCESS = re.compile(r"\.\d+\.")
"""The process id in a file name, of a process without a rank: it differs in each run."""
_DIGITS = 12
_LISTED = 20
_SAME_REFEREE = 1e-9
"""Upper bound of the relative difference between two float64 runs of one graph on the same inputs."""

LeaveOut = Callable[[str], None]


def differing_values(
    one: Mapping[str, list[HashedCall]], other: Mapping[str, list[HashedCall]], leave_out: LeaveOut
) -> Iterator[Difference]:
    """Yield the first difference of each process; later ones may follow from it."""
    for name in dict.fromkeys([*one, *other]):
        if _OF_PROCESS.search(name):
            leave_out("values of child processes that have no rank")
            continue
        yield from _of_process(one.get(name, []), other.get(name, []), leave_out)
    leave_out("values in ordinary Python, before a compiled graph gets them")


def _of_process(one: Sequence[HashedCall], other: Sequence[HashedCall], leave_out: LeaveOut) -> Iterator[Difference]:
    on_main = [[call for call in calls if call.is_on_main_thread] for calls in (one, other)]
    for at, (call, match) in enumerate(zip_longest(*on_main)):
        found = _of_order(call, match, at) if _identity(call) != _identity(match) else _of_pair(call, match, leave_out)
        if found is not None:
            yield found
            return
    on_others = [[call for call in calls if not call.is_on_main_thread] for calls in (one, other)]
    yield from _of_threads(on_others[0], on_others[1], leave_out)


def _of_threads(one: Sequence[HashedCall], other: Sequence[HashedCall], leave_out: LeaveOut) -> Iterator[Difference]:
    """Compare calls on other threads, paired by their inputs: the order of such calls varies."""
    matches: dict[object, list[HashedCall]] = defaultdict(list)
    for call in other:
        matches[_given(call)].append(call)
    for call in one:
        candidates = matches[_given(call)]
        if not candidates:
            leave_out("calls on other threads whose inputs differ in the second run")
            continue
        found = [_of_pair(call, each, leave_out) for each in candidates]
        first = found[0]
        if first is not None and None not in found:
            yield first
            return


def _given(call: HashedCall) -> object:
    return _identity(call), tuple(each.digest for each in call.inputs)


def _identity(call: HashedCall | None) -> object:
    return None if call is None else (_LINE.sub("at a line", call.function), call.is_backward)


def _named(call: HashedCall) -> str:
    return f"{'the backward pass of ' if call.is_backward else ''}{call.function}"


def _of_order(call: HashedCall | None, match: HashedCall | None, at: int) -> Difference:
    only = call or match
    assert only is not None
    if call is None or match is None:
        text = f"only {'A' if match is None else 'B'} has a compiled call {at + 1}: {_named(only)}"
    else:
        text = f"compiled call {at + 1} is {_named(call)} in A and {_named(match)} in B"
    return Difference("value", text, only.function, place=_place_of_call(call), place_in_b=_place_of_call(match))


def _of_pair(one: HashedCall | None, other: HashedCall | None, leave_out: LeaveOut) -> Difference | None:
    assert one is not None, "calls of one identity"
    assert other is not None
    for call in (one, other):
        if call.problem is not None:
            what = "operations" if call.outputs else "values"
            leave_out(f"{what} in some calls of {call.function}: {call.problem}")
    which = f"call {one.number} of {one.function}"
    inputs = _differing(one.inputs, other.inputs)
    if inputs:
        verb = "begins with" if inputs[0] == RANDOM_STATE else "gets"
        text = f"{which} {verb} another {inputs[0]}"
        if one.is_backward:
            text = f"the backward pass of {which} gets another gradient of {inputs[0]}"
        return _difference(one, other, f"{text}; compiled results before it are the same", one.inputs, other.inputs)
    outputs = _differing(one.outputs, other.outputs)
    if not outputs:
        return None
    if one.is_backward:
        text = f"the backward pass of {which} gives another gradient of {outputs[0]} from the same gradients"
        return _difference(one, other, text, one.outputs, other.outputs)
    pairs = list(zip(one.operations, other.operations, strict=False))
    operation = next((pair for pair in pairs if (pair[0].name, pair[0].digest) != (pair[1].name, pair[1].digest)), None)
    if operation is not None and operation[0].name == operation[1].name:
        text = f"{operation[0].name} in {which} gives another result from the same operands"
        return _difference(one, other, text, one.outputs, other.outputs, operation)
    text = f"{which} gives another {outputs[0]} from the same inputs"
    if pairs and operation is None and len(one.operations) == len(other.operations):
        text += "; its operations, run one by one, give the same: the compiled code differs"
    first = next(pair for pair in zip_longest(one.outputs, other.outputs) if not _is_same(*pair))
    return _difference(one, other, text, one.outputs, other.outputs, first)


def _difference(
    one: HashedCall,
    other: HashedCall,
    text: str,
    values: Sequence[HashedValue],
    values_in_b: Sequence[HashedValue],
    at: tuple[HashedValue | None, HashedValue | None] = (None, None),
) -> Difference:
    lines = []
    for value, match in zip_longest(values, values_in_b):
        if not _is_same(value, match):
            lines += [f"{sign}{_worded(each)}" for sign, each in (("-", value), ("+", match)) if each is not None]
            if value is not None and match is not None and (verdict := _nearer(value, match)) is not None:
                lines.append(f" {verdict}")
    return Difference(
        "value",
        text,
        one.function,
        [one.compile_id, other.compile_id],
        _place(at[0]) or _place_of_call(one),
        _place(at[1]) or _place_of_call(other),
        lines[:_LISTED],
    )


def _worded(value: HashedValue) -> str:
    error = "" if value.error is None else f"  error against float64: {value.error:.3g}"
    return f"{value.name}: {value.digest[:_DIGITS]}{error}"


def _nearer(one: HashedValue, other: HashedValue) -> str | None:
    """Return which value is nearer to the float64 run, if both have the same one."""
    if one.error is None or other.error is None or one.exact is None or other.exact is None:
        return None
    if abs(one.exact - other.exact) > _SAME_REFEREE * max(abs(one.exact), abs(other.exact)):
        return None
    if one.error == other.error:
        return "float64: A and B are equally near"
    return f"float64: {'A' if one.error < other.error else 'B'} is nearer"


def _differing(one: Sequence[HashedValue], other: Sequence[HashedValue]) -> list[str]:
    pairs = zip_longest(one, other)
    return [each.name for value, match in pairs if (each := value or match) is not None and not _is_same(value, match)]


def _is_same(value: HashedValue | None, match: HashedValue | None) -> bool:
    return value is not None and match is not None and value.digest == match.digest


def _place(value: HashedValue | None) -> Place | None:
    return None if value is None or value.path is None or value.line is None else Place(value.path, value.line)


def _place_of_call(call: HashedCall | None) -> Place | None:
    return None if call is None else Place(call.path, call.line)
