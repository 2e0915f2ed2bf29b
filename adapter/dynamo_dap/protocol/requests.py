"""Arguments and response bodies of DAP requests.

Generated once from the published schema (DAP 1.70), then kept by hand. Structs, used on any thread; enumerated strings
are typed ``str``, since an unknown value must reach the code that can say what is wrong with it.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct, field

from dynamo_dap.protocol.types import (
    Breakpoint,
    BreakpointLocation,
    CompletionItem,
    DataBreakpoint,
    DisassembledInstruction,
    ExceptionDetails,
    ExceptionFilterOptions,
    ExceptionOptions,
    FunctionBreakpoint,
    GotoTarget,
    InstructionBreakpoint,
    Module,
    Scope,
    Source,
    SourceBreakpoint,
    StackFrame,
    StackFrameFormat,
    StepInTarget,
    Thread,
    ValueFormat,
    Variable,
    VariablePresentationHint,
)


class CancelArguments(Struct, rename="camel", omit_defaults=True):
    """Arguments of the ``cancel`` request."""

    request_id: int | None = None
    progress_id: str | None = None


class RunInTerminalArguments(Struct, rename="camel", omit_defaults=True):
    """Arguments of the ``runInTerminal`` request."""

    cwd: str
    args: list[str]
    kind: str | None = None
    title: str | None = None
    env: dict[str, str | None] | None = None
    args_can_be_interpreted_by_shell: bool | None = None


class RunInTerminalResponseBody(Struct, rename="camel", omit_defaults=True):
    """Response body of the ``runInTerminal`` request."""

    process_id: int | None = None
    shell_process_id: int | None = None


class StartDebuggingArguments(Struct, rename="camel", omit_defaults=True):
    """Arguments of the ``startDebugging`` request."""

    configuration: dict[str, Any]
    request: str


class InitializeArguments(Struct, rename="camel", omit_defaults=True):
    """Arguments of the ``initialize`` request."""

    adapter_id: str = field(name="adapterID")
    client_id: str | None = field(default=None, name="clientID")
    client_name: str | None = None
    locale: str | None = None
    lines_start_at1: bool | None = None
    columns_start_at1: bool | None = None
    path_format: str | None = None
    supports_variable_type: bool | None = None
    supports_variable_paging: bool | None = None
    supports_run_in_terminal_request: bool | None = None
    supports_memory_references: bool | None = None
    supports_progress_reporting: bool | None = None
    supports_invalidated_event: bool | None = None
    supports_memory_event: bool | None = None
    supports_args_can_be_interpreted_by_shell: bool | None = None
    supports_start_debugging_request: bool | None = None
    supports_ansi_styling: bool | None = field(default=None, name="supportsANSIStyling")


class DisconnectArguments(Struct, rename="camel", omit_defaults=True):
    """Arguments of the ``disconnect`` request."""

    restart: bool | None = None
    terminate_debuggee: bool | None = None
    suspend_debuggee: bool | None = None


class TerminateArguments(Struct, rename="camel", omit_defaults=True):
    """Arguments of the ``terminate`` request."""

    restart: bool | None = None


class DataBreakpointInfoArguments(Struct, rename="camel", omit_defaults=True):
    """Arguments of the ``dataBreakpointInfo`` request."""

    name: str
    variables_reference: int | None = None
    frame_id: int | None = None
    bytes: int | None = None
    as_address: bool | None = None
    mode: str | None = None


class ContinueArguments(Struct, rename="camel", omit_defaults=True):
    """Arguments of the ``continue`` request."""

    thread_id: int
    single_thread: bool | None = None


class ContinueResponseBody(Struct, rename="camel", omit_defaults=True):
    """Response body of the ``continue`` request."""

    all_threads_continued: bool | None = None


class ReverseContinueArguments(Struct, rename="camel", omit_defaults=True):
    """Arguments of the ``reverseContinue`` request."""

    thread_id: int
    single_thread: bool | None = None


class GotoArguments(Struct, rename="camel", omit_defaults=True):
    """Arguments of the ``goto`` request."""

    thread_id: int
    target_id: int


class PauseArguments(Struct, rename="camel", omit_defaults=True):
    """Arguments of the ``pause`` request."""

    thread_id: int


class ScopesArguments(Struct, rename="camel", omit_defaults=True):
    """Arguments of the ``scopes`` request."""

    frame_id: int


class SetVariableResponseBody(Struct, rename="camel", omit_defaults=True):
    """Response body of the ``setVariable`` request."""

    value: str
    type: str | None = None
    variables_reference: int | None = None
    named_variables: int | None = None
    indexed_variables: int | None = None
    memory_reference: str | None = None
    value_location_reference: int | None = None


class SourceResponseBody(Struct, rename="camel", omit_defaults=True):
    """Response body of the ``source`` request."""

    content: str
    mime_type: str | None = None


class TerminateThreadsArguments(Struct, rename="camel", omit_defaults=True):
    """Arguments of the ``terminateThreads`` request."""

    thread_ids: list[int] | None = None


class ModulesArguments(Struct, rename="camel", omit_defaults=True):
    """Arguments of the ``modules`` request."""

    start_module: int | None = None
    module_count: int | None = None


class StepInTargetsArguments(Struct, rename="camel", omit_defaults=True):
    """Arguments of the ``stepInTargets`` request."""

    frame_id: int


class CompletionsArguments(Struct, rename="camel", omit_defaults=True):
    """Arguments of the ``completions`` request."""

    text: str
    column: int
    frame_id: int | None = None
    line: int | None = None


class ExceptionInfoArguments(Struct, rename="camel", omit_defaults=True):
    """Arguments of the ``exceptionInfo`` request."""

    thread_id: int


class DisassembleArguments(Struct, rename="camel", omit_defaults=True):
    """Arguments of the ``disassemble`` request."""

    memory_reference: str
    instruction_count: int
    offset: int | None = None
    instruction_offset: int | None = None
    resolve_symbols: bool | None = None


class LocationsArguments(Struct, rename="camel", omit_defaults=True):
    """Arguments of the ``locations`` request."""

    location_reference: int


class BreakpointLocationsResponseBody(Struct, rename="camel", omit_defaults=True):
    """Response body of the ``breakpointLocations`` request."""

    breakpoints: list[BreakpointLocation]


class SetFunctionBreakpointsArguments(Struct, rename="camel", omit_defaults=True):
    """Arguments of the ``setFunctionBreakpoints`` request."""

    breakpoints: list[FunctionBreakpoint]


class DataBreakpointInfoResponseBody(Struct, rename="camel", omit_defaults=True):
    """Response body of the ``dataBreakpointInfo`` request."""

    data_id: str | None
    description: str
    access_types: list[str] | None = None
    can_persist: bool | None = None


class SetDataBreakpointsArguments(Struct, rename="camel", omit_defaults=True):
    """Arguments of the ``setDataBreakpoints`` request."""

    breakpoints: list[DataBreakpoint]


class SetInstructionBreakpointsArguments(Struct, rename="camel", omit_defaults=True):
    """Arguments of the ``setInstructionBreakpoints`` request."""

    breakpoints: list[InstructionBreakpoint]


class NextArguments(Struct, rename="camel", omit_defaults=True):
    """Arguments of the ``next`` request."""

    thread_id: int
    single_thread: bool | None = None
    granularity: str | None = None


class StepInArguments(Struct, rename="camel", omit_defaults=True):
    """Arguments of the ``stepIn`` request."""

    thread_id: int
    single_thread: bool | None = None
    target_id: int | None = None
    granularity: str | None = None


class StepOutArguments(Struct, rename="camel", omit_defaults=True):
    """Arguments of the ``stepOut`` request."""

    thread_id: int
    single_thread: bool | None = None
    granularity: str | None = None


class StepBackArguments(Struct, rename="camel", omit_defaults=True):
    """Arguments of the ``stepBack`` request."""

    thread_id: int
    single_thread: bool | None = None
    granularity: str | None = None


class StackTraceArguments(Struct, rename="camel", omit_defaults=True):
    """Arguments of the ``stackTrace`` request."""

    thread_id: int
    start_frame: int | None = None
    levels: int | None = None
    format: StackFrameFormat | None = None


class VariablesArguments(Struct, rename="camel", omit_defaults=True):
    """Arguments of the ``variables`` request."""

    variables_reference: int
    filter: str | None = None
    start: int | None = None
    count: int | None = None
    format: ValueFormat | None = None


class SetVariableArguments(Struct, rename="camel", omit_defaults=True):
    """Arguments of the ``setVariable`` request."""

    variables_reference: int
    name: str
    value: str
    format: ValueFormat | None = None


class ThreadsResponseBody(Struct, rename="camel", omit_defaults=True):
    """Response body of the ``threads`` request."""

    threads: list[Thread]


class ModulesResponseBody(Struct, rename="camel", omit_defaults=True):
    """Response body of the ``modules`` request."""

    modules: list[Module]
    total_modules: int | None = None


class EvaluateResponseBody(Struct, rename="camel", omit_defaults=True):
    """Response body of the ``evaluate`` request."""

    result: str
    variables_reference: int
    type: str | None = None
    presentation_hint: VariablePresentationHint | None = None
    named_variables: int | None = None
    indexed_variables: int | None = None
    memory_reference: str | None = None
    value_location_reference: int | None = None


class SetExpressionArguments(Struct, rename="camel", omit_defaults=True):
    """Arguments of the ``setExpression`` request."""

    expression: str
    value: str
    frame_id: int | None = None
    format: ValueFormat | None = None


class SetExpressionResponseBody(Struct, rename="camel", omit_defaults=True):
    """Response body of the ``setExpression`` request."""

    value: str
    type: str | None = None
    presentation_hint: VariablePresentationHint | None = None
    variables_reference: int | None = None
    named_variables: int | None = None
    indexed_variables: int | None = None
    memory_reference: str | None = None
    value_location_reference: int | None = None


class StepInTargetsResponseBody(Struct, rename="camel", omit_defaults=True):
    """Response body of the ``stepInTargets`` request."""

    targets: list[StepInTarget]


class GotoTargetsResponseBody(Struct, rename="camel", omit_defaults=True):
    """Response body of the ``gotoTargets`` request."""

    targets: list[GotoTarget]


class ExceptionInfoResponseBody(Struct, rename="camel", omit_defaults=True):
    """Response body of the ``exceptionInfo`` request."""

    exception_id: str
    break_mode: str
    description: str | None = None
    details: ExceptionDetails | None = None


class BreakpointLocationsArguments(Struct, rename="camel", omit_defaults=True):
    """Arguments of the ``breakpointLocations`` request."""

    source: Source
    line: int
    column: int | None = None
    end_line: int | None = None
    end_column: int | None = None


class SetBreakpointsArguments(Struct, rename="camel", omit_defaults=True):
    """Arguments of the ``setBreakpoints`` request."""

    source: Source
    breakpoints: list[SourceBreakpoint] | None = None
    lines: list[int] | None = None
    source_modified: bool | None = None


class SetBreakpointsResponseBody(Struct, rename="camel", omit_defaults=True):
    """Response body of the ``setBreakpoints`` request."""

    breakpoints: list[Breakpoint]


class SetFunctionBreakpointsResponseBody(Struct, rename="camel", omit_defaults=True):
    """Response body of the ``setFunctionBreakpoints`` request."""

    breakpoints: list[Breakpoint]


class SetExceptionBreakpointsArguments(Struct, rename="camel", omit_defaults=True):
    """Arguments of the ``setExceptionBreakpoints`` request."""

    filters: list[str]
    filter_options: list[ExceptionFilterOptions] | None = None
    exception_options: list[ExceptionOptions] | None = None


class SetExceptionBreakpointsResponseBody(Struct, rename="camel", omit_defaults=True):
    """Response body of the ``setExceptionBreakpoints`` request."""

    breakpoints: list[Breakpoint] | None = None


class SetDataBreakpointsResponseBody(Struct, rename="camel", omit_defaults=True):
    """Response body of the ``setDataBreakpoints`` request."""

    breakpoints: list[Breakpoint]


class SetInstructionBreakpointsResponseBody(Struct, rename="camel", omit_defaults=True):
    """Response body of the ``setInstructionBreakpoints`` request."""

    breakpoints: list[Breakpoint]


class StackTraceResponseBody(Struct, rename="camel", omit_defaults=True):
    """Response body of the ``stackTrace`` request."""

    stack_frames: list[StackFrame]
    total_frames: int | None = None


class ScopesResponseBody(Struct, rename="camel", omit_defaults=True):
    """Response body of the ``scopes`` request."""

    scopes: list[Scope]


class VariablesResponseBody(Struct, rename="camel", omit_defaults=True):
    """Response body of the ``variables`` request."""

    variables: list[Variable]


class SourceArguments(Struct, rename="camel", omit_defaults=True):
    """Arguments of the ``source`` request."""

    source_reference: int
    source: Source | None = None


class LoadedSourcesResponseBody(Struct, rename="camel", omit_defaults=True):
    """Response body of the ``loadedSources`` request."""

    sources: list[Source]


class EvaluateArguments(Struct, rename="camel", omit_defaults=True):
    """Arguments of the ``evaluate`` request."""

    expression: str
    frame_id: int | None = None
    line: int | None = None
    column: int | None = None
    source: Source | None = None
    context: str | None = None
    format: ValueFormat | None = None


class GotoTargetsArguments(Struct, rename="camel", omit_defaults=True):
    """Arguments of the ``gotoTargets`` request."""

    source: Source
    line: int
    column: int | None = None


class CompletionsResponseBody(Struct, rename="camel", omit_defaults=True):
    """Response body of the ``completions`` request."""

    targets: list[CompletionItem]


class DisassembleResponseBody(Struct, rename="camel", omit_defaults=True):
    """Response body of the ``disassemble`` request."""

    instructions: list[DisassembledInstruction]


class LocationsResponseBody(Struct, rename="camel", omit_defaults=True):
    """Response body of the ``locations`` request."""

    source: Source
    line: int
    column: int | None = None
    end_line: int | None = None
    end_column: int | None = None
