"""``comptime``: code of the program's that runs while Dynamo traces, and stops there by ``breakpoint()``.

torch/_dynamo/comptime.py: ``comptime.breakpoint`` traces a function ``inner`` that calls ``builtins.breakpoint()`` with
the caller's ``ComptimeContext`` in its local ``ctx``. Any other function is given to ``comptime(...)`` by the traced
code itself, and is called by ``ComptimeVariable.call_function``, which has the translator. Tracing thread only.
"""

from __future__ import annotations

import types

from dynamo_dap.debuggee.torch_internals.features import Feature
from dynamo_dap.debuggee.torch_internals.translator import Translator, frames_of_trace

_CONTEXT = "torch._dynamo.comptime:ComptimeContext"
_TRANSLATOR = "torch._dynamo.comptime:ComptimeContext._i_will_not_complain_if_bc_breaks_InstructionTranslator"
_CALL = "torch._dynamo.variables.misc:ComptimeVariable.call_function"

COMPTIME_BREAKPOINT = Feature("stopping at comptime.breakpoint()", _CONTEXT, _TRANSLATOR)
COMPTIME_CALLS = Feature("stopping at breakpoint() in a function that is given to comptime()", _CALL)


def comptime_breakpoint_translator(frame: types.FrameType) -> Translator | None:
    """Return the translator to stop when ``frame``, which called ``breakpoint()``, runs for ``comptime``, else None."""
    if COMPTIME_BREAKPOINT.problem is None and frame.f_globals.get("__name__") == "torch._dynamo.comptime":
        context = frame.f_locals.get("ctx")
        if isinstance(context, COMPTIME_BREAKPOINT.resolve(_CONTEXT)):
            return COMPTIME_BREAKPOINT.resolve(_TRANSLATOR)(context)
    if COMPTIME_CALLS.problem is not None:
        return None
    call = COMPTIME_CALLS.resolve(_CALL).__code__
    return next((one.f_locals.get("tx") for one in frames_of_trace(frame) if one.f_code is call), None)
