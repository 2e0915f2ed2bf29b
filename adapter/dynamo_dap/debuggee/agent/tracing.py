"""Shares ``sys.settrace`` between several debuggers in one process. Acts on the calling thread.

debugpy replaces ``sys.settrace`` by a function that warns. ``set_trace`` is the original: this module is imported with
the agent, before debugpy. If the program imported debugpy before, pydevd provides the original.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable
from itertools import accumulate, chain, islice, repeat
from operator import itemgetter
from types import FrameType
from typing import Any

TraceFunction = Callable[[FrameType, str, Any], Any]
"""As for ``sys.settrace``: gets a frame, an event and its argument; returns the frame's local trace function."""


def _original() -> Callable[[Any], None]:
    pydevd = sys.modules.get("pydevd_tracing")
    replaced: Callable[[object], None] | None = getattr(
        getattr(pydevd, "TracingFunctionHolder", None), "_original_tracing", None
    )
    return replaced or sys.settrace


set_trace = _original()


class ChainingTracer:
    """Has a method that is temporarily a thread's trace function, and calls the previous one."""

    before: TraceFunction | None = None


def chained(function: object) -> list[ChainingTracer]:
    """Return the tracers that get a trace function's events, outermost first."""
    found: list[ChainingTracer] = []
    owner = getattr(function, "__self__", None)
    while isinstance(owner, ChainingTracer) and owner not in found:
        found.append(owner)
        owner = getattr(owner.before, "__self__", None)
    return found


def trace_below(function: TraceFunction, set_it: Callable[[TraceFunction], None]) -> None:
    """Trace the calling thread by ``function``: below a ``ChainingTracer``, else by ``set_it``.

    If another tool traces the thread, nothing changes.
    """
    current = sys.gettrace()
    owner = getattr(current, "__self__", None)
    if isinstance(owner, ChainingTracer):
        if owner.before is None:
            owner.before = function
    elif current is None:
        set_it(function)


def stack_of_thread(ident: int) -> list[FrameType]:
    """Return a running thread's frames, innermost first; none if it has ended. Runs on any thread.

    A walk by Python code could miss callers: the stack changes meanwhile, and a generator that has yielded has no
    ``f_back``. Here no Python instruction runs between the first frame and the last, so that no other thread runs.
    """
    frames: list[FrameType | None] = []
    innermost = map(itemgetter(ident), islice(iter(sys._current_frames, None), 1))
    with contextlib.suppress(AttributeError, KeyError):  # beyond the outermost; no such thread
        frames.extend(accumulate(chain(innermost, repeat("f_back")), getattr))
    return [frame for frame in frames if frame is not None]
