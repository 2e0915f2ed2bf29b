"""Numbers frames, variables, locations and virtual sources for the client.

Numbers count up and are never reused, so an expired one is recognised. Numbers of frames, children and locations expire
when their pause ends. Virtual sources with a key stay for the session, but at most ``MAXIMUM_SOURCES``: a program that
keeps compiling would add one for each generated code. Held threads add numbers; the agent's reader thread looks them
up.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dynamo_dap.debuggee.agent.engine import RequestError
from dynamo_dap.debuggee.agent.frames import Frame
from dynamo_dap.debuggee.agent.pause import Pause
from dynamo_dap.debuggee.values.model import Children, VirtualSource
from dynamo_dap.debuggee.wrapping.locks import Level, lock
from dynamo_dap.protocol.requests.contract import ErrorId

MAXIMUM_SOURCES = 500
"""Maximum number of sources with a key. Beyond it, the least recently used one is dropped."""


@dataclass(frozen=True, slots=True)
class Referred:
    """The object of a number. It belongs to a pause, or to the session if ``pause`` is None."""

    pause: Pause | None
    target: Any


class ReferenceTable:
    """Numbers objects. An object keeps its number during a pause."""

    def __init__(self) -> None:
        self._lock = lock("references", Level.DATA)
        self._last = 0
        self._referred: dict[int, Referred] = {}
        self._known: dict[tuple[int, int], int] = {}
        self._sources: dict[object, int] = {}

    def number_of(self, target: object, pause: Pause | None) -> int:
        """Return the number of ``target``, a new one if it has none yet."""
        if isinstance(target, VirtualSource) and target.key is not None:
            return self._number_of_source(target)
        identity = (id(pause), id(target))
        with self._lock:
            if identity not in self._known:
                self._known[identity] = self._add(Referred(pause, target))
            return self._known[identity]

    def _number_of_source(self, source: VirtualSource) -> int:
        with self._lock:
            number = self._sources.pop(source.key, None)
            if number is None:
                number = self._add(Referred(None, source))
            self._sources[source.key] = number
            if len(self._sources) > MAXIMUM_SOURCES:
                del self._referred[self._sources.pop(next(iter(self._sources)))]
            return number

    def _add(self, referred: Referred) -> int:
        self._last += 1
        self._referred[self._last] = referred
        return self._last

    def find(self, number: int, what: str) -> Referred:
        """Return the object of ``number``; ``what`` names it in the error.

        Raises:
            RequestError: the number is unknown, or its pause has ended.
        """
        with self._lock:
            found = self._referred.get(number)
        if found is not None:
            return found
        is_old = 0 < number <= self._last
        gone = f"{what} {number} has expired: it belongs to an earlier stop, or newer ones replaced it"
        text = gone if is_old else f"unknown {what} {number}"
        raise RequestError(text, error_id=ErrorId.UNKNOWN_REFERENCE)

    def frame(self, number: int) -> tuple[Frame, Pause]:
        """Return a held thread's frame, and its pause. Raises like ``find``."""
        found = self.find(number, "frame")
        if not isinstance(found.target, Frame) or found.pause is None:
            raise RequestError(f"{number} is not a frame", error_id=ErrorId.UNKNOWN_REFERENCE)
        return found.target, found.pause

    def variables(self, number: int) -> tuple[Children, Pause]:
        """Return the variables behind a reference, and their pause. Raises like ``find``."""
        found = self.find(number, "variables reference")
        if not isinstance(found.target, Children) or found.pause is None:
            raise RequestError(f"{number} is not a variables reference", error_id=ErrorId.UNKNOWN_REFERENCE)
        return found.target, found.pause

    def forget(self, pause: Pause) -> None:
        """Drop every number of ``pause``, which ends."""
        with self._lock:
            for number in [number for number, referred in self._referred.items() if referred.pause is pause]:
                del self._referred[number]
            for identity in [identity for identity in self._known if identity[0] == id(pause)]:
                del self._known[identity]
