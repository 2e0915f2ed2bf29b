"""The exception filters of compile-time debugging, and which events of torch each needs. Facts only."""

from __future__ import annotations

GRAPH_BREAK = "graph-break"
UNSUPPORTED = "unsupported"
RECOMPILE = "recompile"
BACKEND_FAILURE = "backend-failure"
SPECIALIZE = "specialize"
GUARD = "guard"
LIMIT = "limit"

EVENTS = {
    GRAPH_BREAK: ("graph_broke", "trace_failed", "compile_ended"),
    UNSUPPORTED: ("trace_failed",),
    RECOMPILE: ("recompiles",),
    BACKEND_FAILURE: ("backend_failed", "compile_ended"),
    SPECIALIZE: ("specialized",),
    GUARD: ("guard_added",),
    LIMIT: ("limit_checked",),
}
