"""Requests beyond DAP about what was compiled. Served on the agent's reader thread, while the program runs or is held.

What is known is taken down by the engine called ``record``, which the agent knows nothing else of.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, cast

import msgspec

from dynamo_dap.debuggee.agent.handlers.stack import dap_source
from dynamo_dap.debuggee.agent.requests import RequestError, handles
from dynamo_dap.debuggee.values.model import VirtualSource

if TYPE_CHECKING:
    from dynamo_dap.debuggee.agent.agent import Agent

RECORD = "record"


class NoSuchCompile(Exception):
    """There is no such compile or graph; the text is for a person."""


class CompileReader(Protocol):
    """What was taken down. Bodies are plain values, as ``vscode-extension/README.md`` documents them."""

    def compiles(self) -> dict[str, object]:
        """Return the body of ``dynamoCompiles``."""

    def graph(self, compile_id: str, index: int) -> tuple[dict[str, object], VirtualSource]:
        """Return the body of ``dynamoGraph``, and the readable code. Raises ``NoSuchCompile``."""

    def guards(self, compile_id: str) -> dict[str, object]:
        """Return the body of ``dynamoGuards``. Raises ``NoSuchCompile``."""


class _NoArguments(msgspec.Struct):
    pass


class _GraphArguments(msgspec.Struct, rename="camel"):
    compile_id: str
    index: int = 0


class _GuardsArguments(msgspec.Struct, rename="camel"):
    compile_id: str


def _reader(agent: Agent) -> CompileReader | None:
    found = next((engine for engine in agent.engines if engine.name == RECORD), None)
    return cast("CompileReader | None", found)


def _needed_reader(agent: Agent) -> CompileReader:
    reader = _reader(agent)
    if reader is None:
        raise RequestError("nothing has been compiled: the program has not imported torch._dynamo", error_id=131)
    return reader


@handles("dynamoCompiles", _NoArguments)
def compiles(agent: Agent, arguments: _NoArguments) -> dict[str, object]:
    """Return what was compiled, oldest first."""
    reader = _reader(agent)
    return {"functions": []} if reader is None else reader.compiles()


@handles("dynamoGraph", _GraphArguments)
def graph(agent: Agent, arguments: _GraphArguments) -> dict[str, object]:
    """Return one graph."""
    try:
        body, code = _needed_reader(agent).graph(arguments.compile_id, arguments.index)
    except NoSuchCompile as problem:
        raise RequestError(str(problem), error_id=132) from None
    return {**body, "source": dap_source(agent, None, code)}


@handles("dynamoGuards", _GuardsArguments)
def guards(agent: Agent, arguments: _GuardsArguments) -> dict[str, object]:
    """Return the guards of one compile."""
    try:
        return _needed_reader(agent).guards(arguments.compile_id)
    except NoSuchCompile as problem:
        raise RequestError(str(problem), error_id=132) from None
