"""What a stop in a trace says to the user. Tracing thread only."""

from __future__ import annotations

import types

from dynamo_dap.debuggee.torch_internals.dynamo_names import user_function_name
from dynamo_dap.debuggee.torch_internals.translator import CompileIdentity, Translator, outermost, restart_reasons
from dynamo_dap.debuggee.values.model import bounded_text

_MAXIMUM_REASON = 120


def headline(translator: Translator, identity: CompileIdentity) -> str:
    """Return what fits into the headline of a call stack: ``Tracing fn [0/0]``, ``Tracing fn [0/0], attempt 2``."""
    text = f"Tracing {_name(translator)} [{identity.compile_id}]"
    return text if identity.attempt == 0 else f"{text}, attempt {identity.attempt + 1}"


def explain(
    reason: str, translator: Translator, identity: CompileIdentity, top: types.FrameType, *, restarted: bool
) -> str:
    """Return the whole story: ``Paused on breakpoint while Dynamo traces fn [0/0], attempt 2 (restarted: ...)``."""
    text = f"Paused on {reason} while Dynamo traces {_name(translator)} [{identity.compile_id}]"
    if identity.attempt == 0:
        return text
    text += f", attempt {identity.attempt + 1}"
    if restarted:
        text += ": the analysis was restarted, and is back where the step began"
    reasons = [_one_line(one) for one in restart_reasons(top)]
    return f"{text} (restarted: {'; '.join(reasons)})" if reasons else text


def _name(translator: Translator) -> str:
    return user_function_name(outermost(translator).f_code)


def _one_line(reason: str) -> str:
    first = next((line.strip() for line in reason.splitlines() if line.strip()), "")
    return bounded_text(first, _MAXIMUM_REASON)
