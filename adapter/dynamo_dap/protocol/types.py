"""DAP types that requests, responses and events share.

Generated once from the published schema (DAP 1.70), then kept by hand. Structs, used on any thread; enumerated strings
are typed ``str``, since an unknown value must reach the code that can say what is wrong with it.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct, field


class Source(Struct, rename="camel", omit_defaults=True):
    """A source file, or a virtual source known by its reference."""

    name: str | None = None
    path: str | None = None
    source_reference: int | None = None
    presentation_hint: str | None = None
    origin: str | None = None
    sources: list[Source] | None = None
    adapter_data: Any = None
    checksums: list[Any] | None = None


class VariablePresentationHint(Struct, rename="camel", omit_defaults=True):
    """DAP ``VariablePresentationHint``."""

    kind: str | None = None
    attributes: list[str] | None = None
    visibility: str | None = None
    lazy: bool | None = None


class ValueFormat(Struct, rename="camel", omit_defaults=True):
    """DAP ``ValueFormat``."""

    hex: bool | None = None


class StackFrameFormat(Struct, rename="camel", omit_defaults=True):
    """DAP ``StackFrameFormat``."""

    hex: bool | None = None
    parameters: bool | None = None
    parameter_types: bool | None = None
    parameter_names: bool | None = None
    parameter_values: bool | None = None
    line: bool | None = None
    module: bool | None = None
    include_all: bool | None = None


class Thread(Struct, rename="camel", omit_defaults=True):
    """A thread of the debugged program."""

    id: int
    name: str


class StackFrame(Struct, rename="camel", omit_defaults=True):
    """One frame of a call stack."""

    id: int
    name: str
    line: int
    column: int
    source: Source | None = None
    end_line: int | None = None
    end_column: int | None = None
    can_restart: bool | None = None
    instruction_pointer_reference: str | None = None
    module_id: int | str | None = None
    presentation_hint: str | None = None


class Scope(Struct, rename="camel", omit_defaults=True):
    """A named group of variables of a frame."""

    name: str
    variables_reference: int
    expensive: bool
    presentation_hint: str | None = None
    named_variables: int | None = None
    indexed_variables: int | None = None
    source: Source | None = None
    line: int | None = None
    column: int | None = None
    end_line: int | None = None
    end_column: int | None = None


class Variable(Struct, rename="camel", omit_defaults=True):
    """A name, its value as text, and a reference to its children."""

    name: str
    value: str
    variables_reference: int
    type: str | None = None
    presentation_hint: VariablePresentationHint | None = None
    evaluate_name: str | None = None
    named_variables: int | None = None
    indexed_variables: int | None = None
    memory_reference: str | None = None
    declaration_location_reference: int | None = None
    value_location_reference: int | None = None


class BreakpointLocation(Struct, rename="camel", omit_defaults=True):
    """DAP ``BreakpointLocation``."""

    line: int
    column: int | None = None
    end_line: int | None = None
    end_column: int | None = None


class SourceBreakpoint(Struct, rename="camel", omit_defaults=True):
    """A line breakpoint as the user set it."""

    line: int
    column: int | None = None
    condition: str | None = None
    hit_condition: str | None = None
    log_message: str | None = None
    mode: str | None = None


class FunctionBreakpoint(Struct, rename="camel", omit_defaults=True):
    """DAP ``FunctionBreakpoint``."""

    name: str
    condition: str | None = None
    hit_condition: str | None = None


class InstructionBreakpoint(Struct, rename="camel", omit_defaults=True):
    """DAP ``InstructionBreakpoint``."""

    instruction_reference: str
    offset: int | None = None
    condition: str | None = None
    hit_condition: str | None = None
    mode: str | None = None


class DataBreakpoint(Struct, rename="camel", omit_defaults=True):
    """DAP ``DataBreakpoint``."""

    data_id: str
    access_type: str | None = None
    condition: str | None = None
    hit_condition: str | None = None


class Breakpoint(Struct, rename="camel", omit_defaults=True):
    """What became of a requested breakpoint."""

    verified: bool
    id: int | None = None
    message: str | None = None
    source: Source | None = None
    line: int | None = None
    column: int | None = None
    end_line: int | None = None
    end_column: int | None = None
    instruction_reference: str | None = None
    offset: int | None = None
    reason: str | None = None


class BreakpointMode(Struct, rename="camel", omit_defaults=True):
    """A way for a breakpoint to be applied, offered to the user."""

    mode: str
    label: str
    applies_to: list[str]
    description: str | None = None


class ExceptionBreakpointsFilter(Struct, rename="camel", omit_defaults=True):
    """DAP ``ExceptionBreakpointsFilter``."""

    filter: str
    label: str
    description: str | None = None
    default: bool | None = None
    supports_condition: bool | None = None
    condition_description: str | None = None


class ExceptionFilterOptions(Struct, rename="camel", omit_defaults=True):
    """DAP ``ExceptionFilterOptions``."""

    filter_id: str
    condition: str | None = None
    mode: str | None = None


class ExceptionPathSegment(Struct, rename="camel", omit_defaults=True):
    """DAP ``ExceptionPathSegment``."""

    names: list[str]
    negate: bool | None = None


class ExceptionOptions(Struct, rename="camel", omit_defaults=True):
    """DAP ``ExceptionOptions``."""

    break_mode: str
    path: list[ExceptionPathSegment] | None = None


class ExceptionDetails(Struct, rename="camel", omit_defaults=True):
    """DAP ``ExceptionDetails``."""

    message: str | None = None
    type_name: str | None = None
    full_type_name: str | None = None
    evaluate_name: str | None = None
    stack_trace: str | None = None
    inner_exception: list[ExceptionDetails] | None = None


class Module(Struct, rename="camel", omit_defaults=True):
    """DAP ``Module``."""

    id: int | str
    name: str
    path: str | None = None
    is_optimized: bool | None = None
    is_user_code: bool | None = None
    version: str | None = None
    symbol_status: str | None = None
    symbol_file_path: str | None = None
    date_time_stamp: str | None = None
    address_range: str | None = None


class StepInTarget(Struct, rename="camel", omit_defaults=True):
    """DAP ``StepInTarget``."""

    id: int
    label: str
    line: int | None = None
    column: int | None = None
    end_line: int | None = None
    end_column: int | None = None


class GotoTarget(Struct, rename="camel", omit_defaults=True):
    """DAP ``GotoTarget``."""

    id: int
    label: str
    line: int
    column: int | None = None
    end_line: int | None = None
    end_column: int | None = None
    instruction_pointer_reference: str | None = None


class CompletionItem(Struct, rename="camel", omit_defaults=True):
    """One completion in the debug console."""

    label: str
    text: str | None = None
    sort_text: str | None = None
    detail: str | None = None
    type: str | None = None
    start: int | None = None
    length: int | None = None
    selection_start: int | None = None
    selection_length: int | None = None


class DisassembledInstruction(Struct, rename="camel", omit_defaults=True):
    """One line of a disassembly."""

    address: str
    instruction: str
    instruction_bytes: str | None = None
    symbol: str | None = None
    location: Source | None = None
    line: int | None = None
    column: int | None = None
    end_line: int | None = None
    end_column: int | None = None
    presentation_hint: str | None = None


class Capabilities(Struct, rename="camel", omit_defaults=True):
    """What an adapter can do."""

    supports_configuration_done_request: bool | None = None
    supports_function_breakpoints: bool | None = None
    supports_conditional_breakpoints: bool | None = None
    supports_hit_conditional_breakpoints: bool | None = None
    supports_evaluate_for_hovers: bool | None = None
    exception_breakpoint_filters: list[ExceptionBreakpointsFilter] | None = None
    supports_step_back: bool | None = None
    supports_set_variable: bool | None = None
    supports_restart_frame: bool | None = None
    supports_goto_targets_request: bool | None = None
    supports_step_in_targets_request: bool | None = None
    supports_completions_request: bool | None = None
    completion_trigger_characters: list[str] | None = None
    supports_modules_request: bool | None = None
    additional_module_columns: list[Any] | None = None
    supported_checksum_algorithms: list[str] | None = None
    supports_restart_request: bool | None = None
    supports_exception_options: bool | None = None
    supports_value_formatting_options: bool | None = None
    supports_exception_info_request: bool | None = None
    support_terminate_debuggee: bool | None = None
    support_suspend_debuggee: bool | None = None
    supports_delayed_stack_trace_loading: bool | None = None
    supports_loaded_sources_request: bool | None = None
    supports_log_points: bool | None = None
    supports_terminate_threads_request: bool | None = None
    supports_set_expression: bool | None = None
    supports_terminate_request: bool | None = None
    supports_data_breakpoints: bool | None = None
    supports_read_memory_request: bool | None = None
    supports_write_memory_request: bool | None = None
    supports_disassemble_request: bool | None = None
    supports_cancel_request: bool | None = None
    supports_breakpoint_locations_request: bool | None = None
    supports_clipboard_context: bool | None = None
    supports_stepping_granularity: bool | None = None
    supports_instruction_breakpoints: bool | None = None
    supports_exception_filter_options: bool | None = None
    supports_single_thread_execution_requests: bool | None = None
    supports_data_breakpoint_bytes: bool | None = None
    breakpoint_modes: list[BreakpointMode] | None = None
    supports_ansi_styling: bool | None = field(default=None, name="supportsANSIStyling")
