"""What the agent in the debugged program can do: said here because ``initialize`` is answered before there is one.

Facts only. A request that is forwarded as it is stands in ``FORWARDED_REQUESTS``; whatever handlers of the server
declare (``handling``) is added to ``AGENT_CAPABILITIES``.
"""

from __future__ import annotations

from dynamo_dap.protocol.types import BreakpointMode, Capabilities, ExceptionBreakpointsFilter

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
    supports_exception_filter_options=True,
    exception_breakpoint_filters=[
        ExceptionBreakpointsFilter(
            filter="generated-code",
            label="Exceptions in Generated Code",
            description="Stop where an exception is raised in code that Dynamo generated",
            supports_condition=True,
            condition_description="Python expression over the frame's locals and __stack__",
        ),
    ],
    supports_set_variable=True,
    supports_set_expression=True,
    supports_single_thread_execution_requests=True,
    breakpoint_modes=[
        BreakpointMode(
            mode="compile-time",
            label="Compile-time",
            applies_to=["source"],
            description="Stop when Dynamo traces the line",
        ),
        BreakpointMode(
            mode="run-time",
            label="Run-time",
            applies_to=["source", "instruction"],
            description="Stop when the code that Dynamo generated for the line runs",
        ),
    ],
)

FORWARDED_REQUESTS = frozenset(
    {
        "breakpointLocations",
        "completions",
        "continue",
        "disassemble",
        "evaluate",
        "exceptionInfo",
        "next",
        "pause",
        "scopes",
        "setExpression",
        "setVariable",
        "source",
        "stackTrace",
        "stepIn",
        "stepOut",
        "variables",
    }
)
"""Requests that one backend answers, whose arguments and body the server does not read."""

CUSTOM_REQUEST_PREFIX = "dynamo"
"""Requests of our own, for the agent, begin with this."""
