"""Why cache entries do not serve a call: torch's sentences taken apart, and the user's line of the guard.

The sentence is made by ``torch._dynamo.guards.get_guard_fail_reason``: ``0/0: `` and the part of the guard that
failed, then perhaps the stack of the user's that installed it. Compiling thread, before the new trace.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from dynamo_dap.debuggee.torch_internals.variable_trackers import Place

_COMPILE_ID = re.compile(r"^(?:\[)?(?P<id>!?\d+/\d+(?:_\d+)?)(?:\])?: ")
_STACK = "\nUser stack trace:\n"
_COMMENT = re.compile(r"\s+# (?P<comment>.*)$", re.DOTALL)
_LOCATION = re.compile(r'File "(?P<path>[^"]+)", line (?P<line>\d+)')
_SHORT_LOCATION = re.compile(r"(?P<path>[^\s:,(]+\.py):(?P<line>\d+) in ")


@dataclass(frozen=True, slots=True)
class Failure:
    """Why one cache entry does not serve."""

    compile_id: str
    expression: str
    """The part of its guards that failed, without torch's comment."""
    reason: str
    """The whole sentence."""
    place: Place | None
    """The user's line that installed the guard, where torch tells it."""


def failures_of(entries: Sequence[Any], reasons: Sequence[str]) -> list[Failure]:
    """Return a failure for each reason; ``entries`` are torch's cache entries, in the same order."""
    return [_failure(entries[index] if index < len(entries) else None, reason) for index, reason in enumerate(reasons)]


def _failure(entry: Any, reason: str) -> Failure:
    match = _COMPILE_ID.match(reason)
    text = reason[match.end() :] if match else reason
    sentence, _, stack = text.partition(_STACK)
    comment = _COMMENT.search(sentence)
    expression = sentence[: comment.start()] if comment else sentence
    compile_id = match["id"] if match else str(getattr(entry, "compile_id", "?"))
    return Failure(compile_id, expression.strip(), reason.strip(), _place(stack) or _user_place(comment))


def _place(stack: str) -> Place | None:
    found = _LOCATION.findall(stack)
    return Place(found[-1][0], int(found[-1][1]), 1) if found else None


def _user_place(comment: re.Match[str] | None) -> Place | None:
    found = _SHORT_LOCATION.search(comment["comment"]) if comment else None
    path = _full_path(found["path"]) if found else None
    return Place(path, int(found["line"]), 1) if found and path else None


def _full_path(short: str) -> str | None:
    """Return the file that torch means: it leaves out what a path has in common with that of its own package."""
    if os.path.isabs(short):
        return short
    directory = str(sys.modules["torch"].__path__[0])
    while True:
        path = os.path.join(directory, short)
        if os.path.isfile(path):
            return path
        parent = os.path.dirname(directory)
        if parent == directory:
            return None
        directory = parent
