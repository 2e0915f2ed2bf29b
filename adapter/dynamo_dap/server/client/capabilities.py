"""Declares the session's capabilities, since ``initialize`` is answered before agent and debugpy exist.

It has constants, and functions that merge capabilities. ``FORWARDED_REQUESTS`` has the requests that are forwarded
unchanged. The server's handlers declare further capabilities (``sessions.handlers``).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from dynamo_dap.protocol.requests.contract import (
    BACKEND_FAILURE,
    BACKWARD,
    COMPILE_TIME,
    CUDA_GRAPH,
    EAGER,
    GENERATED_CODE,
    GRAPH_BREAK,
    GUARD,
    KERNEL_MISMATCH,
    LIMIT,
    LOWERING,
    MISMATCH,
    NAN,
    OUT_OF_BOUNDS,
    RACE,
    RECOMPILE,
    RUN_TIME,
    SPECIALIZE,
    UNSUPPORTED,
)
from dynamo_dap.protocol.wire.types import (
    BreakpointLocationsArguments,
    BreakpointMode,
    Capabilities,
    CompletionsArguments,
    ContinueArguments,
    DataBreakpointInfoArguments,
    DisassembleArguments,
    EvaluateArguments,
    ExceptionBreakpointsFilter,
    ExceptionInfoArguments,
    GotoArguments,
    GotoTargetsArguments,
    LocationsArguments,
    ModulesArguments,
    NextArguments,
    PauseArguments,
    RestartFrameArguments,
    ReverseContinueArguments,
    ScopesArguments,
    SetExpressionArguments,
    SetVariableArguments,
    SourceArguments,
    StackTraceArguments,
    StepBackArguments,
    StepInArguments,
    StepInTargetsArguments,
    StepOutArguments,
    VariablesArguments,
)


def union(parts: Iterable[Capabilities]) -> Capabilities:
    """Merge capabilities: every flag that is true in one part, and the lists of all parts without duplicates."""
    result = Capabilities()
    for part in parts:
        for name in part.__struct_fields__:
            offered = getattr(part, name)
            if offered is not None:
                setattr(result, name, _merged(getattr(result, name), offered))
    return result


def offering(capabilities: Capabilities, filters: frozenset[str] | None) -> Capabilities:
    """Return capabilities with only the named exception filters; None keeps all."""
    known = capabilities.exception_breakpoint_filters
    if filters is not None and known is not None:
        capabilities.exception_breakpoint_filters = [each for each in known if each.filter in filters]
    return capabilities


def _merged(known: Any, offered: object) -> object:
    if known is None:
        return offered
    if isinstance(offered, list):
        return known + [item for item in offered if item not in known]
    return known or offered


AGENT_CAPABILITIES = Capabilities(
    supports_conditional_breakpoints=True,
    supports_hit_conditional_breakpoints=True,
    supports_log_points=True,
    supports_evaluate_for_hovers=True,
    supports_completions_request=True,
    completion_trigger_characters=["."],
    supports_clipboard_context=True,
    supports_stepping_granularity=True,
    supports_disassemble_request=True,
    supports_breakpoint_locations_request=True,
    supports_delayed_stack_trace_loading=True,
    supports_exception_info_request=True,
    supports_single_thread_execution_requests=True,
    supports_exception_filter_options=True,
    exception_breakpoint_filters=[
        ExceptionBreakpointsFilter(
            filter=GRAPH_BREAK,
            label="Graph Breaks",
            description="Stop where Dynamo breaks the graph because it cannot trace a line",
            supports_condition=True,
            condition_description="Python expression over the symbolic locals and __reason__, __id__, __explanation__",
        ),
        ExceptionBreakpointsFilter(
            filter=RECOMPILE,
            label="Recompiles",
            description="Stop before a function is compiled again, with the guards that failed",
            supports_condition=True,
            condition_description="Python expression over the arguments, __reason__ and __count__ of compiles",
        ),
        ExceptionBreakpointsFilter(
            filter=UNSUPPORTED,
            label="fullgraph=True Errors",
            description="Stop where fullgraph=True fails, at the line that Dynamo cannot trace",
            supports_condition=True,
            condition_description="Python expression over the symbolic locals and __reason__, __id__, __explanation__",
        ),
        ExceptionBreakpointsFilter(
            filter=BACKEND_FAILURE,
            label="Backend Failures",
            description="Stop when the backend raises; shows the graph",
            supports_condition=True,
            condition_description="Python expression over the symbolic locals and __reason__, __step__",
        ),
        ExceptionBreakpointsFilter(
            filter=SPECIALIZE,
            label="Specialized Sizes",
            description="Stop when a symbolic size becomes a constant",
            supports_condition=True,
            condition_description="Python expression over the symbolic locals and __source__, __value__",
        ),
        ExceptionBreakpointsFilter(
            filter=GUARD,
            label="Guards",
            description="Stop when Dynamo installs a guard. There are hundreds; add a condition",
            supports_condition=True,
            condition_description="Python expression over the locals, __type__ and __source__: __source__ == 'x'",
        ),
        ExceptionBreakpointsFilter(
            filter=LIMIT,
            label="Recompile Limit",
            description="Stop when a function was compiled too often and falls back to eager",
            supports_condition=True,
            condition_description="Python expression over the arguments and __limit__",
        ),
        ExceptionBreakpointsFilter(
            filter=CUDA_GRAPH,
            label="CUDA Graphs",
            description="Stop when torch skips a CUDA graph, records it again, or overwrites an output still in use",
            supports_condition=True,
            condition_description="Python expression over the locals, __outcome__, __cause__ and __reason__: "
            "__outcome__ == 'skipped'",
        ),
        ExceptionBreakpointsFilter(
            filter=GENERATED_CODE,
            label="Exceptions in Generated Code",
            description="Stop where an exception is raised in code that Dynamo generated",
            supports_condition=True,
            condition_description="Python expression over the frame's locals and __stack__",
        ),
        ExceptionBreakpointsFilter(
            filter=NAN,
            label="NaN and Inf",
            description="Stop at the line that made the first NaN or Inf in a compiled call's results",
            supports_condition=True,
            condition_description="Python expression over the locals, __value__ (the line's result) and __kind__: "
            "__kind__ == 'nan'",
        ),
        ExceptionBreakpointsFilter(
            filter=MISMATCH,
            label="Differs from Eager",
            description="Stop at the first line whose compiled result differs from eager. Compares every call; much "
            "slower",
            supports_condition=True,
            condition_description="Python expression over the locals, __value__, __expected__, __difference__ "
            "(the largest) and __stage__: __difference__ > 0.1",
        ),
        ExceptionBreakpointsFilter(
            filter=OUT_OF_BOUNDS,
            label="Out of Bounds in Triton",
            description="Stop where a Triton kernel accesses memory outside a tensor. Every launch runs in Triton's "
            "interpreter",
            supports_condition=True,
            condition_description="Python expression over the kernel's locals, __tensor__ (the parameter) and "
            "__elements__ (the first outside): __tensor__ == 'x_ptr'",
        ),
        ExceptionBreakpointsFilter(
            filter=RACE,
            label="Races in Triton",
            description="Stop where two programs of a Triton kernel access one element, and one stores without an "
            "atomic operation. Every launch runs in Triton's interpreter",
            supports_condition=True,
            condition_description="Python expression over the kernel's locals, __tensor__ (the parameter), "
            "__elements__, __programs__ (both) and __differ__ (False for two stores of the same values): __differ__",
        ),
        ExceptionBreakpointsFilter(
            filter=KERNEL_MISMATCH,
            label="Triton Kernel Differs",
            description="Stop after a launch of a Triton kernel whose results differ from those of Triton's "
            "interpreter. Every launch is also interpreted; much slower",
            supports_condition=True,
            condition_description="Python expression over the locals, __kernel__, __tensor__ (the parameter), "
            "__index__, __interpreted__, __launched__ and __difference__ (the largest): __difference__ > 0.1",
        ),
    ],
    supports_set_variable=True,
    supports_set_expression=True,
    supports_goto_targets_request=True,
    supports_step_back=True,
    supports_restart_frame=True,
    supports_value_formatting_options=True,
    breakpoint_modes=[
        BreakpointMode(
            mode=COMPILE_TIME,
            label="Compile-time",
            applies_to=["source"],
            description="Stop when Dynamo traces the line",
        ),
        BreakpointMode(
            mode=RUN_TIME,
            label="Run-time",
            applies_to=["source", "instruction"],
            description="Stop when the code that Dynamo generated for the line runs",
        ),
        BreakpointMode(
            mode=BACKWARD,
            label="Backward",
            applies_to=["source"],
            description="Stop when the gradient of the line's result has arrived, in a compiled call",
        ),
        BreakpointMode(
            mode=LOWERING,
            label="Lowering",
            applies_to=["source"],
            description="Stop when AOTAutograd, a pass or Inductor works on the line's operations",
        ),
    ],
)

FORWARDED_REQUESTS: dict[str, type] = {
    "breakpointLocations": BreakpointLocationsArguments,
    "completions": CompletionsArguments,
    "continue": ContinueArguments,
    "dataBreakpointInfo": DataBreakpointInfoArguments,
    "disassemble": DisassembleArguments,
    "evaluate": EvaluateArguments,
    "exceptionInfo": ExceptionInfoArguments,
    "goto": GotoArguments,
    "gotoTargets": GotoTargetsArguments,
    "locations": LocationsArguments,
    "next": NextArguments,
    "pause": PauseArguments,
    "restartFrame": RestartFrameArguments,
    "reverseContinue": ReverseContinueArguments,
    "scopes": ScopesArguments,
    "setExpression": SetExpressionArguments,
    "setVariable": SetVariableArguments,
    "source": SourceArguments,
    "stackTrace": StackTraceArguments,
    "stepBack": StepBackArguments,
    "stepIn": StepInArguments,
    "stepOut": StepOutArguments,
    "variables": VariablesArguments,
}
"""Requests that one backend answers, with the type of their arguments. The server does not read the body."""


EXCEPTION_FILTERS = [
    ExceptionBreakpointsFilter(
        filter="raised",
        label="Raised Exceptions",
        default=False,
        description="Break whenever any exception is raised.",
    ),
    ExceptionBreakpointsFilter(
        filter="uncaught",
        label="Uncaught Exceptions",
        default=True,
        description="Break when the process is exiting due to unhandled exception.",
    ),
    ExceptionBreakpointsFilter(
        filter="userUnhandled",
        label="User Uncaught Exceptions",
        default=False,
        description="Break when exception escapes into library code.",
    ),
]

EAGER_FILTERS = frozenset(one.filter for one in EXCEPTION_FILTERS)

EAGER_CAPABILITIES = Capabilities(
    supports_exception_options=True,
    supports_value_formatting_options=True,
    supports_modules_request=True,
    supports_step_in_targets_request=True,
    exception_breakpoint_filters=EXCEPTION_FILTERS,
    breakpoint_modes=[
        BreakpointMode(
            mode=EAGER,
            label="Eager",
            applies_to=["source"],
            description="Stop when the line runs as ordinary Python",
        ),
    ],
)

EAGER_REQUESTS: dict[str, object] = {
    "modules": {"modules": [], "totalModules": 0},
    "stepInTargets": {"targets": []},
}
"""Requests that only debugpy knows, with the answer if debugpy is absent."""

EAGER_ARGUMENTS: dict[str, type] = {
    "modules": ModulesArguments,
    "stepInTargets": StepInTargetsArguments,
}
"""The types of the arguments of ``EAGER_REQUESTS``."""

FILTER_NAMES = frozenset(
    each.filter for part in (AGENT_CAPABILITIES, EAGER_CAPABILITIES) for each in part.exception_breakpoint_filters or []
)
"""Names of all exception filters, the agent's and debugpy's."""
