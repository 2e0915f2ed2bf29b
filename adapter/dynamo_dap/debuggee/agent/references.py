"""The numbers by which a client refers to frames, variables, locations and virtual sources.

Numbers count up and are never reused, so a stale one is recognised. Frames, children and locations are forgotten when
their pause ends; virtual sources with a key stay for the session. Entries are added on held threads and looked up on
the agent's reader thread.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dynamo_dap.debuggee.values.model import VirtualSource

if TYPE_CHECKING:
    from dynamo_dap.debuggee.agent.pause import Pause


@dataclass(frozen=True, slots=True)
class Referred:
    """What a number stands for: an object of a pause, or (``pause`` None) of the session."""

    pause: Pause | None
    target: Any


class ReferenceTable:
    """Numbers for objects. The same object in the same pause gets the same number."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._last = 0
        self._referred: dict[int, Referred] = {}
        self._known: dict[tuple[int, int], int] = {}
        self._sources: dict[object, int] = {}

    def number_of(self, target: Any, pause: Pause | None) -> int:
        """Return the number of ``target``, giving it one if it has none yet."""
        if isinstance(target, VirtualSource) and target.key is not None:
            return self._number_of_source(target)
        identity = (id(pause), id(target))
        with self._lock:
            if identity not in self._known:
                self._known[identity] = self._add(Referred(pause, target))
            return self._known[identity]

    def _number_of_source(self, source: VirtualSource) -> int:
        with self._lock:
            if source.key not in self._sources:
                self._sources[source.key] = self._add(Referred(None, source))
            return self._sources[source.key]

    def _add(self, referred: Referred) -> int:
        self._last += 1
        self._referred[self._last] = referred
        return self._last

    def lookup(self, number: int) -> Referred | None:
        """Return what ``number`` stands for; None when it never did, or its pause has ended."""
        with self._lock:
            return self._referred.get(number)

    def was_given(self, number: int) -> bool:
        """Whether ``number`` was ever given out."""
        return 0 < number <= self._last

    def forget(self, pause: Pause) -> None:
        """Drop every number of ``pause``."""
        with self._lock:
            for number in [number for number, referred in self._referred.items() if referred.pause is pause]:
                del self._referred[number]
            for identity in [identity for identity in self._known if identity[0] == id(pause)]:
                del self._known[identity]

    def __len__(self) -> int:
        """How many numbers are in use."""
        with self._lock:
            return len(self._referred)
