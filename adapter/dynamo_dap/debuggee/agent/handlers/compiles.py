"""Handles custom requests about compiles and generated code.

Runs on the agent's reader thread. A request about the trace in which a thread is held runs on that thread. The answers
come from the engines and the recorder: the agent itself knows nothing of compiles.
"""

from __future__ import annotations

import sys

import msgspec

from dynamo_dap.debuggee.agent.agent import Agent
from dynamo_dap.debuggee.agent.engine import (
    BadOption,
    CannotSaveCall,
    CodePatcher,
    CompileReader,
    EntryReader,
    GraphBody,
    InstructionEngine,
    NoSuchCompile,
    NoSuchEntry,
    RequestError,
)
from dynamo_dap.debuggee.agent.handlers.frames_and_values import dap_source
from dynamo_dap.debuggee.agent.pause import Pause
from dynamo_dap.debuggee.agent.requests import AfterResponse, NoArguments, handles, handles_while_held
from dynamo_dap.debuggee.agent.what_if import what_if_body
from dynamo_dap.protocol.requests.cache_entries import EntriesArguments, EntriesBody, ForgetArguments, ForgetBody
from dynamo_dap.protocol.requests.comparisons import ComparisonBody
from dynamo_dap.protocol.requests.contract import (
    COMPARISON,
    COMPILES,
    COMPILES_CHANGED_EVENT,
    ENTRIES,
    FORGET,
    GRAPH,
    GUARDS,
    KEEP,
    LISTING,
    LISTING_FORMS,
    PATCH,
    RECORD_CALL,
    SET_OPTION,
    STAGES,
    UNPATCH,
    WHAT_IF,
    ErrorId,
    GraphArguments,
    GuardsArguments,
    KeepArguments,
    ListingArguments,
    PatchArguments,
    StagesArguments,
    UnpatchArguments,
    WhatIfBody,
)
from dynamo_dap.protocol.requests.options import SetOptionArguments, SetOptionBody, option_in_text
from dynamo_dap.protocol.requests.saved_calls import RecordCallArguments, RecordCallBody
from dynamo_dap.protocol.wire.types import DisassembleArguments, DisassembleResponseBody, InvalidatedEventBody


def _needed_reader(agent: Agent) -> CompileReader:
    if agent.compiles is None:
        raise RequestError(
            "nothing has been compiled: the program has not imported torch._dynamo", error_id=ErrorId.NOTHING_COMPILED
        )
    return agent.compiles


@handles(COMPILES, NoArguments)
def compiles(agent: Agent, arguments: NoArguments) -> dict[str, object]:
    """Return all compiles, oldest first."""
    agent.has_reported_compiles = False  # first, so that compiles that end during the lookup are reported
    return {"functions": []} if agent.compiles is None else agent.compiles.compiles()


def _pause_in_trace(agent: Agent, arguments: GraphArguments | GuardsArguments) -> Pause | None:
    """Return the pause of the thread held in the trace of the requested compile, if any."""
    thread = None if agent.compiles is None else agent.compiles.thread_of(arguments.compile_id)
    return None if thread is None else agent.threads.pause_on(thread)


@handles_while_held(GRAPH, GraphArguments, _pause_in_trace)
def graph(agent: Agent, pause: Pause | None, arguments: GraphArguments) -> GraphBody:
    """Return one graph of a compile: in a held trace the graph so far, else the one that the backend got."""
    agent.has_reported_compiles = False
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
    """Return the guards of one compile: in a held trace the guards so far, else the final ones."""
    agent.has_reported_compiles = False
    reader = _needed_reader(agent)
    so_far = None if pause is None else reader.guards_so_far(arguments.compile_id)
    if so_far is not None:
        return so_far
    try:
        return reader.guards(arguments.compile_id)
    except NoSuchCompile as problem:
        raise RequestError(str(problem), error_id=ErrorId.NO_SUCH_COMPILE) from None


def _needed_entries(agent: Agent) -> EntryReader:
    if agent.cache_entries is None:
        raise RequestError(
            "nothing has been compiled: the program has not imported torch._dynamo", error_id=ErrorId.NOTHING_COMPILED
        )
    return agent.cache_entries


@handles(ENTRIES, EntriesArguments)
def entries(agent: Agent, arguments: EntriesArguments) -> EntriesBody:
    """Return the cache entries of the functions with a name, or of all functions."""
    agent.has_reported_compiles = False
    return _needed_entries(agent).body(arguments.function)


@handles(FORGET, ForgetArguments)
def forget(agent: Agent, arguments: ForgetArguments) -> AfterResponse:
    """Remove cache entries from torch's cache."""
    try:
        count = _needed_entries(agent).forget(arguments.function_id, arguments.compile_id)
    except NoSuchEntry as problem:
        raise RequestError(str(problem), error_id=ErrorId.NO_SUCH_ENTRY) from None
    return AfterResponse(lambda: agent.send_event(COMPILES_CHANGED_EVENT), ForgetBody(count))


