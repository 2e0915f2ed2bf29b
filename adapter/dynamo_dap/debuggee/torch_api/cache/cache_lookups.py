"""Reports hits and misses of torch's graph caches, with the parts of each key.

Torch writes an event for each lookup. Newer versions omit the parts of the AOTAutograd key, so this module computes
them with torch's pickler. Hooks are installed once, for the life of the process. They run on the compiling thread.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any

from dynamo_dap.debuggee.torch_api.features import Feature
from dynamo_dap.debuggee.torch_api.import_hooks import when_imported
from dynamo_dap.debuggee.torch_api.traced.replays import replayed_call
from dynamo_dap.debuggee.wrapping.patches import Outcome, Patches

_LOGGER = "torch._dynamo.utils:ChromiumEventLogger"
_INSTANT = "torch._dynamo.utils:ChromiumEventLogger.log_instant_event"
_COMPILE_ID = "torch._guards:CompileContext.current_compile_id"
_AUTOGRAD_CACHE = "torch._functorch._aot_autograd.autograd_cache"
_PARTS = "_get_debug_lines_for_cache_key"
"""A function of ``_AUTOGRAD_CACHE``. In newer versions it returns nothing unless torch logs at the level DEBUG."""

LOOKUPS = Feature("lookups in graph caches", _LOGGER, _INSTANT, _COMPILE_ID)

CACHES = {"autograd_cache": "AOTAutograd cache", "fx_graph_cache": "FX graph cache"}
"""Prefixes of torch's event names, each with the cache's name in reports."""
STATES = ("hit", "miss", "bypass", "disabled")


@dataclass(frozen=True)
class CacheLookupFacts:
    """A lookup in a graph cache."""

    cache: str
    result: str
    key: str | None
    reason: str | None
    """Why the cache was bypassed, or why an entry with the same key does not match."""
    parts: list[str]
    """The parts of the key, each in torch's form: ``[digest] name: value``."""
    compile_id: str | None


Report = Callable[[CacheLookupFacts], None]


class CacheLookups:
    """Reports each lookup of this process."""

    def __init__(self, report: Report) -> None:
        self._report = report
        self._patches = Patches("lookups in graph caches")
        self._thread = threading.local()

    def install(self) -> None:
        """Report from now on."""
        if LOOKUPS.problem is not None:
            return
        self._patches.before(LOOKUPS.resolve(_LOGGER), "log_instant_event", self._on_event)
        when_imported(_AUTOGRAD_CACHE, self._watch_keys)

    def _watch_keys(self) -> None:
        module = sys.modules.get(_AUTOGRAD_CACHE)
        if hasattr(module, _PARTS):
            self._patches.around(module, _PARTS, self._on_key)

    def _on_key(self, pickler: Any, details: object, *_: object, **__: object) -> Generator[None, Outcome, None]:
        outcome = yield None
        if outcome.error is None and replayed_call() is None:
            self._thread.parts = list(outcome.result) or pickler.debug_lines(details)

    def _on_event(
        self, _logger: object, name: str, _time: int, facts: object = None, *__: object, **___: object
    ) -> None:
        cache, _, state = name.rpartition("_")
        if cache not in CACHES or state not in STATES or replayed_call() is not None:
            return
        known = facts if isinstance(facts, dict) else {}
        parts = list(known.get("components") or [])
        if cache == "autograd_cache":
            parts = parts or getattr(self._thread, "parts", [])
            self._thread.parts = []
        reason = known.get("cache_bypass_reason") or known.get("cache_status_detailed")
        self._report(
            CacheLookupFacts(
                CACHES[cache],
                state,
                known.get("key"),
                None if reason is None else str(reason),
                [str(part) for part in parts],
                current_compile_id(),
            )
        )


def current_compile_id() -> str | None:
    """Return the id of the compile that runs on this thread."""
    found = LOOKUPS.resolve(_COMPILE_ID)()
    return None if found is None else str(found)
