"""The launch or attach options that the debuggee needs.

Set when a client attaches, replaced by the next; read on any thread.
"""

from __future__ import annotations

from msgspec import Struct


class Options(Struct, rename="camel", omit_defaults=True, frozen=True):
    """Options of a session, a subset of the ``launch`` and ``attach`` arguments."""

    mode: str = "both"
    """``compile-time``, ``run-time`` or ``both``."""
    eager: bool = False
    """Whether ordinary Python is debugged in this session, by another backend."""
    eager_address: str | None = None
    """``HOST:PORT`` where the server waits for debugpy, when it is to be started by the ``attach`` request."""
    eager_token: str | None = None
    """What debugpy has to show there."""
    eager_adopts: bool = False
    """Whether debugpy debugs this process already, in the same session."""
    children_file: str | None = None
    """Where child processes find out how to offer themselves for sessions of their own; None when nobody wants them."""
    just_my_code: bool = True
    """Leave out frames and breakpoints of installed packages and the standard library."""
    stop_on_entry: bool = False
    pause_on_restart: bool = False
    """Hit a breakpoint again when Dynamo restarts the analysis of the same frame."""
    stop_on_generated_code: bool = False
    """Stop on entry of every code object that Dynamo generated."""
    trace_instructions: bool = False
    """Record every instruction of generated code as it runs, to locate a crash."""
    record: bool = True
    """Write what is compiled to a record file."""
    evaluation_timeout: float = 5.0
    """Seconds after which an evaluation is interrupted."""

    @property
    def compile_time(self) -> bool:
        """Whether tracing is debugged."""
        return self.mode in ("compile-time", "both")

    @property
    def run_time(self) -> bool:
        """Whether generated code is debugged."""
        return self.mode in ("run-time", "both")
