"""Finds the failed guards that did not cause a recompile, because a later compile accepts the value."""

from __future__ import annotations

import re

from dynamo_dap.records.model import Compile, CompiledFunction, GuardFailure

_SIZE = re.compile(r"size (?P<index>\d+) of (?P<name>.+)")
_LITERAL = re.compile(r"-?\d+(\.\d*)?|True|False|None|'[^']*'")
_SWITCHES = re.compile(r"GLOBAL_STATE changed:( (grad_mode|deterministic_algorithms(_warn_only)?|allow_tf32))+ ?")
"""Torch names what changed, and no value: each of these is on or off, so there is only one other value."""
_SOURCES = re.compile(r"\.size\(\)\[(\d+)\]")


def is_superseded(
    failure: GuardFailure, subject: str, compiled: Compile, function: CompiledFunction, subjects: set[tuple[str, str]]
) -> bool:
    """Return whether a later compile accepts the subject's value, and failed for another reason.

    Torch checks each compile in its cache and notes one failed guard of each. After ``x.shape[0]`` became dynamic, the
    guard of the first, static compile still fails for each new size, but the new compile is due to something else. The
    same holds for an attribute that changed once: the first compile refuses the value with which later ones were made.

    ``subject`` is what the failed guard is about, for instance ``size 0 of x``; ``subjects`` has that of each failed
    guard, with the id of its compile.
    """
    size = _SIZE.fullmatch(subject)
    source = subject if size is None else f"{size['name']}.shape[{size['index']}]"
    earlier = function.compiles[: function.compiles.index(compiled)] if compiled in function.compiles else []
    since = [one.id.partition("#")[0] for one in earlier]
    if failure.compile_id not in since:
        return False
    # The last one of an id: torch numbers anew after a reset.
    first = len(since) - since[::-1].index(failure.compile_id)
    failed = {identifier for identifier, _ in subjects}
    return any(
        each in failed and (each, subject) not in subjects and (source in _dynamic(one) or _has_value(one, failure))
        for each, one in zip(since[first:], earlier[first:], strict=True)
    )


def _has_value(compiled: Compile, failure: GuardFailure) -> bool:
    """Return whether a compile was made for the value that fails again: the same guard failed with the same value."""
    value = _comparable(failure)
    known = failure.compile_id, failure.expression, value
    return value is not None and any(
        (one.compile_id, one.expression, _comparable(one)) == known for one in compiled.failures
    )


def _comparable(failure: GuardFailure) -> str | int | None:
    """Return the value of the call if equal results mean one value; None for other objects, of equal texts."""
    if failure.object_now is not None:
        return failure.object_now
    if _SWITCHES.fullmatch(failure.expression):
        return "the other"
    value = failure.value_now
    return None if value is None or _LITERAL.fullmatch(value) is None else value


def _dynamic(compiled: Compile) -> set[str]:
    """Return the sizes and numbers that a compile accepts with other values, as the user wrote them."""
    sizes = {one.source for one in compiled.sizes if one.state == "dynamic"}
    named = {part.strip() for symbol in compiled.symbols for part in symbol.source.split(",")}
    return sizes | {_SOURCES.sub(r".shape[\1]", one) for one in named}
