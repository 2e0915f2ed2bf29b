"""Advises on calls that raised while their compiled code ran. It has no side effects."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from dynamo_dap.records.advice.items import Item, Kind, at, called, compiles_of
from dynamo_dap.records.model import Compile, CompiledFunction, RaisedCall

_STRIDES = re.compile(r"expected size (\d+)==(\d+), stride (\d+)==(\d+) at dim=(\d+)")


def raised_items(functions: Iterable[CompiledFunction]) -> Iterator[Item]:
    """Yield an item for each kind of call that raised."""
    for function, compiled in compiles_of(functions):
        yield from (_item(function, compiled, call) for call in compiled.raised)


def _item(function: CompiledFunction, compiled: Compile, call: RaisedCall) -> Item:
    problem, *more = [line.strip() for line in call.problem.splitlines() if line.strip()]
    operator = (call.operation or "").removeprefix("torch.ops.")
    facts = [problem]
    advice = []
    fake = _fake_kernel(call, operator)
    if fake is not None:
        facts = [fake]
        advice = [f"correct the fake kernel of {operator}; torch.library.opcheck compares it with the real one"]
    elif operator:
        facts.append(f"in {operator}")
    if len(call.places) > 1:
        facts.append(f"which computes the lines {', '.join(map(at, call.places))}")
    if call.kernel is not None:
        facts.append(f"raised at {at(call.kernel)}")
    return Item(
        Kind.FAILED,
        f"{compiled.name} raised {problem.split(':')[0]} {'in a backward pass of' if call.is_backward else 'in'} "
        "compiled code",
        facts,
        advice,
        place=call.places[0] if len(call.places) == 1 else function.place,
        callers=called([call.caller]),
        compiles=[compiled.id],
        function=function.name,
        subject=" ".join([problem, *more]),
    )


def _fake_kernel(call: RaisedCall, operator: str) -> str | None:
    """Return how an operator's result differs from the result of its fake kernel; None for other problems."""
    found = _STRIDES.findall(call.problem)
    if not operator or not found or not call.problem.startswith("AssertionError"):
        return None
    parts = []
    for size, declared_size, stride, declared, dimension in found:
        if size != declared_size:
            parts.append(f"size {size} of dimension {dimension} (declared: {declared_size})")
        if stride != declared:
            parts.append(f"stride {stride} of dimension {dimension} (declared: {declared})")
    return f"{operator} returns {', '.join(parts)}" if parts else None
