"""Reads a cache entry's checks from torch's tree of guards. All our counts of guards come from here.

Torch's own ``guard_count`` counts some checks twice, and a trace's guards include some that calls do not check. Here a
check counts once, and the marks of one tensor (such as ``_dynamo_dynamic_indices``) count as one. No guard is
evaluated. Runs on any thread; nothing is kept.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from dynamo_dap.debuggee.torch_api.cache.recompiles import split_check
from dynamo_dap.debuggee.torch_api.traced.variable_trackers import Place
from dynamo_dap.protocol.texts import folded_check, in_user_terms

SIZES = "SHAPE_ENV"
"""The kind of conditions on sizes, which are checked last."""
_OF_TENSOR = re.compile(r"check_tensor\((?P<name>.+?), [\w.<>]+, DispatchKeySet\(")
"""As ``torch._dynamo.guards.get_tensor_guard_code_part`` writes it."""
_TENSOR_FAILURE = re.compile(
    r"tensor '(?P<name>.+?)' .*mismatch|expected type of '(?P<typed>.+?)' to be (?:a tensor type|<class 'torch\.)"
)
"""The form of a tensor check's failure message."""


class GuardCheck(NamedTuple):
    """One check that an entry makes at each call; all marks of one tensor are one check."""

    parts: tuple[str, ...]
    """In torch's words, without its comments."""
    place: Place | None
    """The user's line that caused it, if torch reports it."""
    kind: str
    """Torch's class of this guard: ``TENSOR_MATCH``; for conditions on sizes ``SIZES``."""
    failures: int | None = None
    """How often it failed; None if unknown."""
    object_failures: int | None = None
    """How often this check or another one of the same object failed, if torch does not say which."""

    @property
    def expression(self) -> str:
        """All parts as one expression."""
        return " and ".join(self.parts)


class _Read(NamedTuple):
    """One part of a guard in torch's tree."""

    expression: str
    place: Place | None
    kind: str
    owner: int
    """The number of the checked object."""
    failures: int | None


def checks_of_manager(manager: object, failed: Sequence[str] = ()) -> list[GuardCheck]:
    """Return a guard manager's checks, in order.

    ``failed`` are the known failure messages: torch counts failures only per object.
    """
    found: dict[str, list[_Read]] = {}
    for one in _parts(manager):
        parts = found.setdefault(folded_check(one.expression), [])
        if all(one.expression != other.expression for other in parts):
            parts.append(one)
    # The tree contains a check of several objects at each of them.
    alone = Counter(parts[0].owner for parts in found.values() if not _is_of_several(parts[0]))
    known = Counter(_key_of_failure(message) for message in failed)
    unknown = {parts[0].owner: parts[0].failures or 0 for parts in found.values()}
    proven: list[int | None] = []
    for parts in found.values():
        first = parts[0]
        count: int | None = None
        if first.failures is not None:
            is_only = alone[first.owner] == 1 and not _is_of_several(first)
            count = first.failures if is_only else min(first.failures, known[_key(first.expression)])
            unknown[first.owner] -= count
        proven.append(count)
    made: list[GuardCheck] = []
    for parts, count in zip(found.values(), proven, strict=True):
        first = parts[0]
        rest = unknown.pop(first.owner, 0)
        expressions = tuple(one.expression for one in parts)
        made.append(GuardCheck(expressions, first.place, first.kind, count, rest if rest > 0 else None))
    return made


def _is_of_several(part: _Read) -> bool:
    return part.kind in ("NO_TENSOR_ALIASING", "OBJECT_ALIASING")


def _parts(manager: object) -> Iterator[_Read]:
    root = getattr(manager, "root", None)
    read: list[_Read] = []
    try:
        _read_below(root, root, [0], read)
    except (AttributeError, TypeError):  # a version of torch that does not show the tree
        read.clear()
    known = {one.expression for one in read}
    yield from read
    for number, text in enumerate(getattr(manager, "code_parts", None) or (), 1):
        expression, place = split_check(str(text))
        if expression not in known:
            yield _Read(expression, place, "", -number, None)


def _read_below(manager: Any, root: Any, numbers: list[int], found: list[_Read]) -> None:
    """Add the parts of the guards of ``manager`` and of what it contains. A model has thousands of managers."""
    numbers[0] += 1
    owner = numbers[0]
    inner = [one for one in manager.get_child_managers() if one is not None]
    if hasattr(manager, "get_key_value_managers"):
        pairs = manager.get_key_value_managers().values()
        inner[:0] = [one for pair in pairs for one in pair if one is not None]
    # A failure is counted for the object and for those through which it is reached.
    failures = int(manager.fail_count())
    if failures:
        failures = max(0, failures - sum([int(one.fail_count()) for one in inner]))
    guards = [(guard, type(guard).__name__) for guard in manager.get_leaf_guards()]
    if manager is root:
        guards += [(guard, SIZES) for guard in manager.get_epilogue_lambda_guards()]
    for guard, kind in guards:
        for text in guard.verbose_code_parts():
            expression, place = split_check(str(text))
            found.append(_Read(expression, place, kind, owner, failures))
    for one in inner:
        _read_below(one, root, numbers, found)


def checked_tensor(expression: str) -> str | None:
    """Return the source of a tensor check: ``L['x']``; None for other checks."""
    tensor = _OF_TENSOR.match(expression)
    return None if tensor is None else tensor["name"]


def _key(expression: str) -> str:
    tensor = checked_tensor(expression)
    return in_user_terms(expression) if tensor is None else f"tensor {in_user_terms(tensor)}"


def _key_of_failure(message: str) -> str:
    tensor = _TENSOR_FAILURE.match(message)
    if tensor is not None:
        return f"tensor {in_user_terms(tensor['name'] or tensor['typed'])}"
    return in_user_terms(split_check(message)[0])
