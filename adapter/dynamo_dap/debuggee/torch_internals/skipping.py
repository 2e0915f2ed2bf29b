"""Keeping Dynamo away from the debugger's own functions.

Hooks run on the program's threads while Dynamo watches them: every Python function that such a hook calls would be
taken for the program's, traced and compiled. A function marked here runs as plain Python, with all that it calls. Any
thread.
"""

from __future__ import annotations

from collections.abc import Callable
from types import CodeType
from typing import Any

from dynamo_dap.debuggee.torch_internals.features import Feature

_SET_STRATEGY = "torch._C._dynamo.eval_frame:set_code_exec_strategy"
_STRATEGY = "torch._C._dynamo.eval_frame:_FrameExecStrategy"
_ACTION = "torch._C._dynamo.eval_frame:_FrameAction"

SKIPPING = Feature("running the debugger's own functions without compiling them", _SET_STRATEGY, _STRATEGY, _ACTION)


def never_compile(function: Callable[..., Any] | CodeType) -> None:
    """Let Dynamo neither trace ``function`` nor what it calls while it runs. ``function`` may be given by its code."""
    if SKIPPING.problem is not None:
        return
    # A bound method passes the attributes of its function on.
    code = function if isinstance(function, CodeType) else getattr(function, "__code__", None)
    skip = SKIPPING.resolve(_ACTION).SKIP
    if isinstance(code, CodeType):
        SKIPPING.resolve(_SET_STRATEGY)(code, SKIPPING.resolve(_STRATEGY)(skip, skip))
