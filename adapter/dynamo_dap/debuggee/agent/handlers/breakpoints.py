"""Handles requests that set breakpoints.

Runs on the agent's reader thread, or on the backlog's (``serving``). Only ``dataBreakpointInfo`` runs on the held
thread that has the variable.
"""

from __future__ import annotations

from collections.abc import Sequence

from dynamo_dap.debuggee.agent.agent import Agent
from dynamo_dap.debuggee.agent.binding import bind_function
from dynamo_dap.debuggee.agent.breakpoints import ANY_ACCESS, CHANGED, GUARDED, can_be_watched
from dynamo_dap.debuggee.agent.conditions import Conditions
from dynamo_dap.debuggee.agent.engine import RequestError
from dynamo_dap.debuggee.agent.pause import Pause
from dynamo_dap.debuggee.agent.requests import handles, handles_while_held
from dynamo_dap.debuggee.bytecode.line_table import LineTableError, line_table
from dynamo_dap.debuggee.values.model import VirtualSource
from dynamo_dap.protocol.requests.contract import EXCEPTION_FILTERS, ErrorId
from dynamo_dap.protocol.wire.types import (
    Breakpoint,
    BreakpointLocation,
    BreakpointLocationsArguments,
    BreakpointLocationsResponseBody,
    DataBreakpointInfoArguments,
    DataBreakpointInfoResponseBody,
    SetBreakpointsArguments,
    SetBreakpointsResponseBody,
    SetDataBreakpointsArguments,
    SetDataBreakpointsResponseBody,
    SetExceptionBreakpointsArguments,
    SetExceptionBreakpointsResponseBody,
    SetFunctionBreakpointsArguments,
    SetFunctionBreakpointsResponseBody,
    SetInstructionBreakpointsArguments,
    SetInstructionBreakpointsResponseBody,
    Source,
    SourceBreakpoint,
)


@handles("setBreakpoints", SetBreakpointsArguments)
def set_breakpoints(agent: Agent, arguments: SetBreakpointsArguments) -> SetBreakpointsResponseBody:
    """Replace the breakpoints on lines of one source."""
    requested = arguments.breakpoints
    if requested is None:
        requested = [SourceBreakpoint(line=line) for line in arguments.lines or []]
    if (listing := _set_listing_breakpoints(agent, arguments.source, requested)) is not None:
        return SetBreakpointsResponseBody(listing)
    if not arguments.source.path:
        return SetBreakpointsResponseBody([_unbound("breakpoints need a file", one.line) for one in requested])
    bound = agent.breakpoints.set_lines(arguments.source.path, requested, agent.options)
    agent.update_hooks()
    return SetBreakpointsResponseBody([one.as_dap() for one in bound])


@handles("setFunctionBreakpoints", SetFunctionBreakpointsArguments)
def set_function_breakpoints(
    agent: Agent, arguments: SetFunctionBreakpointsArguments
) -> SetFunctionBreakpointsResponseBody:
    """Replace the function breakpoints."""
    bound = agent.breakpoints.set_functions(arguments.breakpoints, bind_function)
    agent.update_hooks()
    return SetFunctionBreakpointsResponseBody([one.as_dap() for one in bound])


@handles("setExceptionBreakpoints", SetExceptionBreakpointsArguments)
def set_exception_breakpoints(
    agent: Agent, arguments: SetExceptionBreakpointsArguments
) -> SetExceptionBreakpointsResponseBody:
    """Replace the exception filters, except those with an unknown name or an invalid condition."""
    asked: list[tuple[str, str | None]] = [(name, None) for name in arguments.filters]
    asked += [(option.filter_id, option.condition) for option in arguments.filter_options or []]
    problems = [_problem_of_filter(name, condition) for name, condition in asked]
    usable = {name: condition for (name, condition), problem in zip(asked, problems, strict=True) if problem is None}
    agent.breakpoints.set_exception_filters(usable)
    agent.update_hooks()
    return SetExceptionBreakpointsResponseBody(
        [Breakpoint(verified=problem is None, message=problem, reason=problem and "failed") for problem in problems]
    )


def _problem_of_filter(name: str, condition: str | None) -> str | None:
    if name not in EXCEPTION_FILTERS:
        return f"unknown exception filter '{name}'; known filters: {', '.join(EXCEPTION_FILTERS)}, and debugpy's"
    return Conditions.parse(condition, None, None).problem


