"""Remembers the client's breakpoints and exception filters, and splits them between the backends.

The server assigns its own breakpoint ids: one breakpoint may be set in both backends, and keeps its id when ``restart``
sets it again in a new process. A line breakpoint with a mode goes only to the backend of that mode. Each exception
filter belongs to one backend. Runs on the event loop, one memory per session; it outlives the debugged process.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import msgspec

from dynamo_dap.protocol.requests.contract import EAGER
from dynamo_dap.protocol.wire.messages import decode
from dynamo_dap.protocol.wire.types import Breakpoint, BreakpointEventBody, StoppedEventBody
from dynamo_dap.server.backends.backend import AGENT, DEBUGPY, Backend
from dynamo_dap.server.backends.ids import ALONE
from dynamo_dap.server.client.capabilities import EAGER_FILTERS


def share(backend: Backend, command: str, raw: msgspec.Raw) -> tuple[msgspec.Raw | None, list[int] | None]:
    """Return ``backend``'s part of ``command``'s arguments, and the positions of its breakpoints in them.

    The arguments are None if the backend gets none. The positions are None if the backend gets all breakpoints.
    """
    wants_eager = backend.name == DEBUGPY
    if command in ("setInstructionBreakpoints", "setDataBreakpoints") and wants_eager:
        return None, []
    if command == "setBreakpoints" and backend.ids is not ALONE:
        return _lines(raw, wants_eager=wants_eager)
    if command == "setExceptionBreakpoints":
        return _filters(raw, wants_eager=wants_eager)
    return raw, None


def _lines(raw: msgspec.Raw, *, wants_eager: bool) -> tuple[msgspec.Raw | None, list[int] | None]:
    arguments = decode(raw, dict[str, Any], "arguments")
    if wants_eager and not arguments.get("source", {}).get("path"):
        # A listing of generated code belongs to the agent; debugpy ends its session at a source without a path.
        return None, []
    breakpoints = arguments.get("breakpoints")
    if breakpoints is None:
        lines = arguments.get("lines")
        if lines is None:
            return raw, None
        breakpoints = [{"line": line} for line in lines]
    elif all(breakpoint.get("mode") is None for breakpoint in breakpoints):
        return raw, None
    positions = [index for index, one in enumerate(breakpoints) if _is_for(one.get("mode"), wants_eager=wants_eager)]
    arguments["breakpoints"] = [breakpoints[index] for index in positions]
    return msgspec.Raw(msgspec.json.encode(arguments)), positions


def _is_for(mode: str | None, *, wants_eager: bool) -> bool:
    return mode is None or (mode == EAGER) is wants_eager


def _filters(raw: msgspec.Raw, *, wants_eager: bool) -> tuple[msgspec.Raw, list[int] | None]:
    arguments = decode(raw, dict[str, Any], "arguments")
    filters: list[str] = arguments.get("filters") or []
    options: list[dict[str, object]] = arguments.get("filterOptions") or []
    names = filters + [option["filterId"] for option in options]
    refused = conditions_refused(raw)
    positions = [
        index for index, name in enumerate(names) if (name in EAGER_FILTERS) is wants_eager and index not in refused
    ]
    own = {**arguments, "filters": [name for name in filters if (name in EAGER_FILTERS) is wants_eager]}
    if wants_eager:
        # debugpy supports filters only without options.
        own["filters"] = [names[index] for index in positions]
        own.pop("filterOptions", None)
    else:
        own["filterOptions"] = [option for option in options if option["filterId"] not in EAGER_FILTERS]
        own.pop("exceptionOptions", None)
    return msgspec.Raw(msgspec.json.encode(own)), positions


def conditions_refused(raw: msgspec.Raw) -> dict[int, str]:
    """Return the positions of filters with a condition that they do not support, each with a message."""
    arguments = decode(raw, dict[str, Any], "arguments")
    first = len(arguments.get("filters") or [])
    return {
        position: f"the filter '{option['filterId']}' takes no condition"
        for position, option in enumerate(arguments.get("filterOptions") or [], start=first)
        if option["filterId"] in EAGER_FILTERS and (option.get("condition") or "").strip()
    }


class Named(Protocol):
    """The part of a backend that a translation of breakpoint ids needs."""

    @property
    def name(self) -> str:
        """Distinguishes backends."""


class _BreakpointsBody(msgspec.Struct, omit_defaults=True):
    """Body of the answers to all ``set...Breakpoints`` requests."""

    breakpoints: list[Breakpoint] | None = None


def _read(raw: msgspec.Raw) -> list[Breakpoint] | None:
    """Read a backend's breakpoints, without the client's checksums, which debugpy repeats unchecked."""
    found = decode(raw, _BreakpointsBody, "breakpoints").breakpoints
    for breakpoint in found or ():
        if breakpoint.source is not None:
            breakpoint.source.checksums = None
    return found


@dataclass
class Remembered:
    """One request that set breakpoints.

    It replaces an earlier one of the same ``command`` and ``key`` (a source). ``count`` is its number of breakpoints.
    ``ids`` has the client's id of each breakpoint, by position; None for a breakpoint without an id.
    """

    command: str
    key: str
    arguments: msgspec.Raw
    count: int
    ids: list[int | None] = field(default_factory=list)
    positions: dict[str, list[int]] = field(default_factory=dict)
    """By backend name: positions of its breakpoints. A missing backend got all."""
    refused: dict[int, str] = field(default_factory=dict)
    """By position: the problem of a breakpoint that no backend gets."""

    def share(self, backend: Backend, arguments: msgspec.Raw) -> msgspec.Raw | None:
        """Return the part of ``arguments`` for ``backend``; None if there is none."""
        own, positions = share(backend, self.command, arguments)
        if positions is None:
            self.positions.pop(backend.name, None)
        else:
            self.positions[backend.name] = positions
        return own

    def by_position(self, backend: Named, breakpoints: list[Breakpoint] | None) -> dict[int, Breakpoint]:
        """Return the backend's answer by each breakpoint's position in the whole request."""
        positions = self.positions.get(backend.name)
        if breakpoints is None:
            # Exception filters need no answer: debugpy accepts all of its own.
            return {position: Breakpoint(verified=True) for position in positions or ()}
        return dict(zip(range(len(breakpoints)) if positions is None else positions, breakpoints, strict=False))


@dataclass
class _Known:
    """One breakpoint: the request that set it, and each backend's last answer."""

    command: str
    parts: dict[str, Breakpoint]


