"""Requests that set breakpoints: each goes to every backend, and is remembered for ``restart``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from dynamo_dap.protocol.contract import ErrorId
from dynamo_dap.protocol.types import (
    Capabilities,
    SetBreakpointsArguments,
    SetDataBreakpointsArguments,
    SetExceptionBreakpointsArguments,
    SetFunctionBreakpointsArguments,
    SetInstructionBreakpointsArguments,
)
from dynamo_dap.server.breakpoint_memory import Remembered
from dynamo_dap.server.breakpoint_shares import conditions_refused
from dynamo_dap.server.errors import RequestRefused
from dynamo_dap.server.handling import Answers, Plan, broadcasts

if TYPE_CHECKING:
    from dynamo_dap.server.session import Session


@broadcasts("setBreakpoints", SetBreakpointsArguments)
def set_breakpoints(session: Session, raw: msgspec.Raw, arguments: SetBreakpointsArguments) -> Plan:
    """Line breakpoints of one source."""
    source = arguments.source
    if not source.path and not source.source_reference:
        text = "setBreakpoints arguments: a source needs a path or a reference - at `$.source`"
        raise RequestRefused(ErrorId.INVALID_ARGUMENTS, text)
    key = source.path or f"{source.name} {source.source_reference}"
    count = len(arguments.breakpoints if arguments.breakpoints is not None else arguments.lines or [])
    return _remember(session, "setBreakpoints", key, raw, count)


@broadcasts(
    "setFunctionBreakpoints", SetFunctionBreakpointsArguments, brings=Capabilities(supports_function_breakpoints=True)
)
def set_function_breakpoints(session: Session, raw: msgspec.Raw, arguments: SetFunctionBreakpointsArguments) -> Plan:
    """Breakpoints by the name of the function."""
    return _remember(session, "setFunctionBreakpoints", "", raw, len(arguments.breakpoints))


@broadcasts(
    "setInstructionBreakpoints",
    SetInstructionBreakpointsArguments,
    brings=Capabilities(supports_instruction_breakpoints=True),
)
def set_instruction_breakpoints(
    session: Session, raw: msgspec.Raw, arguments: SetInstructionBreakpointsArguments
) -> Plan:
    """Breakpoints on instructions of a disassembly. A new process has other addresses: they are not set again."""
    return _remember(session, "setInstructionBreakpoints", "", raw, len(arguments.breakpoints))


@broadcasts("setDataBreakpoints", SetDataBreakpointsArguments, brings=Capabilities(supports_data_breakpoints=True))
def set_data_breakpoints(session: Session, raw: msgspec.Raw, arguments: SetDataBreakpointsArguments) -> Plan:
    """Breakpoints on what happens to variables while Dynamo traces."""
    return _remember(session, "setDataBreakpoints", "", raw, len(arguments.breakpoints))


@broadcasts("setExceptionBreakpoints", SetExceptionBreakpointsArguments)
def set_exception_breakpoints(session: Session, raw: msgspec.Raw, arguments: SetExceptionBreakpointsArguments) -> Plan:
    """Filters of exceptions, ours among them."""
    count = len(arguments.filters) + len(arguments.filter_options or [])
    return _remember(session, "setExceptionBreakpoints", "", raw, count, conditions_refused(raw))


def _remember(
    session: Session, command: str, key: str, raw: msgspec.Raw, count: int, refused: dict[int, str] | None = None
) -> Plan:
    remembered = Remembered(command, key, raw, count, refused=refused or {})

    def merge(answers: Answers) -> object:
        return session.breakpoints.merge(remembered, answers)

    return Plan(merge, remembered.share)
