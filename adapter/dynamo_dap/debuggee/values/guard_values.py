"""The value that a failed guard expected, and the value there is now, as texts.

Runs on the compiling thread, before the trace.
"""

from __future__ import annotations

from typing import Any

from dynamo_dap.debuggee.torch_internals.recompiles import NOT_KNOWN, Failure, then_and_now
from dynamo_dap.debuggee.values.python_values import preview

_MAXIMUM_LENGTH = 120


def values_then_and_now(failure: Failure, frame: Any) -> tuple[str | None, str | None]:
    """Return both; None where it cannot be told. ``frame`` is torch's stand-in for the frame about to be run."""
    then, now = then_and_now(failure, frame)
    if isinstance(now, str) and type(now) is not str:
        # Torch has written it already.
        return then, str(now)
    return then, None if now is NOT_KNOWN else preview(now, _MAXIMUM_LENGTH)
