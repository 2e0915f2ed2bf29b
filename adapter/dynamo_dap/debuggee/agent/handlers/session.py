"""Requests about the session itself. Served on the agent's reader thread."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from dynamo_dap.debuggee.agent.requests import handles
from dynamo_dap.protocol.options import AgentOptions
from dynamo_dap.protocol.types import (
    CancelArguments,
    DisconnectArguments,
    InitializeRequestArguments,
    TerminateArguments,
)

if TYPE_CHECKING:
    from dynamo_dap.debuggee.agent.agent import Agent


class _NoArguments(Struct):
    pass


@handles("initialize", InitializeRequestArguments)
def initialize(agent: Agent, arguments: InitializeRequestArguments) -> None:
    """Nothing to negotiate: the server knows what the agent can."""


@handles("attach", AgentOptions)
def attach(agent: Agent, options: AgentOptions) -> None:
    """Take up the session's options; ``initialized`` follows."""
    agent.options = options
    agent.breakpoints.bind_again(options)
    # A program that has imported torch has its engines already, armed as the options before wanted it.
    agent.arm_engines()
    agent.after_response(lambda: _begin(agent, options))


def _begin(agent: Agent, options: AgentOptions) -> None:
    if options.eager_address is not None or options.eager_adopts:
        agent.start_eager(options)
    agent.invite_children(options)
    agent.send_event("initialized")


@handles("configurationDone", _NoArguments)
def configuration_done(agent: Agent, arguments: _NoArguments) -> None:
    """Breakpoints are set: the program may run."""
    agent.after_response(agent.configured.set)


@handles("disconnect", DisconnectArguments)
def disconnect(agent: Agent, arguments: DisconnectArguments) -> None:
    """Let every thread go and the client with it; the program runs on, unless it is to be terminated."""
    agent.after_response(agent.on_terminate if arguments.terminate_debuggee else agent.detach_client)


@handles("terminate", TerminateArguments)
def terminate(agent: Agent, arguments: TerminateArguments) -> None:
    """Let every thread go, then end the program."""
    agent.after_response(agent.on_terminate)


@handles("cancel", CancelArguments)
def cancel(agent: Agent, arguments: CancelArguments) -> None:
    """Interrupt an evaluation, or forget a request that has not begun."""
    if arguments.request_id is not None:
        agent.cancel(arguments.request_id)
