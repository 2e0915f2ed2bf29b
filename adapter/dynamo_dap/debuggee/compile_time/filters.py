"""The exception filters of compile-time debugging, and which events of torch each needs. Facts only."""

from __future__ import annotations

from dynamo_dap.protocol.contract import BACKEND_FAILURE, GRAPH_BREAK, GUARD, LIMIT, RECOMPILE, SPECIALIZE, UNSUPPORTED

__all__ = ["BACKEND_FAILURE", "EVENTS", "GRAPH_BREAK", "GUARD", "LIMIT", "RECOMPILE", "SPECIALIZE", "UNSUPPORTED"]

EVENTS = {
    GRAPH_BREAK: ("graph_broke", "trace_failed", "compile_ended"),
    UNSUPPORTED: ("trace_failed",),
    RECOMPILE: ("recompiles",),
    BACKEND_FAILURE: ("backend_failed", "compile_ended"),
    SPECIALIZE: ("specialized",),
    GUARD: ("guard_added",),
    LIMIT: ("limit_checked",),
}
