"""Remembers cached calls with shown values, and cache entries whose calls differ from their replay.

Values at a stop in a cached call come from a replay. Whether the call computes the same is known only after its return.
``UNPROVEN`` belongs to the process; shown values are noted on the thread that makes the call.
"""

from __future__ import annotations

import threading
import types
import weakref

from dynamo_dap.debuggee.torch_api.objects import Graph, Node
from dynamo_dap.debuggee.torch_api.traced.replays import CachedCall, replayed_call


class UnprovenValues:
    """Remembers, for each cache entry, why the values of its replays are not proven."""

    def __init__(self) -> None:
        self._thread = threading.local()
        self._reasons: dict[int, tuple[weakref.ref[types.CodeType], str]] = {}
        """By identity of the code that the entry runs."""

    def note_shown(self, graph: Graph) -> None:
        """Note that a value of ``graph`` was computed for a stop; it matters in a replay of a cached call.

        GPU graphs do not count: the host would have to wait to compare their results.
        """
        if not getattr(self._thread, "has_shown", False):
            self._thread.has_shown = all(map(_is_on_host, graph.nodes))

    def take_shown(self) -> bool:
        """Return whether a CPU value was computed on this thread since the last query."""
        has_shown: bool = getattr(self._thread, "has_shown", False)
        self._thread.has_shown = False
        return has_shown

    def mark(self, code: types.CodeType, reason: str) -> None:
        """Mark values of the cache entry that runs ``code`` as not proven, for as long as it lives."""
        key = id(code)
        self._reasons[key] = weakref.ref(code, lambda _: self._reasons.pop(key, None)), reason

    def reason(self) -> str | None:
        """Return why values of this thread's replay are not proven; None without evidence."""
        call = replayed_call()
        return None if call is None or not self._reasons else self._reason_of(call)

    def _reason_of(self, call: CachedCall) -> str | None:
        code = getattr(call.frame, "f_code", None)
        known = self._reasons.get(id(code))
        return known[1] if known is not None and known[0]() is code else None


def _is_on_host(node: Node) -> bool:
    device = getattr(node.meta.get("example_value"), "device", None)
    return device is None or device.type == "cpu"


UNPROVEN = UnprovenValues()
"""The only instance in this process."""
