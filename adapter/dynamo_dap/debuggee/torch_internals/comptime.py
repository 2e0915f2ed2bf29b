"""``torch._dynamo.comptime.comptime.breakpoint()``: finds the translator that it stops.

torch/_dynamo/comptime.py: ``breakpoint`` traces a function ``inner`` that calls ``builtins.breakpoint()`` with the
caller's ``ComptimeContext`` in its local ``ctx``. Tracing thread only.
"""

from __future__ import annotations

import types

from dynamo_dap.debuggee.torch_internals.features import Feature
from dynamo_dap.debuggee.torch_internals.translator import Translator

_CONTEXT = "torch._dynamo.comptime:ComptimeContext"
_TRANSLATOR = "torch._dynamo.comptime:ComptimeContext._i_will_not_complain_if_bc_breaks_InstructionTranslator"

COMPTIME_BREAKPOINT = Feature("stopping at comptime.breakpoint()", _CONTEXT, _TRANSLATOR)


def comptime_breakpoint_translator(frame: types.FrameType) -> Translator | None:
    """Return the translator to stop when ``frame`` is that of ``comptime.breakpoint``, else None."""
    if frame.f_globals.get("__name__") != "torch._dynamo.comptime" or COMPTIME_BREAKPOINT.problem is not None:
        return None
    context = frame.f_locals.get("ctx")
    if not isinstance(context, COMPTIME_BREAKPOINT.resolve(_CONTEXT)):
        return None
    return COMPTIME_BREAKPOINT.resolve(_TRANSLATOR)(context)
