"""The compile that a trace belongs to: backend, options, cache entries, time. Tracing thread."""

from __future__ import annotations

import sys
import time
import types
from typing import Any

from dynamo_dap.debuggee.code_analysis.constants import without_addresses
from dynamo_dap.debuggee.torch_internals.features import Feature

_CACHE_ENTRIES = "torch._dynamo.eval_frame:_debug_get_cache_entry_list"
_METRICS = "torch._dynamo.utils:get_metrics_context"

CACHE_ENTRIES = Feature("cache entries of a code object", _CACHE_ENTRIES)
ELAPSED = Feature("how long a compile has taken", _METRICS)


def backend_name(tx: Any) -> str:
    """Return the backend's name as given to ``torch.compile``."""
    return name_of_backend(tx.output.compiler_fn)


def name_of_backend(function: Any) -> str:
    """Return the name of a backend that torch may have wrapped."""
    for _ in range(_WRAPPERS):
        inner = getattr(function, "_torchdynamo_orig_backend", None) or getattr(
            function, "_torchdynamo_orig_callable", None
        )
        if inner is None:
            break
        function = inner
    name = getattr(function, "compiler_name", None) or getattr(function, "__name__", None)
    # Torch names a wrapper around an object by the object's text.
    return str(name) if name and " at 0x" not in str(name) else type(function).__name__


_WRAPPERS = 16
"""Wrappers around a backend followed at most."""


def is_full_graph(tx: Any) -> bool:
    """Whether a graph break is an error (``fullgraph=True``)."""
    return bool(getattr(tx.output.root_tx, "one_graph", False))


def dynamic_option() -> str:
    """Return what ``torch.compile(dynamic=...)`` was set to, told from the configuration in force."""
    config: Any = sys.modules["torch._dynamo.config"]
    if not getattr(config, "assume_static_by_default", True):
        return "True: every size is symbolic"
    if not getattr(config, "automatic_dynamic_shapes", True):
        return "False: every size is fixed"
    return "automatic: a size becomes symbolic when it changes"


def cache_entries(code: types.CodeType) -> list[Any]:
    """Return the compiled versions that ``code`` already has; empty when this torch cannot tell."""
    if CACHE_ENTRIES.problem is not None:
        return []
    return list(CACHE_ENTRIES.resolve(_CACHE_ENTRIES)(code))


def elapsed_seconds() -> float | None:
    """Return the seconds since this compile began, pauses included; None when this torch does not note it."""
    if ELAPSED.problem is not None:
        return None
    start = getattr(ELAPSED.resolve(_METRICS)(), "_start_time_ns", None)
    return None if not start else (time.time_ns() - start) / 1e9


def compile_identifier(tx: Any) -> str:
    """Return the compile's id: ``0/1`` is the second compile of the first frame."""
    return str(getattr(tx.output, "dynamo_compile_id", None) or "?")


def guard_expressions(entry: Any) -> list[str]:
    """Return the guards of a cache entry in torch's words."""
    return [
        without_addresses(str(part))
        for part in getattr(getattr(entry, "guard_manager", None), "code_parts", None) or ()
    ]
