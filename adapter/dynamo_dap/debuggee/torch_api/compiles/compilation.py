"""Reads facts about compiles: backend, options and time of the current one; cache entries, resume functions, phases.

Runs on the compiling thread.
"""

from __future__ import annotations

import sys
import time
import types
from dataclasses import dataclass
from typing import Any

from dynamo_dap.debuggee.torch_api.features import Feature
from dynamo_dap.debuggee.torch_api.objects import Translator
from dynamo_dap.debuggee.torch_api.traced.translator import compile_identity

_CACHE_ENTRIES = "torch._dynamo.eval_frame:_debug_get_cache_entry_list"
_METRICS = "torch._dynamo.utils:get_metrics_context"
_COMPILATION_METRICS = "torch._dynamo.utils:get_compilation_metrics"
_COUNTERS = "torch._dynamo.utils:counters"

CACHE_ENTRIES = Feature("cache entries of a code object", _CACHE_ENTRIES)
COUNTERS = Feature("whether a compile hit a cache", _COUNTERS)
METRICS = Feature("the times of the phases of a compile", _COMPILATION_METRICS)
ELAPSED = Feature("how long a compile has taken", _METRICS)


@dataclass(frozen=True, slots=True)
class CompileFacts:
    """A compile in progress, as seen from one of its functions."""

    compile_id: str
    """``0/1`` is the second compile of the first frame."""
    attempt: int
    """Counted from 0."""
    code: types.CodeType
    """The compiled code."""
    backend: str
    """Its name as given to ``torch.compile``."""
    is_full_graph: bool
    """Whether a graph break is an error (``fullgraph=True``)."""
    dynamic: str
    seconds: float | None
    """Since it began, pauses included; None if this torch does not note it."""
    inlined: int
    """How many functions the function is inlined into."""
    guard_count: int


def facts_of(tx: Translator) -> CompileFacts:
    """Return the facts of the compile that a translator works for."""
    output = tx.output
    identity = compile_identity()
    return CompileFacts(
        compile_id=identity.compile_id,
        attempt=identity.attempt,
        code=output.root_tx.f_code,
        backend=name_of_backend(output.compiler_fn),
        is_full_graph=bool(getattr(output.root_tx, "one_graph", False)),
        dynamic=_dynamic_option(),
        seconds=_elapsed_seconds(),
        inlined=int(tx.inline_depth),
        guard_count=len(output.guards),
    )


def unwrapped_backend(function: object) -> object:
    """Return a backend without torch's wrappers."""
    for _ in range(_WRAPPERS):
        inner = getattr(function, "_torchdynamo_orig_backend", None) or getattr(
            function, "_torchdynamo_orig_callable", None
        )
        if inner is None:
            break
        function = inner
    return function


def name_of_backend(function: object) -> str:
    """Return the name of a backend that torch may have wrapped."""
    function = unwrapped_backend(function)
    name = getattr(function, "compiler_name", None) or getattr(function, "__name__", None)
    # Torch names a wrapper around an object by the object's ``repr``.
    return str(name) if name and " at 0x" not in str(name) else type(function).__name__


_WRAPPERS = 16
"""The most wrappers around a backend that are removed."""


def _dynamic_option() -> str:
    """Return the value of ``torch.compile(dynamic=...)``, by the configuration in force."""
    config = sys.modules["torch._dynamo.config"]
    if not getattr(config, "assume_static_by_default", True):
        return "True: every size is symbolic"
    if not getattr(config, "automatic_dynamic_shapes", True):
        return "False: every size is fixed"
    return "automatic: a size becomes symbolic when it changes"


def cache_entries(code: types.CodeType) -> list[Any]:
    """Return the compiled versions of ``code``; empty if this torch does not know them."""
    if CACHE_ENTRIES.problem is not None:
        return []
    return list(CACHE_ENTRIES.resolve(_CACHE_ENTRIES)(code))


def _elapsed_seconds() -> float | None:
    """Return the seconds since this compile began, pauses included; None if this torch does not note it."""
    if ELAPSED.problem is not None:
        return None
    start = getattr(ELAPSED.resolve(_METRICS)(), "_start_time_ns", None)
    return None if not start else (time.time_ns() - start) / 1e9


def compiled_original(function: types.FunctionType) -> object:
    """Return the user's function behind the result of ``torch.compile`` or ``disable``; None for other functions."""
    return function.__dict__.get("_torchdynamo_orig_callable")


def is_disabled(function: types.FunctionType) -> bool:
    """Return whether the wrapper disables Dynamo (``torch.compiler.disable``) instead of compiling."""
    return bool(function.__dict__.get("_torchdynamo_disable", False))


def resume_codes(code: types.CodeType | None, f_globals: dict[str, object]) -> list[types.CodeType]:
    """Return the resume functions that generated code calls."""
    names = () if code is None else code.co_names
    codes = [getattr(f_globals.get(name), "__code__", None) for name in dict.fromkeys(names) if name in f_globals]
    return [
        resumed
        for resumed in codes
        if isinstance(resumed, types.CodeType) and "torch_dynamo_resume_in" in resumed.co_name
    ]


def output_files() -> list[str]:
    """Return the output code files that Inductor has loaded in this process; empty without Inductor."""
    cache = getattr(sys.modules.get("torch._inductor.codecache"), "PyCodeCache", None)
    loaded = [getattr(module, "__file__", None) for module in list(getattr(cache, "modules", ()))]
    return [file for file in loaded if file]


def cache_counts() -> dict[str, int]:
    """Return the hits, misses and bypasses of the caches of compiled graphs in this process."""
    if COUNTERS.problem is not None:
        return {}
    counters = COUNTERS.resolve(_COUNTERS)
    return {
        f"{cache} {event}": int(counters[group][f"{name}_{event}"])
        for cache, (group, name) in _CACHES.items()
        for event in ("hit", "miss", "bypass")
        if group in counters and f"{name}_{event}" in counters[group]
    }


_CACHES = {"FX graph cache": ("inductor", "fxgraph_cache"), "AOTAutograd cache": ("aot_autograd", "autograd_cache")}


def phases_of(compile_id: str) -> dict[str, float]:
    """Return the seconds of each phase of the compile that has just ended; empty when torch did not note them."""
    if METRICS.problem is not None:
        return {}
    metrics = METRICS.resolve(_COMPILATION_METRICS)()
    last = metrics[-1] if metrics else None
    if last is None or str(last.compile_id) != compile_id:
        return {}
    times = {name: getattr(last, field, None) for name, field in _PHASES.items()}
    return {name: microseconds / 1e6 for name, microseconds in times.items() if microseconds}


_PHASES = {
    "whole frame": "dynamo_cumulative_compile_time_us",
    "backend": "aot_autograd_cumulative_compile_time_us",
    "inductor": "inductor_cumulative_compile_time_us",
    "inductor code": "inductor_code_gen_cumulative_compile_time_us",
    "before restarts": "dynamo_compile_time_before_restart_us",
}
