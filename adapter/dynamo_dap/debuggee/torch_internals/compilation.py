"""The compile that a trace belongs to: backend, options, cache entries, time. Tracing thread."""

from __future__ import annotations

import sys
import time
import types
from dataclasses import dataclass
from typing import Any

from dynamo_dap.debuggee.code_analysis.constants import without_addresses
from dynamo_dap.debuggee.torch_internals.features import Feature
from dynamo_dap.debuggee.torch_internals.translator import compile_identity

_CACHE_ENTRIES = "torch._dynamo.eval_frame:_debug_get_cache_entry_list"
_METRICS = "torch._dynamo.utils:get_metrics_context"

CACHE_ENTRIES = Feature("cache entries of a code object", _CACHE_ENTRIES)
ELAPSED = Feature("how long a compile has taken", _METRICS)


@dataclass(frozen=True, slots=True)
class CompileFacts:
    """A compile that is tracing, from the place of one of its functions."""

    compile_id: str
    """``0/1`` is the second compile of the first frame."""
    attempt: int
    """Counted from 0."""
    code: types.CodeType
    """What is being compiled."""
    backend: str
    """Its name as given to ``torch.compile``."""
    is_full_graph: bool
    """Whether a graph break is an error (``fullgraph=True``)."""
    dynamic: str
    seconds: float | None
    """Since it began, pauses included; None when this torch does not note it."""
    inlined: int
    """How many functions the place is inlined into."""
    guard_count: int


def facts_of(tx: Any) -> CompileFacts:
    """Return the facts of the compile that a translator works for."""
    output = tx.output
    return CompileFacts(
        compile_id=str(getattr(output, "dynamo_compile_id", None) or "?"),
        attempt=compile_identity().attempt,
        code=output.root_tx.f_code,
        backend=name_of_backend(output.compiler_fn),
        is_full_graph=bool(getattr(output.root_tx, "one_graph", False)),
        dynamic=_dynamic_option(),
        seconds=_elapsed_seconds(),
        inlined=int(tx.inline_depth),
        guard_count=len(output.guards),
    )


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


def _dynamic_option() -> str:
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


def _elapsed_seconds() -> float | None:
    """Return the seconds since this compile began, pauses included; None when this torch does not note it."""
    if ELAPSED.problem is not None:
        return None
    start = getattr(ELAPSED.resolve(_METRICS)(), "_start_time_ns", None)
    return None if not start else (time.time_ns() - start) / 1e9


def guard_expressions(entry: Any) -> list[str]:
    """Return the guards of a cache entry in torch's words."""
    return [
        without_addresses(str(part))
        for part in getattr(getattr(entry, "guard_manager", None), "code_parts", None) or ()
    ]