class BreakpointMemory:
    """Keeps the latest request for each command and source."""

    def __init__(self) -> None:
        self._remembered: dict[tuple[str, str], Remembered] = {}
        self._next_id = itertools.count(1)
        self._client_ids: dict[tuple[str, int], int] = {}
        self._known: dict[int, _Known] = {}

    def in_force(self) -> list[Remembered]:
        """Return the requests to repeat in a new process, in their original order."""
        return list(self._remembered.values())

    def forget_process(self) -> None:
        """Forget the backends' ids, since the process has ended."""
        self._client_ids.clear()
        self._known.clear()

    def merge(self, remembered: Remembered, answers: Sequence[tuple[Named, msgspec.Raw]]) -> _BreakpointsBody:
        """Remember the accepted breakpoints, and merge the backends' answers into one for the client.

        ``_decisive`` merges the backends' answers about one breakpoint. Breakpoints that have ``remembered`` ids, for
        example from an earlier process, keep them.
        """
        self._remembered[remembered.command, remembered.key] = remembered
        bodies = [(backend, _read(raw)) for backend, raw in answers]
        nothing_said = not remembered.refused and not any(given for _, given in bodies)
        if answers and nothing_said and any(given is None for _, given in bodies):
            return _BreakpointsBody()
        by_backend = [(backend.name, remembered.by_position(backend, given)) for backend, given in bodies]
        merged = [
            self._merge_one(
                remembered,
                remembered.ids[position] if position < len(remembered.ids) else None,
                {name: given[position] for name, given in by_backend if position in given},
                remembered.refused.get(position),
            )
            for position in range(remembered.count)
        ]
        remembered.ids = [breakpoint.id for breakpoint in merged]
        return _BreakpointsBody(merged)

    def pending(self, remembered: Remembered, reason: str) -> _BreakpointsBody:
        """Answer the client while the program cannot answer; ``merge`` later uses the same ids."""
        ids = [next(self._next_id) for _ in range(remembered.count)]
        remembered.ids = [*ids]
        return _BreakpointsBody([Breakpoint(verified=False, id=each, message=reason, reason="pending") for each in ids])

    def translate_event(self, backend: Named, raw: msgspec.Raw) -> BreakpointEventBody:
        """Return the body of a ``breakpoint`` event with the client's id and the merged state of both backends."""
        body = decode(raw, BreakpointEventBody, "breakpoint event")
        if body.breakpoint.id is not None:
            client_id = self._client_id(backend.name, body.breakpoint.id)
            known = self._known.setdefault(client_id, _Known("", {}))
            known.parts[backend.name] = body.breakpoint
            body.breakpoint = msgspec.structs.replace(_decisive(known.command, known.parts), id=client_id)
        return body

    def translate_stop(self, backend: Named, raw: msgspec.Raw) -> object:
        """Return the body of a ``stopped`` event with the client's ids; the same body if it names no breakpoint."""
        if b'"hitBreakpointIds"' not in bytes(raw):
            return raw
        body = decode(raw, StoppedEventBody, "stopped event")
        body.hit_breakpoint_ids = [self._client_id(backend.name, hit) for hit in body.hit_breakpoint_ids or []]
        return body

    def _merge_one(
        self, remembered: Remembered, known_id: int | None, parts: dict[str, Breakpoint], refusal: str | None
    ) -> Breakpoint:
        if not parts:
            message = refusal or (_NOT_EAGER if remembered.positions else _NOT_DEBUGGED)
            return Breakpoint(verified=False, id=known_id or next(self._next_id), message=message)
        own = [(name, part.id) for name, part in parts.items() if part.id is not None]
        if own and known_id is None:
            # A breakpoint event can arrive before these answers: it has then assigned an id already.
            given = [self._client_ids[key] for key in own if key in self._client_ids]
            known_id = min(given) if given else next(self._next_id)
        if known_id is not None:
            self._client_ids.update(dict.fromkeys(own, known_id))
            self._known[known_id] = _Known(remembered.command, parts)
        return msgspec.structs.replace(_decisive(remembered.command, parts), id=known_id)

    def _client_id(self, backend: str, backend_id: int) -> int:
        key = (backend, backend_id)
        if key not in self._client_ids:
            self._client_ids[key] = next(self._next_id)
        return self._client_ids[key]


def _decisive(command: str, parts: dict[str, Breakpoint]) -> Breakpoint:
    """Return the merged state of a breakpoint in several backends: verified if one can really hit it.

    debugpy verifies every function breakpoint. That counts only if the agent knows that Dynamo never traces the
    function.
    """
    agent = parts.get(AGENT)
    if agent is None:
        return next(iter(parts.values()))
    if command == "setFunctionBreakpoints" and agent.reason == "pending":
        return agent
    eager = parts.get(DEBUGPY)
    if eager is None or not eager.verified:
        return agent
    if not agent.verified:
        message = None if agent.message is None else f"stops in ordinary Python only: {agent.message}"
        return msgspec.structs.replace(eager, message=eager.message or message)
    message = None if agent.message is None else f"{agent.message}, and where it runs as ordinary Python"
    return msgspec.structs.replace(agent, message=message)


_NOT_DEBUGGED = "The program runs without debugging"
_NOT_EAGER = "This session does not debug ordinary Python"
