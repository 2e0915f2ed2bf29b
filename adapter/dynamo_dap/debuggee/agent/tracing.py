"""Shares ``sys.settrace`` between several debuggers in one process. Acts on the calling thread.

debugpy replaces ``sys.settrace`` by a function that warns. ``set_trace`` is the original, which this module gets
because the agent imports it before debugpy. If the program imported debugpy before, pydevd has kept the original.
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
"""A function for ``sys.settrace``: takes a frame, an event and its argument; returns the local trace function."""


def _original() -> Callable[[Any], None]:
    pydevd = sys.modules.get("pydevd_tracing")
    replaced: Callable[[object], None] | None = getattr(
        getattr(pydevd, "TracingFunctionHolder", None), "_original_tracing", None
    )
    return replaced or sys.settrace


set_trace = _original()


class ChainingTracer:
    """Traces a thread for a while, and passes its events to the previous trace function.

    A method of the subclass is the thread's trace function meanwhile.
    """

    before: TraceFunction | None = None
    """The previous trace function, if any."""


def chained(function: object) -> list[ChainingTracer]:
    """Return the chain of tracers that begins with the trace function ``function``, in the order of events."""
    found: list[ChainingTracer] = []
    owner = getattr(function, "__self__", None)
    while isinstance(owner, ChainingTracer) and owner not in found:
        found.append(owner)
        owner = getattr(owner.before, "__self__", None)
    return found


def trace_below(function: TraceFunction, set_it: Callable[[TraceFunction], None]) -> None:
    """Trace the calling thread by ``function``, as the previous function of its ``ChainingTracer`` if it has one.

    If the thread is not traced, call ``set_it`` with ``function``. If another tool traces it, change nothing.
    """
    current = sys.gettrace()
    owner = getattr(current, "__self__", None)
    if isinstance(owner, ChainingTracer):
        if owner.before is None:
            owner.before = function
    elif current is None:
        set_it(function)


def stack_of_thread(ident: int) -> list[FrameType]:
    """Return a running thread's frames, innermost first; none if the thread has ended. Runs on any thread.

    Python code that follows ``f_back`` could miss callers: the stack changes meanwhile, and a generator that has
    yielded has no ``f_back``. Here C code reads all frames, so that no other thread runs in between.
    """
    frames: list[FrameType | None] = []
    innermost = map(itemgetter(ident), islice(iter(sys._current_frames, None), 1))
    with contextlib.suppress(AttributeError, KeyError):  # beyond the outermost frame; the thread has ended
        frames.extend(accumulate(chain(innermost, repeat("f_back")), getattr))
    return [frame for frame in frames if frame is not None]
