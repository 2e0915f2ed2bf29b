"""``sys.settrace`` for several debuggers in one process. Acts on the calling thread.

debugpy replaces ``sys.settrace`` by a function that warns. ``set_trace`` is the original: this module is imported with
the agent, before debugpy; if the program imported debugpy before, pydevd is asked for the original.
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
"""As ``sys.settrace`` takes it: of a frame, an event and its argument; returns the frame's local trace function."""


def _original() -> Callable[[Any], None]:
    pydevd = sys.modules.get("pydevd_tracing")
    replaced: Callable[[Any], None] | None = getattr(
        getattr(pydevd, "TracingFunctionHolder", None), "_original_tracing", None
    )
    return replaced or sys.settrace


set_trace = _original()


class ChainingTracer:
    """Has a method that is a thread's trace function for a while, and passes on to the one that was there before."""

    before: TraceFunction | None = None


def trace_beneath(function: TraceFunction, set_it: Callable[[TraceFunction], None]) -> None:
    """Have the calling thread traced by ``function``: beneath a ``ChainingTracer``, else by ``set_it``.

    Where somebody else traces, nothing changes.
    """
    current: Any = sys.gettrace()
    owner = getattr(current, "__self__", None)
    if isinstance(owner, ChainingTracer):
        if owner.before is None:
            owner.before = function
    elif current is None:
        set_it(function)


def stack_of_thread(ident: int) -> list[FrameType]:
    """Return the frames of a running thread, innermost first; none when it has ended. Any thread.

    Walked by Python code, a stack changes on the way: a generator that has yielded meanwhile has no ``f_back``, and
    all its callers are missed. Here no instruction of Python's is run between the first frame and the last, so that no
    other thread runs.
    """
    frames: list[FrameType | None] = []
    innermost = map(itemgetter(ident), islice(iter(sys._current_frames, None), 1))
    with contextlib.suppress(AttributeError, KeyError):  # beyond the outermost; no such thread
        frames.extend(accumulate(chain(innermost, repeat("f_back")), getattr))
    return [frame for frame in frames if frame is not None]
