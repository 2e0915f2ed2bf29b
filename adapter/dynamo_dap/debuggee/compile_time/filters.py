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
    GRAPH_BREAK: ("unsupported", "graph_broke", "compile_ended"),
    UNSUPPORTED: ("unsupported", "compile_ended"),
    RECOMPILE: ("recompiles",),
    BACKEND_FAILURE: ("backend_failed", "compile_ended"),
    SPECIALIZE: ("specialized",),
    GUARD: ("guard_added",),
    LIMIT: ("limit_checked",),
}
