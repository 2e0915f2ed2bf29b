"""Saved traces of cache entries, with their pasts, and the calls that have begun and lead on to a graph break.

Steps back after the break lead into the saved trace of such a call, with its inputs. Tracing thread, unless it says
otherwise.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import types
import weakref
from dataclasses import dataclass, field, replace
from typing import Protocol

from dynamo_dap.debuggee.history.attempts import Attempt
from dynamo_dap.debuggee.history.saved_traces import Given, KeptTrace
from dynamo_dap.debuggee.history.time_travel import Past
from dynamo_dap.debuggee.torch_api.generated_code import is_served
from dynamo_dap.debuggee.wrapping.weak_collections import WeakSet

MAXIMUM_SAVED = 100_000
"""Lines of saved traces. They take as long as Dynamo took for these traces."""


class CallOfTrace(Protocol):
    """What is known of the calls of a cache entry."""

    def let_go(self) -> None:
        """Drop the trace."""


@dataclass(eq=False)
class SavedTrace:
    """The trace of a cache entry, and its history for steps back."""

    past: Past
    trace: KeptTrace
    traced_calls: WeakSet[CallOfTrace] = field(default_factory=WeakSet)
    """Who refers to it."""
    code: weakref.ref[types.CodeType] | None = None
    """What the cache entry runs; where it is known, the trace lives no longer than that."""
    is_closed: bool = False

    def close(self) -> None:
        """Forget it, once no thread uses it."""
        self.is_closed = True
        self.trace.close()


class SavedTraces:
    """The saved traces of all cache entries."""

    def __init__(self) -> None:
        """None is saved yet."""
        self.all: list[SavedTrace] = []

    def add(self, saved: SavedTrace, code: types.CodeType | None) -> None:
        """Keep a trace as long as the ``code`` that its cache entry runs; drop those of entries that torch dropped."""
        for each in [each for each in self.all if each.code is not None and not is_served(each.code())]:
            self._drop(each)
        self.all.append(saved)
        if code is not None:
            saved.code = weakref.ref(code, lambda _: self._drop(saved))
        while len(self.all) > 1 and sum(each.past.end for each in self.all) > MAXIMUM_SAVED:
            self.all.pop(0).close()

    def _drop(self, saved: SavedTrace) -> None:
        """Forget an entry that torch has dropped. Any thread, at any time, also while another thread uses the trace."""
        saved.is_closed = True
        for each in list(saved.traced_calls):
            each.let_go()
        with contextlib.suppress(ValueError):
            self.all.remove(saved)

    def close(self) -> None:
        """Forget all."""
        saved, self.all = self.all, []
        for each in saved:
            each.close()


@dataclass(frozen=True, eq=False)
class _BegunCall:
    """A call whose generated code runs, and reaches a graph break."""

    frame_id: int
    code_id: int
    saved: SavedTrace
    given: Given
    before: Attempt | None

    def attempt(self, frame: types.FrameType) -> Attempt:
        """Return it as a history for steps back; ``frame`` runs its code."""
        given = replace(self.given, call=replace(self.given.call, frame=frame))
        return Attempt(self.saved.past, before=self.before, lend=lambda: self.saved.trace.lent(given, waits=False))


class BegunCalls:
    """Calls that have reached a graph break or will, by thread."""

    def __init__(self) -> None:
        """None has begun."""
        self._of_threads: dict[int, list[_BegunCall]] = {}

    def note(self, frame: types.FrameType, saved: SavedTrace, given: Given, before: Attempt | None) -> None:
        """Note the call that ``frame`` runs: it was ``given`` this, and goes on ``before``."""
        begun = _BegunCall(id(frame), id(frame.f_code), saved, given, before)
        self._of_threads.setdefault(threading.get_ident(), []).append(begun)

    def has(self, code: types.CodeType) -> bool:
        """Whether a call of ``code`` has begun. Any thread."""
        known = list(self._of_threads.values()) if self._of_threads else ()
        return any(each.code_id == id(code) for one in known for each in one)

    def attempt(self, frame: types.FrameType) -> Attempt | None:
        """Return the saved trace of what ``frame`` runs, if it is known what that call was given."""
        if not self._mine():
            return None
        running: set[int] = set()
        below: types.FrameType | None = sys._getframe()
        while below is not None:
            running.add(id(below))
            below = below.f_back
        self._leave([each for each in self._mine() if each.frame_id in running])
        found = next((each for each in self._mine() if each.frame_id == id(frame)), None)
        return None if found is None or found.saved.is_closed else found.attempt(frame)

    def ended(self, frame: types.FrameType) -> None:
        """Forget the call that ``frame`` ran."""
        self._leave([each for each in self._mine() if each.frame_id != id(frame)])

    def clear(self) -> None:
        """Forget all. Any thread."""
        self._of_threads.clear()

    def _mine(self) -> list[_BegunCall]:
        return self._of_threads.get(threading.get_ident(), [])

    def _leave(self, begun: list[_BegunCall]) -> None:
        if begun:
            self._of_threads[threading.get_ident()] = begun
        else:
            self._of_threads.pop(threading.get_ident(), None)