@handles("breakpointLocations", BreakpointLocationsArguments)
def breakpoint_locations(agent: Agent, arguments: BreakpointLocationsArguments) -> BreakpointLocationsResponseBody:
    """Return the lines of a range at which a breakpoint can stop. Only debugpy stops outside of functions."""
    if not arguments.source.path:
        return BreakpointLocationsResponseBody([])
    try:
        table = line_table(arguments.source.path)
    except LineTableError as error:
        raise RequestError(str(error), error_id=ErrorId.UNREADABLE_SOURCE) from None
    last = arguments.end_line if arguments.end_line is not None else arguments.line
    lines = {line for function in table.functions for line in function.lines if arguments.line <= line <= last}
    if agent.eager_debugger.is_active:
        lines.update(line for line in table.executable_lines if arguments.line <= line <= last)
    return BreakpointLocationsResponseBody([BreakpointLocation(line=line) for line in sorted(lines)])


def _unbound(problem: str, line: int) -> Breakpoint:
    return Breakpoint(verified=False, message=problem, line=line, reason="failed")


def _owner(agent: Agent, arguments: DataBreakpointInfoArguments) -> Pause | None:
    if arguments.variables_reference:
        return agent.references.variables(arguments.variables_reference)[1]
    return None if arguments.frame_id is None else agent.references.frame(arguments.frame_id)[1]


@handles_while_held("dataBreakpointInfo", DataBreakpointInfoArguments, _owner)
def data_breakpoint_info(
    agent: Agent, pause: Pause | None, arguments: DataBreakpointInfoArguments
) -> DataBreakpointInfoResponseBody:
    """Return whether a variable can be watched."""
    watched = None
    if arguments.variables_reference:
        watched = agent.references.variables(arguments.variables_reference)[0].watched(arguments.name)
    elif arguments.frame_id is not None and pause is not None:
        watched = agent.references.frame(arguments.frame_id)[0].watched(arguments.name)
    if watched is None:
        text = (
            f"{arguments.name} cannot be watched: only variables of a traced function and attributes of its objects can"
        )
        return DataBreakpointInfoResponseBody(data_id=None, description=text)
    written = "changed by ordinary Python" if watched.is_path else "rebound or mutated"
    return can_be_watched(watched, f"guarded (read), {written} (write)", [GUARDED, CHANGED, ANY_ACCESS])


@handles("setDataBreakpoints", SetDataBreakpointsArguments)
def set_data_breakpoints(agent: Agent, arguments: SetDataBreakpointsArguments) -> SetDataBreakpointsResponseBody:
    """Replace the data breakpoints."""
    bound = agent.breakpoints.set_data(arguments.breakpoints)
    agent.update_hooks()
    return SetDataBreakpointsResponseBody([one.as_dap() for one in bound])


@handles("setInstructionBreakpoints", SetInstructionBreakpointsArguments)
def set_instruction_breakpoints(
    agent: Agent, arguments: SetInstructionBreakpointsArguments
) -> SetInstructionBreakpointsResponseBody:
    """Replace the instruction breakpoints."""
    engine = agent.instruction_engine
    if engine is None:
        problem = "no generated code exists yet: the program has not imported torch._dynamo"
        unbound = Breakpoint(verified=False, message=problem, reason="failed")
        return SetInstructionBreakpointsResponseBody([unbound for _ in arguments.breakpoints])
    answers = engine.set_instruction_breakpoints(arguments.breakpoints)
    agent.update_hooks()
    return SetInstructionBreakpointsResponseBody(answers)


def _set_listing_breakpoints(
    agent: Agent, source: Source, requested: Sequence[SourceBreakpoint]
) -> list[Breakpoint] | None:
    """Replace the breakpoints of a listing of generated code; return None if ``source`` is not such a listing."""
    engine = agent.instruction_engine
    if engine is None or not source.source_reference:
        return None
    target = agent.references.find(source.source_reference, "source reference").target
    if not isinstance(target, VirtualSource):
        return None
    answers = engine.set_listing_breakpoints(target, requested)
    if answers is not None:
        agent.update_hooks()
    return answers
