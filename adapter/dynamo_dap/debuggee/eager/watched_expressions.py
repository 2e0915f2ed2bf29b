"""Finds the attribute that a data breakpoint in an ordinary frame watches, such as ``model.layer.scale``.

Runs on the threads that debugpy has stopped. No code of the program runs.
"""

from __future__ import annotations

from types import FrameType

from dynamo_dap.debuggee.agent.breakpoints import CHANGED, WatchedVariable, can_be_watched
from dynamo_dap.debuggee.torch_api.code_objects.generated_code import original_of, user_function_of
from dynamo_dap.protocol.wire.types import DataBreakpointInfoResponseBody


def watched_expression(frame: FrameType | None, expression: str | None) -> DataBreakpointInfoResponseBody:
    """Return whether changes of the attribute that an expression names in ``frame`` can stop the program."""
    text = f"{expression or 'this'} cannot be watched in ordinary Python: only attributes of objects can"
    refused = DataBreakpointInfoResponseBody(data_id=None, description=text)
    if frame is None or expression is None:
        return refused
    original = original_of(frame.f_code)
    watched = WatchedVariable.of(expression, user_function_of(frame.f_code if original is None else original))
    root, steps = watched.parts
    names = frame.f_locals if root in frame.f_locals else frame.f_globals
    # The watch needs a weak reference to the object.
    if not steps or root not in names or not getattr(type(names[root]), "__weakrefoffset__", 0):
        return refused
    return can_be_watched(watched, "changed", [CHANGED])
