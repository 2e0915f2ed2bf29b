"""Custom requests about what was compiled.

Served on the agent's reader thread, while the program runs or is held; a request about a compile in progress is served
on the thread that is held in its trace. The answers come from the engine called ``record``; the agent knows only its
interface, ``CompileReader``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, cast

import msgspec

from dynamo_dap.debuggee.agent.handlers.stack import dap_source
from dynamo_dap.debuggee.agent.pause import Pause
from dynamo_dap.debuggee.agent.requests import RequestError, handles, handles_while_held
from dynamo_dap.debuggee.values.model import VirtualSource
from dynamo_dap.protocol.contract import COMPILES, GRAPH, GUARDS, ErrorId, GraphArguments, GuardsArguments
from dynamo_dap.protocol.types import Source

if TYPE_CHECKING:
    from dynamo_dap.debuggee.agent.agent import Agent

RECORD = "record"


class NoSuchCompile(Exception):
    """There is no such compile or graph; the text is for a person."""


class GraphBody(Protocol):
    """The body of ``dynamoGraph``, to which the agent adds where the code can be read."""

    source: Source | None


class CompileReader(Protocol):
    """What was recorded, as the bodies of responses."""

    def compiles(self) -> dict[str, object]:
        """Return the body of ``dynamoCompiles``."""

    def graph(self, compile_id: str, index: int) -> tuple[GraphBody, VirtualSource]:
        """Return the body of ``dynamoGraph``, and the readable code. Raises ``NoSuchCompile``."""

    def guards(self, compile_id: str) -> object:
        """Return the body of ``dynamoGuards``. Raises ``NoSuchCompile``."""

    def thread_of(self, compile_id: str) -> int | None:
        """Return Python's identifier of the thread that traces a compile; None when it is over, or there is none."""

    def graph_so_far(self, compile_id: str, index: int) -> tuple[GraphBody, VirtualSource] | None:
        """Return what ``graph`` does, of the trace that is held on this thread; None when it is another one's."""

    def guards_so_far(self, compile_id: str) -> object:
        """Return what ``guards`` does, of the trace that is held on this thread; None when it is another one's."""


class _NoArguments(msgspec.Struct):
    pass


def _reader(agent: Agent) -> CompileReader | None:
    found = next((engine for engine in agent.engines if engine.name == RECORD), None)
    return cast("CompileReader | None", found)


def _needed_reader(agent: Agent) -> CompileReader:
    reader = _reader(agent)
    if reader is None:
        raise RequestError(
            "nothing has been compiled: the program has not imported torch._dynamo", error_id=ErrorId.NOTHING_COMPILED
        )
    return reader


@handles(COMPILES, _NoArguments)
def compiles(agent: Agent, arguments: _NoArguments) -> dict[str, object]:
    """Return what was compiled, oldest first."""
    reader = _reader(agent)
    return {"functions": []} if reader is None else reader.compiles()


def _pause_in_trace(agent: Agent, arguments: GraphArguments | GuardsArguments) -> Pause | None:
    """Return the pause inside the trace of the compile that is asked for, if there is one."""
    reader = _reader(agent)
    thread = None if reader is None else reader.thread_of(arguments.compile_id)
    return None if thread is None else agent.pause_on(thread)


@handles_while_held(GRAPH, GraphArguments, _pause_in_trace)
def graph(agent: Agent, pause: Pause | None, arguments: GraphArguments) -> GraphBody:
    """Return one graph: as it was given to the backend, else as far as it has been traced."""
    reader = _needed_reader(agent)
    so_far = None if pause is None else reader.graph_so_far(arguments.compile_id, arguments.index)
    try:
        body, code = reader.graph(arguments.compile_id, arguments.index) if so_far is None else so_far
    except NoSuchCompile as problem:
        raise RequestError(str(problem), error_id=ErrorId.NO_SUCH_COMPILE) from None
    body.source = dap_source(agent, None if so_far is None else pause, code)
    return body


@handles_while_held(GUARDS, GuardsArguments, _pause_in_trace)
def guards(agent: Agent, pause: Pause | None, arguments: GuardsArguments) -> object:
    """Return the guards of one compile: those built, else those that its trace has asked for so far."""
    reader = _needed_reader(agent)
    so_far = None if pause is None else reader.guards_so_far(arguments.compile_id)
    if so_far is not None:
        return so_far
    try:
        return reader.guards(arguments.compile_id)
    except NoSuchCompile as problem:
        raise RequestError(str(problem), error_id=ErrorId.NO_SUCH_COMPILE) from None
