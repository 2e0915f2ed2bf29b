"""Requests about instructions of generated code, passed on to the engine that debugs it.

Served on the agent's reader thread. The agent itself knows nothing of generated code; the engine ``run-time`` does.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol, cast

from dynamo_dap.debuggee.agent.handlers.lookup import referred
from dynamo_dap.debuggee.agent.requests import RequestError, handles
from dynamo_dap.debuggee.values.model import VirtualSource
from dynamo_dap.protocol.contract import (
    LISTING,
    LISTING_FORMS,
    RUN_TIME,
    ErrorId,
    ListingArguments,
)
from dynamo_dap.protocol.types import (
    Breakpoint,
    DisassembleArguments,
    DisassembleResponseBody,
    InstructionBreakpoint,
    InvalidatedEventBody,
    SetInstructionBreakpointsArguments,
    SetInstructionBreakpointsResponseBody,
    Source,
    SourceBreakpoint,
)

if TYPE_CHECKING:
    from dynamo_dap.debuggee.agent.agent import Agent


class InstructionEngine(Protocol):
    """An engine that knows instructions."""

    def set_instruction_breakpoints(self, requested: Sequence[InstructionBreakpoint]) -> list[Breakpoint]:
        """Replace the breakpoints on addresses; one answer for each."""

    def set_listing_breakpoints(
        self, virtual: VirtualSource, requested: Sequence[SourceBreakpoint]
    ) -> list[Breakpoint] | None:
        """Replace the breakpoints on lines of a listing; None when ``virtual`` is none."""

    def show_listings_as(self, form: str) -> None:
        """Have frames show their listings in another form, one of ``LISTING_FORMS``."""


def _engine(agent: Agent) -> InstructionEngine | None:
    found = next((engine for engine in agent.engines if engine.name == RUN_TIME), None)
    return cast("InstructionEngine | None", found)


@handles("disassemble", DisassembleArguments)
def disassemble(agent: Agent, arguments: DisassembleArguments) -> DisassembleResponseBody:
    """Return instructions around an address, of traced or of generated code."""
    if not agent.engines:
        raise RequestError(
            "there is nothing to disassemble: the program has not imported torch._dynamo",
            error_id=ErrorId.NOTHING_TO_DISASSEMBLE,
        )
    # The run-time engine comes last: it says what is wrong with an address that is nobody's.
    for engine in sorted(agent.engines, key=lambda engine: engine.name == RUN_TIME):
        if (found := engine.disassemble(arguments)) is not None:
            return found
    raise RequestError(
        f"{arguments.memory_reference} is not the address of an instruction", error_id=ErrorId.NO_ADDRESS
    )


@handles("setInstructionBreakpoints", SetInstructionBreakpointsArguments)
def set_instruction_breakpoints(
    agent: Agent, arguments: SetInstructionBreakpointsArguments
) -> SetInstructionBreakpointsResponseBody:
    """Replace the breakpoints on instructions."""
    engine = _engine(agent)
    if engine is None:
        problem = "the program has not imported torch._dynamo: there is no generated code yet"
        unbound = Breakpoint(verified=False, message=problem, reason="failed")
        return SetInstructionBreakpointsResponseBody([unbound for _ in arguments.breakpoints])
    answers = engine.set_instruction_breakpoints(arguments.breakpoints)
    agent.arm_engines()
    return SetInstructionBreakpointsResponseBody(answers)


@handles(LISTING, ListingArguments)
def show_listings_as(agent: Agent, arguments: ListingArguments) -> None:
    """Show generated code in another form."""
    if arguments.form not in LISTING_FORMS:
        text = f"'{arguments.form}' is no form of a listing: give one of {', '.join(LISTING_FORMS)}"
        raise RequestError(text, error_id=ErrorId.INVALID_ARGUMENTS)
    if (engine := _engine(agent)) is not None:
        engine.show_listings_as(arguments.form)
        agent.send_event("invalidated", InvalidatedEventBody(areas=["stacks"]))


def set_listing_breakpoints(
    agent: Agent, source: Source, requested: Sequence[SourceBreakpoint]
) -> list[Breakpoint] | None:
    """Replace the breakpoints of a listing of generated code; None when ``source`` is none."""
    engine = _engine(agent)
    if engine is None or not source.source_reference:
        return None
    target = referred(agent, source.source_reference, "source reference").target
    if not isinstance(target, VirtualSource):
        return None
    answers = engine.set_listing_breakpoints(target, requested)
    if answers is not None:
        agent.arm_engines()
    return answers
