"""Names a part of a traced value for a data breakpoint: ``self.scale`` in a submodule is ``self.layer.scale``.

Runs on the held tracing thread.
"""

from __future__ import annotations

from dynamo_dap.debuggee.agent.breakpoints import WatchedVariable
from dynamo_dap.debuggee.torch_api.code_objects.generated_code import user_function_of
from dynamo_dap.debuggee.torch_api.traced.sources import user_expression
from dynamo_dap.debuggee.torch_api.traced.traced_frame import TracedFrame
from dynamo_dap.debuggee.torch_api.traced.variable_trackers import is_tracker, source_of


def watched_part(frame: TracedFrame, tracker: object, expression: str, part: str) -> WatchedVariable | None:
    """Return a part of an input for a data breakpoint, as the compiled function names it; None for other values.

    The watch holds the input weakly, which dicts, lists and tuples do not allow. ``expression`` names the input in
    ``frame``, and ``part`` is an expression that begins with it.
    """
    source = user_expression(source_of(tracker)) if is_tracker(tracker) else None
    if source is None or not part.startswith(expression):
        return None
    outermost = list(frame.with_callers())[-1]
    watched = WatchedVariable.of(source + part[len(expression) :], user_function_of(outermost.code))
    root, steps = watched.parts
    return watched if steps and outermost.is_reference_weak(root) else None