@handles(STAGES, StagesArguments)
def stages(agent: Agent, arguments: StagesArguments) -> object:
    """Return the stages of compiles."""
    agent.has_reported_compiles = False
    if agent.stages is None or not agent.options.explore:
        text = 'no stages are recorded: launch with "explore": true, and let the program import torch._dynamo'
        raise RequestError(text, error_id=ErrorId.NOTHING_COMPILED)
    try:
        return agent.stages.stages(arguments.compile_id, lambda document: dap_source(agent, None, document))
    except NoSuchCompile as problem:
        raise RequestError(str(problem), error_id=ErrorId.NO_SUCH_COMPILE) from None


@handles(COMPARISON, NoArguments)
def comparison(agent: Agent, arguments: NoArguments) -> ComparisonBody:
    """Return the comparison of the newest call that differed, line by line."""
    if agent.comparison is None:
        raise RequestError(
            "no call that differs is known: turn on the exception filter Differs from Eager ('mismatch') to find one",
            error_id=ErrorId.NOTHING_COMPARED,
        )
    return agent.comparison


@handles(SET_OPTION, SetOptionArguments)
def set_option(agent: Agent, arguments: SetOptionArguments) -> SetOptionBody:
    """Change the options for torch, or list them."""
    try:
        return SetOptionBody(agent.compiling_settings.change(*option_in_text(arguments.text)))
    except BadOption as problem:
        raise RequestError(str(problem), error_id=ErrorId.INVALID_OPTION) from None


def _held_last(agent: Agent, arguments: NoArguments) -> Pause | None:
    return next(iter(reversed(agent.threads.pauses())), None)


@handles_while_held(WHAT_IF, NoArguments, _held_last)
def what_if(agent: Agent, pause: Pause | None, arguments: NoArguments) -> WhatIfBody:
    """Return how the newest changed trace differs from the program's own."""
    changes = None if pause is None else pause.stop.changes
    if changes is not None:
        changes.look()
    if agent.what_if is None:
        raise RequestError("no trace was changed", error_id=ErrorId.NOTHING_CHANGED)
    return what_if_body(agent.what_if, agent.compiles)


def _pause_of_thread(agent: Agent, arguments: KeepArguments | RecordCallArguments) -> Pause:
    return agent.threads.pause_of(arguments.thread_id)


@handles_while_held(KEEP, KeepArguments, _pause_of_thread)
def keep(agent: Agent, pause: Pause, arguments: KeepArguments) -> None:
    """Make the program's call run the graph of the changed trace."""
    if pause.stop.changes is None:
        raise RequestError("this trace was not changed", error_id=ErrorId.NOTHING_CHANGED)
    pause.stop.changes.keep()


@handles_while_held(RECORD_CALL, RecordCallArguments, _pause_of_thread, is_bounded=False)
def record_call(agent: Agent, pause: Pause, arguments: RecordCallArguments) -> RecordCallBody:
    """Save the call in which the thread is stopped."""
    try:
        if agent.call_saver is None:
            raise CannotSaveCall("nothing has been compiled: the program has not imported torch._dynamo")
        return agent.call_saver.save(sys._getframe(), arguments.folder, has_data=arguments.has_data)
    except CannotSaveCall as problem:
        raise RequestError(str(problem), error_id=ErrorId.NO_CALL) from None


@handles("disassemble", DisassembleArguments)
def disassemble(agent: Agent, arguments: DisassembleArguments) -> DisassembleResponseBody:
    """Return instructions around an address in traced or generated code."""
    if not agent.engines:
        raise RequestError(
            "nothing can be disassembled: the program has not imported torch._dynamo",
            error_id=ErrorId.NOTHING_TO_DISASSEMBLE,
        )
    # Ask the run-time engine last: it raises an error for an address that belongs to no engine.
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
        text = f"'{arguments.form}' is not a form of a listing; known forms: {', '.join(LISTING_FORMS)}"
        raise RequestError(text, error_id=ErrorId.INVALID_ARGUMENTS)
    if (engine := agent.instruction_engine) is None:
        # Torch is not imported yet: the engine will start with this form.
        agent.options = msgspec.structs.replace(agent.options, listing=arguments.form)
    else:
        engine.show_listings_as(arguments.form)
        agent.send_event("invalidated", InvalidatedEventBody(areas=["stacks"]))


@handles(PATCH, PatchArguments)
def patch_instruction(agent: Agent, arguments: PatchArguments) -> AfterResponse:
    """Replace an instruction of generated code, for the code's later calls."""
    return _changed(agent, _needed_patcher(agent).patch(arguments))


@handles(UNPATCH, UnpatchArguments)
def revert_patches(agent: Agent, arguments: UnpatchArguments) -> AfterResponse:
    """Revert the patches of generated code."""
    return _changed(agent, _needed_patcher(agent).revert_patches(arguments))


def _needed_patcher(agent: Agent) -> CodePatcher:
    if agent.patcher is None:
        raise RequestError(
            "no generated code exists: the program has not imported torch._dynamo",
            error_id=ErrorId.NOTHING_TO_DISASSEMBLE,
        )
    return agent.patcher


def _changed(agent: Agent, body: object) -> AfterResponse:
    return AfterResponse(
        lambda: agent.send_event("invalidated", InvalidatedEventBody(areas=["stacks", "variables"])), body
    )
