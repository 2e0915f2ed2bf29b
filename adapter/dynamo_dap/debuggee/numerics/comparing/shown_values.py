"""Checks that a cached call computes the values that its stop has shown.

A stop shows values of a replay, before the call runs. Once the call's graph has returned, its outputs and the inputs
that it wrote to are compared with the replay's. The user sees a warning for a difference, and later stops of the cache
entry mark their values as not proven. Only calls 1, 2, 4, 8, ... of those with shown values are checked, and only if
their tensors are small: a stop must not cost seconds. Runs on the thread that makes the call.
"""

from __future__ import annotations

import threading
import types
from collections import Counter

from dynamo_dap.debuggee.agent.engine import Host
from dynamo_dap.debuggee.agent.log import log_exception
from dynamo_dap.debuggee.numerics.comparing.compared_calls import (
    NEEDED,
    CallsDifferByChance,
    compared_if_valid,
    with_initial_randomness,
)
from dynamo_dap.debuggee.numerics.faults.comparisons import Comparison
from dynamo_dap.debuggee.numerics.graphs.memory_runs import WrittenInputs
from dynamo_dap.debuggee.recording.function_names import name_of_call
from dynamo_dap.debuggee.replay.graph_calls import GRAPH_CALLS, CallObserver, GraphCall, tensors_in
from dynamo_dap.debuggee.torch_api.graphs.graph_runs import NoRealValue
from dynamo_dap.debuggee.torch_api.graphs.unproven_values import UNPROVEN
from dynamo_dap.debuggee.torch_api.traced.replays import CachedCall
from dynamo_dap.debuggee.torch_api.traced.traced_paths import NotValid
from dynamo_dap.debuggee.wrapping.locks import Level, lock

_BYTES = 32 * 2**20
"""The size limit of a call's inputs and outputs together; larger calls are not checked."""


class ShownValues(CallObserver):
    """Compares cached calls' results with the values that their stops have shown."""

    feature = "checking shown values"

    def __init__(self, host: Host) -> None:
        """Report to ``host``, the agent."""
        self._host = host
        self._lock = lock("calls with shown values", Level.DATA)
        self._awaited: dict[int, int] = {}
        """The identity of the frame whose call will be checked, by thread."""
        self._shown: Counter[tuple[types.CodeType, str]] = Counter()

    def check_after_return(self, call: CachedCall) -> None:
        """Have the call checked when it returns; it runs next on this thread."""
        if not isinstance(call.frame, types.FrameType) or any(each.problem is not None for each in NEEDED):
            return
        key = call.code, call.compile_id
        self._shown[key] += 1
        if self._shown[key] & (self._shown[key] - 1):
            return
        with self._lock:
            self._awaited[threading.get_ident()] = id(call.frame)
        GRAPH_CALLS.want(self, _BYTES)

    def close(self) -> None:
        """Stop checking calls. Runs on any thread."""
        with self._lock:
            self._awaited.clear()
        GRAPH_CALLS.want(self, None)

    def returned(self, call: GraphCall) -> None:
        """Compare a call that has returned, if a stop has shown values of it."""
        if self._host.is_holding or not self._take(call):
            return
        cached_call = call.as_cached_call()
        size = sum(each.untyped_storage().nbytes() for each in tensors_in([call.given, call.outputs]))
        if cached_call is None or size > _BYTES or call.kept.left_out:
            return
        try:
            with self._host.holding(), with_initial_randomness(call):
                comparison = compared_if_valid(call, cached_call)
                what = None if isinstance(comparison, NotValid) else _difference(call, comparison)
        except (CallsDifferByChance, NoRealValue):
            return
        except Exception:  # noqa: BLE001  (whatever it is, the program continues)
            log_exception("checking the values that a stop has shown")
            return
        if what is not None:
            self._report(call, cached_call, what)

    def raised(self, call: GraphCall) -> None:
        """Forget the call: it returns nothing to compare."""
        self._take(call)

    def _take(self, call: GraphCall) -> bool:
        """Return whether the call must be checked; if so, forget it."""
        thread = threading.get_ident()
        with self._lock:
            if self._awaited.get(thread) != id(call.frame):
                return False
            del self._awaited[thread]
            is_last = not self._awaited
        if is_last:
            GRAPH_CALLS.want(self, None)
        return True

    def _report(self, call: GraphCall, cached_call: CachedCall, what: str) -> None:
        UNPROVEN.mark(call.frame.f_code, f"an earlier call computed something else than its replay: {what}")
        self._host.print(
            f"dynamo-dap: warning: {name_of_call(cached_call)}, cache entry {cached_call.compile_id}: stops "
            f"showed values of a replay, but the call computed something else: {what}. Later stops mark these values "
            "as not proven. dynamo-dap compare finds the cause.\n",
            "important",
        )


def _difference(call: GraphCall, comparison: Comparison) -> str | None:
    """Return a text about the first difference between the call and the replay; None if there is none."""
    for number, each in enumerate(comparison.of_outputs):
        if not each.is_same:
            return f"result {number}, {each.text}"
    if not call.graph.written:
        return None
    written = WrittenInputs(comparison.graph, call.kept.random, comparison.reference.runs).first_difference(call.inputs)
    if written is None:
        return None
    name = comparison.graph.names.get(written.placeholder) or written.placeholder.name
    return f"the contents of {name}, {written.difference.text}"
