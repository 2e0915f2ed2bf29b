"""Requests for virtual sources and locations."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dynamo_dap.debuggee.agent.handlers.lookup import referred
from dynamo_dap.debuggee.agent.handlers.stack import dap_source
from dynamo_dap.debuggee.agent.pause import Pause
from dynamo_dap.debuggee.agent.requests import RequestError, handles, handles_while_held
from dynamo_dap.debuggee.values.model import Location, VirtualSource
from dynamo_dap.protocol.contract import ErrorId
from dynamo_dap.protocol.types import (
    LocationsArguments,
    LocationsResponseBody,
    SourceArguments,
    SourceResponseBody,
)

if TYPE_CHECKING:
    from dynamo_dap.debuggee.agent.agent import Agent


def _number(arguments: SourceArguments) -> int:
    return (arguments.source.source_reference if arguments.source else None) or arguments.source_reference


def _owner(agent: Agent, arguments: SourceArguments) -> Pause | None:
    return referred(agent, _number(arguments), "source reference").pause


@handles_while_held("source", SourceArguments, _owner)
def source(agent: Agent, pause: Pause | None, arguments: SourceArguments) -> SourceResponseBody:
    """Return the text of a virtual source."""
    target = referred(agent, _number(arguments), "source reference").target
    if not isinstance(target, VirtualSource):
        raise RequestError(f"{_number(arguments)} is not a source reference", error_id=ErrorId.UNKNOWN_REFERENCE)
    return SourceResponseBody(content=target.text(), mime_type=target.mime_type)


@handles("locations", LocationsArguments)
def locations(agent: Agent, arguments: LocationsArguments) -> LocationsResponseBody:
    """Return the place behind a location reference."""
    found = referred(agent, arguments.location_reference, "location reference")
    location = found.target
    if not isinstance(location, Location):
        raise RequestError(
            f"{arguments.location_reference} is not a location reference", error_id=ErrorId.UNKNOWN_REFERENCE
        )
    place = dap_source(agent, found.pause, location.path)
    assert place is not None
    return LocationsResponseBody(source=place, line=location.line, column=location.column)
