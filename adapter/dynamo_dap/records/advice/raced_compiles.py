"""Describes failed guards, and finds needless compiles: an earlier compile accepts the call. It has no side effects.

Torch holds a lock while it compiles, but not while it looks for a compile in its cache. So if several threads make the
first call with some arguments at the same time, each compiles the function, one after the other. Before a recompile,
torch checks the guards of earlier compiles again to report which failed. It then reports if all guards of one hold.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from dynamo_dap.protocol.texts import counted
from dynamo_dap.records.advice.items import Item, Kind, called, caller_of
from dynamo_dap.records.model import Compile, CompiledFunction, GuardFailure

_ACCEPTED = "Unexpected recompilation: runtime guards failed even though they passed"
"""The beginning of torch's text if all guards of an earlier compile hold."""


def accepts_now(expression: str) -> bool:
    """Return whether torch's text reports no failed guard: all guards held when torch checked again."""
    return expression.startswith(_ACCEPTED)


def is_raced(compiled: Compile) -> bool:
    """Return whether an earlier compile accepts the call for which this one was made."""
    return any(accepts_now(failure.expression) for failure in compiled.failures)


def failure_text(failure: GuardFailure) -> str:
    """Return why an earlier compile could not be used: ``size 0 of x was 10 and is 30``."""
    if accepts_now(failure.expression):
        return f"[{failure.compile_id}] accepts the call now; another thread may have compiled it at the same time"
    return failure.text or failure.expression


def failed_guard_text(failure: GuardFailure) -> str:
    """Return a sentence about a failed guard: ``a guard of [0/0] failed: size 0 of x was 10 and is 30``."""
    text = failure_text(failure)
    return text if accepts_now(failure.expression) else f"a guard of [{failure.compile_id}] failed: {text}"


def raced_items(functions: Iterable[CompiledFunction]) -> Iterator[Item]:
    """Yield one item for each function with needless compiles."""
    for function in functions:
        raced = [compiled for compiled in function.compiles if is_raced(compiled)]
        if raced:
            yield Item(
                Kind.CHANGE,
                f"{function.name} was compiled {counted(len(raced), 'time')} for calls that an earlier compile accepts",
                ["its guards held when torch checked them again: another thread may have compiled it meanwhile"],
                ["if several threads call it: call it once with such arguments before they start"],
                place=function.place,
                callers=called(caller_of(function, compiled) for compiled in raced),
                compiles=[compiled.id for compiled in raced],
                seconds=sum(compiled.seconds or 0.0 for compiled in raced),
                function=function.name,
                subject="calls that an earlier compile accepts",
            )
