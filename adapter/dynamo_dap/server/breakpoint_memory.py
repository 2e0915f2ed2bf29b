"""What the client armed, and the ids it knows it by.

The client's breakpoint ids are the server's own: one breakpoint may live in several backends, and it keeps its id when
``restart`` sets it again in a new process. Used on the loop, one per session; outlives the debugged process.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import msgspec

from dynamo_dap.protocol.events import BreakpointEventBody, StoppedEventBody
from dynamo_dap.protocol.messages import decode
from dynamo_dap.protocol.types import Breakpoint


class Named(Protocol):
    """A backend, as far as its breakpoint ids go."""

    @property
    def name(self) -> str:
        """Tells backends apart."""


class _BreakpointsBody(msgspec.Struct, omit_defaults=True):
    """Body of the answers to all ``set...Breakpoints`` requests."""

    breakpoints: list[Breakpoint] | None = None


@dataclass
class Remembered:
    """One request that armed something, in place of an earlier one of the same ``command`` and ``key`` (a source).

    ``count`` is how many breakpoints it sets; ``ids`` are the client's, by their position in the request, None for one
    that has none.
    """

    command: str
    key: str
    arguments: msgspec.Raw
    count: int
    ids: list[int | None] = field(default_factory=list)


class BreakpointMemory:
    """The requests that are in force, the latest for each source and kind."""

    def __init__(self) -> None:
        self._remembered: dict[tuple[str, str], Remembered] = {}
        self._next_id = itertools.count(1)
        self._client_ids: dict[tuple[str, int], int] = {}

    def in_force(self) -> list[Remembered]:
        """Return what has to be set again in a new process, in the order in which it was first set."""
        return list(self._remembered.values())

    def forget_process(self) -> None:
        """Forget the ids of backends whose process is gone."""
        self._client_ids.clear()

    def merge(self, remembered: Remembered, answers: Sequence[tuple[Named, msgspec.Raw]]) -> _BreakpointsBody:
        """Remember what the backends accepted, and make the client's answer of theirs.

        A breakpoint is verified when some backend verified it. When ``remembered`` has ids already (it was set in an
        earlier process), its breakpoints keep them.
        """
        self._remembered[remembered.command, remembered.key] = remembered
        bodies = [(backend, decode(raw, _BreakpointsBody, "breakpoints").breakpoints) for backend, raw in answers]
        given = [(backend, breakpoints) for backend, breakpoints in bodies if breakpoints is not None]
        if answers and not given:
            return _BreakpointsBody()
        merged = [
            self._merge_one(
                remembered.ids[position] if position < len(remembered.ids) else None,
                [(backend, breakpoints[position]) for backend, breakpoints in given if position < len(breakpoints)],
            )
            for position in range(remembered.count)
        ]
        remembered.ids = [breakpoint.id for breakpoint in merged]
        return _BreakpointsBody(merged)

    def translate_event(self, backend: Named, raw: msgspec.Raw) -> BreakpointEventBody:
        """Return the body of a ``breakpoint`` event with the client's id."""
        body = decode(raw, BreakpointEventBody, "breakpoint event")
        if body.breakpoint.id is not None:
            body.breakpoint.id = self._client_id(backend, body.breakpoint.id, None)
        return body

    def translate_stop(self, backend: Named, raw: msgspec.Raw) -> object:
        """Return the body of a ``stopped`` event with the client's ids; unread when it names none."""
        if b'"hitBreakpointIds"' not in bytes(raw):
            return raw
        body = decode(raw, StoppedEventBody, "stopped event")
        body.hit_breakpoint_ids = [self._client_id(backend, hit, None) for hit in body.hit_breakpoint_ids or []]
        return body

    def _merge_one(self, known_id: int | None, parts: list[tuple[Named, Breakpoint]]) -> Breakpoint:
        if not parts:
            return Breakpoint(verified=False, id=known_id or next(self._next_id), message=_NOT_DEBUGGED)
        _, chosen = next((part for part in parts if part[1].verified), parts[0])
        for backend, part in parts:
            if part.id is not None:
                known_id = self._client_id(backend, part.id, known_id)
        chosen.id = known_id
        return chosen

    def _client_id(self, backend: Named, backend_id: int, wanted: int | None) -> int:
        key = (backend.name, backend_id)
        if key not in self._client_ids:
            self._client_ids[key] = wanted if wanted is not None else next(self._next_id)
        return self._client_ids[key]


_NOT_DEBUGGED = "The program runs without debugging"
