"""Data breakpoints: stop when a variable of a traced function is guarded, rebound or mutated."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dynamo_dap.debuggee.agent.handlers.lookup import held_children, held_frame, pause_of_frame, pause_of_variables
from dynamo_dap.debuggee.agent.pause import Pause
from dynamo_dap.debuggee.agent.requests import handles, handles_while_held
from dynamo_dap.debuggee.agent.watched_variable import ANY_ACCESS, CHANGED, GUARDED
from dynamo_dap.protocol.types import (
    DataBreakpointInfoArguments,
    DataBreakpointInfoResponseBody,
    SetDataBreakpointsArguments,
    SetDataBreakpointsResponseBody,
)

if TYPE_CHECKING:
    from dynamo_dap.debuggee.agent.agent import Agent


def _owner(agent: Agent, arguments: DataBreakpointInfoArguments) -> Pause | None:
    if arguments.variables_reference:
        return pause_of_variables(agent, arguments.variables_reference)
    return pause_of_frame(agent, arguments.frame_id) if arguments.frame_id is not None else None


@handles_while_held("dataBreakpointInfo", DataBreakpointInfoArguments, _owner)
def data_breakpoint_info(
    agent: Agent, pause: Pause | None, arguments: DataBreakpointInfoArguments
) -> DataBreakpointInfoResponseBody:
    """Tell whether a variable can be watched."""
    watched = None
    if arguments.variables_reference:
        watched = held_children(agent, arguments.variables_reference).watched(arguments.name)
    elif arguments.frame_id is not None and pause is not None:
        watched = held_frame(agent, arguments.frame_id).watched(arguments.name)
    if watched is None:
        text = f"{arguments.name} cannot be watched: only local variables of a function that Dynamo is tracing can"
        return DataBreakpointInfoResponseBody(data_id=None, description=text)
    return DataBreakpointInfoResponseBody(
        data_id=watched.data_id,
        description=f"{watched.name} in {watched.function}: guarded (read), rebound or mutated (write)",
        access_types=[GUARDED, CHANGED, ANY_ACCESS],
        can_persist=True,
    )


@handles("setDataBreakpoints", SetDataBreakpointsArguments)
def set_data_breakpoints(agent: Agent, arguments: SetDataBreakpointsArguments) -> SetDataBreakpointsResponseBody:
    """Replace the data breakpoints."""
    bound = agent.breakpoints.set_data(arguments.breakpoints)
    agent.arm_engines()
    return SetDataBreakpointsResponseBody([one.as_dap() for one in bound])
