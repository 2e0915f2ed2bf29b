"""Finds failed guards that did not cause a recompile, because a later compile accepts the value."""

from __future__ import annotations

import re

from dynamo_dap.records.model import Compile, CompiledFunction, GuardFailure

_SIZE = re.compile(r"size (?P<index>\d+) of (?P<name>.+)")
_LITERAL = re.compile(r"-?\d+(\.\d*)?|True|False|None|'[^']*'")
_SWITCHES = re.compile(r"GLOBAL_STATE changed:( (grad_mode|deterministic_algorithms(_warn_only)?|allow_tf32))+ ?")
"""Torch names these settings without a value. Each is on or off, so there is only one other value."""
_SOURCES = re.compile(r"\.size\(\)\[(\d+)\]")


def is_superseded(
    failure: GuardFailure, subject: str, compiled: Compile, function: CompiledFunction, subjects: set[tuple[str, str]]
) -> bool:
    """Return whether a later compile accepts the subject's value, and failed for another reason.

    At a recompile, torch reports one failed guard of each compile in its cache. Once ``x.shape[0]`` is dynamic, the
    guard of the first, static compile still fails for each new size, but another guard caused the recompile. The same
    holds for an attribute that changed once: its new value fails the first compile's guard again, and later compiles
    accept it.

    ``subject`` is the value that ``failure`` is about, for instance ``size 0 of x``. ``subjects`` has the compile id
    and the subject of every failed guard of this recompile.
    """
    size = _SIZE.fullmatch(subject)
    source = subject if size is None else f"{size['name']}.shape[{size['index']}]"
    earlier = function.compiles[: function.compiles.index(compiled)] if compiled in function.compiles else []
    since = [one.id.partition("#")[0] for one in earlier]
    if failure.compile_id not in since:
        return False
    # Take the last compile with this id: torch starts again with 0/0 after a reset.
    first = len(since) - since[::-1].index(failure.compile_id)
    failed = {identifier for identifier, _ in subjects}
    return any(
        each in failed and (each, subject) not in subjects and (source in _dynamic(one) or _has_value(one, failure))
        for each, one in zip(since[first:], earlier[first:], strict=True)
    )


def _has_value(compiled: Compile, failure: GuardFailure) -> bool:
    """Return whether the same guard with the same value caused this compile, which therefore accepts the value."""
    value = _comparable(failure)
    known = failure.compile_id, failure.expression, value
    return value is not None and any(
        (one.compile_id, one.expression, _comparable(one)) == known for one in compiled.failures
    )


def _comparable(failure: GuardFailure) -> str | int | None:
    """Return a text or number that identifies the call's value; None if different objects may have the same text."""
    if failure.object_now is not None:
        return failure.object_now
    if _SWITCHES.fullmatch(failure.expression):
        return "the other"
    value = failure.value_now
    return None if value is None or _LITERAL.fullmatch(value) is None else value


def _dynamic(compiled: Compile) -> set[str]:
    """Return the dynamic sizes and numbers of a compile, as the user wrote them."""
    sizes = {one.source for one in compiled.sizes if one.state == "dynamic"}
    named = {part.strip() for symbol in compiled.symbols for part in symbol.source.split(",")}
    return sizes | {_SOURCES.sub(r".shape[\1]", one) for one in named}
