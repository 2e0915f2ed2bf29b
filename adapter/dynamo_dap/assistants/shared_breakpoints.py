"""Merges the breakpoints of several clients of one session: each DAP request replaces the whole list.

A session has one ``SharedBreakpoints`` and uses it under its lock.
"""

from __future__ import annotations

import os
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from msgspec import Struct

from dynamo_dap.protocol.wire.types import (
    SetBreakpointsArguments,
    SetDataBreakpointsArguments,
    SetExceptionBreakpointsArguments,
    SetFunctionBreakpointsArguments,
    SetInstructionBreakpointsArguments,
)

LISTS = {
    "setBreakpoints": "breakpoints",
    "setFunctionBreakpoints": "breakpoints",
    "setDataBreakpoints": "breakpoints",
    "setInstructionBreakpoints": "breakpoints",
    "setExceptionBreakpoints": "filterOptions",
}
"""The requests that replace a list, with the list's name in their arguments."""
ARGUMENTS: dict[str, type[Struct]] = {
    "setBreakpoints": SetBreakpointsArguments,
    "setFunctionBreakpoints": SetFunctionBreakpointsArguments,
    "setDataBreakpoints": SetDataBreakpointsArguments,
    "setInstructionBreakpoints": SetInstructionBreakpointsArguments,
    "setExceptionBreakpoints": SetExceptionBreakpointsArguments,
}
"""The types of the requests' arguments: one client's invalid entries would make the list of both invalid."""

Arguments = dict[str, Any]
_Key = tuple[str, str]


class _Wanted:
    """One list of breakpoints: each client's entries, and the ids that each client knows."""

    def __init__(self, arguments: Arguments) -> None:
        self.arguments = arguments
        """The arguments of the first request. Its path stays in use if another client writes the path differently."""
        self.given: dict[Hashable, list[Arguments]] = {}
        self.ids: dict[Hashable, list[int | None]] = {}

    def all(self) -> list[Arguments]:
        """Return each entry once, in the order of the clients."""
        found: list[Arguments] = []
        for given in self.given.values():
            found += [one for one in given if one not in found]
        return found


@dataclass(frozen=True)
class Asked:
    """The entries of one list when its request was sent: other clients may change theirs before the answer."""

    key: _Key
    given: Mapping[Hashable, Sequence[Arguments]]
    """By client."""
    every: Sequence[Arguments]
    """The entries of the request."""


class SharedBreakpoints:
    """The lists of all clients."""

    def __init__(self) -> None:
        self._wanted: dict[_Key, _Wanted] = {}
        self._known_as: dict[Hashable, dict[int, int]] = {}
        """For each client, the old ids of breakpoints to which the server has given new ids."""

    def given(self, client: Hashable, command: str, arguments: Arguments) -> tuple[Asked, Arguments]:
        """Replace the entries of ``client``; return the arguments for all clients."""
        key = (command, _place(arguments))
        wanted = self._wanted.setdefault(key, _Wanted(arguments))
        wanted.given[client] = _entries(command, arguments)
        return self._asked(key), self._for_all(key, {**arguments, **_source(wanted)})

    def gone(self, client: Hashable) -> list[tuple[str, Asked, Arguments]]:
        """Remove a client; return the requests that remove its own entries."""
        concerned = [key for key, wanted in self._wanted.items() if wanted.given.pop(client, None)]
        return [(key[0], self._asked(key), self._for_all(key, self._wanted[key].arguments)) for key in concerned]

    def answered(self, client: Hashable | None, asked: Asked, body: Arguments) -> Arguments:
        """Return the server's answer to ``asked`` with only the entries of ``client``, which made the request."""
        wanted = self._wanted[asked.key]
        reported: list[Arguments] = body.get("breakpoints") or []
        if len(reported) != len(asked.every):
            return body
        own: list[Arguments] = []
        for other, given in asked.given.items():
            answers = [reported[asked.every.index(one)] for one in given]
            ids = [one.get("id") for one in answers]
            if other == client:
                wanted.ids[other], own = ids, answers
            known_as = self._known_as.setdefault(other, {})
            for new, known in zip(ids, wanted.ids.get(other, []), strict=False):
                if new is not None and known is not None:
                    known_as[new] = known
        return {**body, "breakpoints": own}

    def with_known_ids(self, client: Hashable, event: str, body: Arguments) -> Arguments:
        """Return an event's body with the ids that ``client`` knows."""
        known_as = self._known_as.get(client, {})
        if event == "breakpoint":
            one = body["breakpoint"]
            return {**body, "breakpoint": {**one, "id": known_as.get(one["id"], one["id"])}} if "id" in one else body
        hit: list[int] | None = body.get("hitBreakpointIds")
        return body if hit is None else {**body, "hitBreakpointIds": [known_as.get(one, one) for one in hit]}

    def _asked(self, key: _Key) -> Asked:
        wanted = self._wanted[key]
        return Asked(key, dict(wanted.given), wanted.all())

    def _for_all(self, key: _Key, arguments: Arguments) -> Arguments:
        rest = {name: value for name, value in arguments.items() if name not in ("filters", "lines")}
        filters: Arguments = {"filters": []} if key[0] == "setExceptionBreakpoints" else {}
        return {**rest, **filters, LISTS[key[0]]: self._wanted[key].all()}


def _place(arguments: Arguments) -> str:
    source = arguments.get("source") or {}
    path = source.get("path")
    return os.path.realpath(path) if path else str(source.get("sourceReference") or source.get("name") or "")


def _source(wanted: _Wanted) -> Arguments:
    return {"source": wanted.arguments["source"]} if "source" in wanted.arguments else {}


def _entries(command: str, arguments: Arguments) -> list[Arguments]:
    entries: list[Arguments] = list(arguments.get(LISTS[command]) or [])
    if command == "setExceptionBreakpoints":
        return [{"filterId": name} for name in arguments.get("filters") or []] + entries
    if command == "setBreakpoints" and not entries:
        return [{"line": line} for line in arguments.get("lines") or []]
    return entries
