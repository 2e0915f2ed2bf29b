"""debugpy's capabilities for eager frames: declared here because ``initialize`` is answered before debugpy runs."""

from __future__ import annotations

from dynamo_dap.protocol.contract import EAGER
from dynamo_dap.protocol.types import (
    BreakpointMode,
    Capabilities,
    ExceptionBreakpointsFilter,
    GotoArguments,
    GotoTargetsArguments,
    ModulesArguments,
    StepInTargetsArguments,
)

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
    supports_goto_targets_request=True,
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
    "goto": None,
    "gotoTargets": {"targets": []},
    "modules": {"modules": [], "totalModules": 0},
    "stepInTargets": {"targets": []},
}
"""Requests that only debugpy knows, and what is answered for what is not debugpy's; None refuses it."""

EAGER_ARGUMENTS: dict[str, type] = {
    "goto": GotoArguments,
    "gotoTargets": GotoTargetsArguments,
    "modules": ModulesArguments,
    "stepInTargets": StepInTargetsArguments,
}
"""The types that their arguments must have."""
