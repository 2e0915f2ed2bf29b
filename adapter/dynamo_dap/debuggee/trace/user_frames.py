"""Finds the user's function while Dynamo traces a library's code. Runs on the tracing thread."""

from __future__ import annotations

from dynamo_dap.debuggee.agent.user_code import is_user_file
from dynamo_dap.debuggee.torch_api.traced.traced_frame import TracedFrame


def user_frame(innermost: TracedFrame) -> TracedFrame:
    """Return the innermost user function, or ``innermost`` itself."""
    return next((each for each in innermost.with_callers() if is_user_file(each.path)), innermost)
