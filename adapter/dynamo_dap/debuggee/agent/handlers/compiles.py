"""Custom requests about what was compiled, and about the code that was generated.

Served on the agent's reader thread, while the program runs or is held; a request about a compile in progress is served
on the thread that is held in its trace. The answers come from the engines and the recorder: the agent itself knows
nothing of compiles.
"""

from __future__ import annotations

from dynamo_dap.debuggee.agent.agent import Agent
from dynamo_dap.debuggee.agent.engine import CompileReader, GraphBody, InstructionEngine, NoSuchCompile, RequestError
from dynamo_dap.debuggee.agent.handlers.stack import dap_source
from dynamo_dap.debuggee.agent.pause import Pause
from dynamo_dap.debuggee.agent.requests import AndThen, NoArguments, handles, handles_while_held
from dynamo_dap.protocol.contract import (
    COMPARISON,
    COMPILES,
    GRAPH,
    GUARDS,
    LISTING,
    LISTING_FORMS,
    PATCH,
    UNPATCH,
    ComparisonBody,
    ErrorId,
    GraphArguments,
    GuardsArguments,
    ListingArguments,
    PatchArguments,
    UnpatchArguments,
)
from dynamo_dap.protocol.types import DisassembleArguments, DisassembleResponseBody, InvalidatedEventBody


def _needed_reader(agent: Agent) -> CompileReader:
    if agent.compiles is None:
        raise RequestError(
            "nothing has been compiled: the program has not imported torch._dynamo", error_id=ErrorId.NOTHING_COMPILED
        )
    return agent.compiles


@handles(COMPILES, NoArguments)
def compiles(agent: Agent, arguments: NoArguments) -> dict[str, object]:
    """Return what was compiled, oldest first."""
    return {"functions": []} if agent.compiles is None else agent.compiles.compiles()


def _pause_in_trace(agent: Agent, arguments: GraphArguments | GuardsArguments) -> Pause | None:
    """Return the pause inside the trace of the compile that is asked for, if there is one."""
    thread = None if agent.compiles is None else agent.compiles.thread_of(arguments.compile_id)
    return None if thread is None else agent.threads.pause_on(thread)


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


@handles(COMPARISON, NoArguments)
def comparison(agent: Agent, arguments: NoArguments) -> ComparisonBody:
    """Return how the newest call that differed compares, line by line."""
    if agent.comparison is None:
        raise RequestError(
            "no call is known to differ: the exception filter 'mismatch' compares them",
            error_id=ErrorId.NOTHING_COMPARED,
        )
    return agent.comparison


@handles("disassemble", DisassembleArguments)
def disassemble(agent: Agent, arguments: DisassembleArguments) -> DisassembleResponseBody:
    """Return instructions around an address, of traced or of generated code."""
    if not agent.engines:
        raise RequestError(
            "there is nothing to disassemble: the program has not imported torch._dynamo",
            error_id=ErrorId.NOTHING_TO_DISASSEMBLE,
        )
    # The run-time engine comes last: it says what is wrong with an address that is nobody's.
    for engine in sorted(agent.engines, key=lambda engine: isinstance(engine, InstructionEngine)):
        if (found := engine.disassemble(arguments)) is not None:
            return found
    raise RequestError(
        f"{arguments.memory_reference} is not the address of an instruction", error_id=ErrorId.NO_ADDRESS
    )


@handles(LISTING, ListingArguments)
def show_listings_as(agent: Agent, arguments: ListingArguments) -> None:
    """Show generated code in another form."""
    if arguments.form not in LISTING_FORMS:
        text = f"'{arguments.form}' is no form of a listing: give one of {', '.join(LISTING_FORMS)}"
        raise RequestError(text, error_id=ErrorId.INVALID_ARGUMENTS)
    if (engine := agent.instruction_engine) is not None:
        engine.show_listings_as(arguments.form)
        agent.send_event("invalidated", InvalidatedEventBody(areas=["stacks"]))


@handles(PATCH, PatchArguments)
def patch_instruction(agent: Agent, arguments: PatchArguments) -> AndThen:
    """Have generated code run another instruction from its next call on."""
    return _changed(agent, _needed_instructions(agent).patch(arguments))


@handles(UNPATCH, UnpatchArguments)
def take_patches_back(agent: Agent, arguments: UnpatchArguments) -> AndThen:
    """Have generated code run as Dynamo generated it."""
    return _changed(agent, _needed_instructions(agent).take_patches_back(arguments))


def _needed_instructions(agent: Agent) -> InstructionEngine:
    if agent.instruction_engine is None:
        raise RequestError(
            "there is no generated code: the program has not imported torch._dynamo",
            error_id=ErrorId.NOTHING_TO_DISASSEMBLE,
        )
    return agent.instruction_engine


def _changed(agent: Agent, body: object) -> AndThen:
    return AndThen(lambda: agent.send_event("invalidated", InvalidatedEventBody(areas=["stacks", "variables"])), body)
