"""Splits the breakpoints of a request between the backends. Pure functions, used on the loop.

A line breakpoint with a mode goes only to the backend of that mode; each exception filter belongs to one backend.
"""

from __future__ import annotations

from typing import Any

import msgspec

from dynamo_dap.protocol.contract import EAGER
from dynamo_dap.server.backend import Backend
from dynamo_dap.server.debugpy_backend import DEBUGPY
from dynamo_dap.server.eager_capabilities import EAGER_FILTERS
from dynamo_dap.server.ids import ALONE


def share(backend: Backend, command: str, raw: msgspec.Raw) -> tuple[msgspec.Raw | None, list[int] | None]:
    """Return what of the arguments of ``command`` is for ``backend``, and the positions of its breakpoints in them.

    The arguments are None when nothing is, the positions when they are those of the whole request.
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
    arguments = msgspec.json.decode(bytes(raw))
    if wants_eager and not arguments.get("source", {}).get("path"):
        # A listing of generated code is the agent's; debugpy ends its session over a source that has no path.
        return None, []
    breakpoints = arguments.get("breakpoints")
    if breakpoints is None:
        lines = arguments.get("lines")
        if lines is None:
            return raw, None
        breakpoints = [{"line": line} for line in lines]
    elif all(one.get("mode") is None for one in breakpoints):
        return raw, None
    positions = [index for index, one in enumerate(breakpoints) if _is_for(one.get("mode"), wants_eager=wants_eager)]
    arguments["breakpoints"] = [breakpoints[index] for index in positions]
    return msgspec.Raw(msgspec.json.encode(arguments)), positions


def _is_for(mode: str | None, *, wants_eager: bool) -> bool:
    return mode is None or (mode == EAGER) is wants_eager


def _filters(raw: msgspec.Raw, *, wants_eager: bool) -> tuple[msgspec.Raw, list[int] | None]:
    arguments: dict[str, Any] = msgspec.json.decode(bytes(raw))
    filters: list[str] = arguments.get("filters") or []
    options: list[dict[str, Any]] = arguments.get("filterOptions") or []
    names = filters + [option["filterId"] for option in options]
    refused = conditions_refused(raw)
    positions = [
        index for index, name in enumerate(names) if (name in EAGER_FILTERS) is wants_eager and index not in refused
    ]
    own = {**arguments, "filters": [name for name in filters if (name in EAGER_FILTERS) is wants_eager]}
    if wants_eager:
        # debugpy knows filters without options only.
        own["filters"] = [names[index] for index in positions]
        own.pop("filterOptions", None)
    else:
        own["filterOptions"] = [option for option in options if option["filterId"] not in EAGER_FILTERS]
        own.pop("exceptionOptions", None)
    return msgspec.Raw(msgspec.json.encode(own)), positions


def conditions_refused(raw: msgspec.Raw) -> dict[int, str]:
    """Return the positions of filters that are given a condition and take none, each with what to say of it."""
    arguments: dict[str, Any] = msgspec.json.decode(bytes(raw))
    first = len(arguments.get("filters") or [])
    return {
        position: f"the filter '{option['filterId']}' takes no condition"
        for position, option in enumerate(arguments.get("filterOptions") or [], start=first)
        if option["filterId"] in EAGER_FILTERS and (option.get("condition") or "").strip()
    }
