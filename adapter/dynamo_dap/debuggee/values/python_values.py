"""Shows any real Python object: the entry point of this package.

``present(value, expression)`` gives text, type, location and children; ``preview(value, width)`` the text alone.
Importing this module registers every family. Runs on the held thread; the values made live as long as the pause.
"""

from __future__ import annotations

from dynamo_dap.debuggee.torch_api.cache.recompiles import NOT_KNOWN, Failure, expected_and_actual
from dynamo_dap.debuggee.values import callables, containers, objects, scalars, tensors, triton_blocks
from dynamo_dap.debuggee.values.eager_frames import globals_of, locals_of
from dynamo_dap.debuggee.values.model import (
    PLAIN,
    PREVIEW_OF_CONTAINER,
    Family,
    View,
    family_for,
    family_of,
    present,
    preview,
)

FAMILIES = (callables, containers, objects, scalars, tensors, triton_blocks)
"""The modules whose import registers the families."""

__all__ = [
    "FAMILIES",
    "PLAIN",
    "PREVIEW_OF_CONTAINER",
    "Family",
    "View",
    "family_for",
    "family_of",
    "globals_of",
    "locals_of",
    "present",
    "preview",
]


_MAXIMUM_LENGTH = 120


def expected_and_actual_texts(failure: Failure, frame: object) -> tuple[str | None, str | None]:
    """Return texts of the guarded value, then and now; None if unknown. ``frame`` is that of the compiled call."""
    then, now = expected_and_actual(failure, frame)
    if isinstance(now, str) and type(now) is not str:
        # This is text that torch wrote, not a value.
        return then, str(now)
    return then, None if now is NOT_KNOWN else preview(now, _MAXIMUM_LENGTH)
