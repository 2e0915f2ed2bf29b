"""Requests that set breakpoints. Served on the agent's reader thread."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dynamo_dap.debuggee.agent.binding import bind_function
from dynamo_dap.debuggee.agent.breakpoints import Conditions
from dynamo_dap.debuggee.agent.handlers.generated_code import set_listing_breakpoints
from dynamo_dap.debuggee.agent.requests import RequestError, handles
from dynamo_dap.debuggee.code_analysis.line_table import LineTableError, line_table
from dynamo_dap.protocol.contract import EXCEPTION_FILTERS, ErrorId
from dynamo_dap.protocol.types import (
    Breakpoint,
    BreakpointLocation,
    BreakpointLocationsArguments,
    BreakpointLocationsResponseBody,
    SetBreakpointsArguments,
    SetBreakpointsResponseBody,
    SetExceptionBreakpointsArguments,
    SetExceptionBreakpointsResponseBody,
    SetFunctionBreakpointsArguments,
    SetFunctionBreakpointsResponseBody,
    SourceBreakpoint,
)

if TYPE_CHECKING:
    from dynamo_dap.debuggee.agent.agent import Agent


@handles("setBreakpoints", SetBreakpointsArguments)
def set_breakpoints(agent: Agent, arguments: SetBreakpointsArguments) -> SetBreakpointsResponseBody:
    """Replace the line breakpoints of one source."""
    requested = arguments.breakpoints
    if requested is None:
        requested = [SourceBreakpoint(line=line) for line in arguments.lines or []]
    if (listing := set_listing_breakpoints(agent, arguments.source, requested)) is not None:
        return SetBreakpointsResponseBody(listing)
    if not arguments.source.path:
        return SetBreakpointsResponseBody([_unbound("breakpoints need a file", one.line) for one in requested])
    bound = agent.breakpoints.set_lines(arguments.source.path, requested, agent.options)
    agent.arm_engines()
    return SetBreakpointsResponseBody([one.as_dap() for one in bound])


@handles("setFunctionBreakpoints", SetFunctionBreakpointsArguments)
def set_function_breakpoints(
    agent: Agent, arguments: SetFunctionBreakpointsArguments
) -> SetFunctionBreakpointsResponseBody:
    """Replace the function breakpoints."""
    bound = agent.breakpoints.set_functions(arguments.breakpoints, bind_function)
    agent.arm_engines()
    return SetFunctionBreakpointsResponseBody([one.as_dap() for one in bound])


@handles("setExceptionBreakpoints", SetExceptionBreakpointsArguments)
def set_exception_breakpoints(
    agent: Agent, arguments: SetExceptionBreakpointsArguments
) -> SetExceptionBreakpointsResponseBody:
    """Replace the exception filters; one that cannot work is left out."""
    asked: list[tuple[str, str | None]] = [(name, None) for name in arguments.filters]
    asked += [(option.filter_id, option.condition) for option in arguments.filter_options or []]
    problems = [_problem_of_filter(name, condition) for name, condition in asked]
    usable = {name: condition for (name, condition), problem in zip(asked, problems, strict=True) if problem is None}
    agent.breakpoints.set_exception_filters(usable)
    agent.arm_engines()
    return SetExceptionBreakpointsResponseBody(
        [Breakpoint(verified=problem is None, message=problem, reason=problem and "failed") for problem in problems]
    )


def _problem_of_filter(name: str, condition: str | None) -> str | None:
    if name not in EXCEPTION_FILTERS:
        return f"unknown exception filter '{name}'; known filters: {', '.join(EXCEPTION_FILTERS)}, and debugpy's"
    return Conditions.parse(condition, None, None).problem


@handles("breakpointLocations", BreakpointLocationsArguments)
def breakpoint_locations(agent: Agent, arguments: BreakpointLocationsArguments) -> BreakpointLocationsResponseBody:
    """Return the lines of a range where some debugger can stop: outside of functions, only that of ordinary Python."""
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
