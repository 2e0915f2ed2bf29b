"""Torch's public view of a paused trace, ``ComptimeContext``, for a translator. Tracing thread."""

from __future__ import annotations

from typing import Any

from dynamo_dap.debuggee.torch_internals.features import Feature

_CONTEXT = "torch._dynamo.comptime:ComptimeContext"

COMPTIME_CONTEXT = Feature("'ctx' in the debug console", _CONTEXT)


def comptime_context(tx: Any) -> Any:
    """Return the ``ComptimeContext`` of ``tx``.

    Raises:
        FeatureMissing: this version of torch has none.
    """
    return COMPTIME_CONTEXT.resolve(_CONTEXT)(tx)
