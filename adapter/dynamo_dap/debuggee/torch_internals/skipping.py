"""Keeping Dynamo away from the debugger's own functions.

Hooks run on the program's threads while Dynamo is active there: it would take every Python function that a hook calls
for the program's, and count, trace and compile it. A function marked here runs as plain Python, as does all that it
calls. Runs on any thread.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from types import CodeType, FunctionType, ModuleType
from typing import Any

from dynamo_dap.debuggee.torch_internals.features import Feature

_SET_STRATEGY = "torch._C._dynamo.eval_frame:set_code_exec_strategy"
_STRATEGY = "torch._C._dynamo.eval_frame:_FrameExecStrategy"
_ACTION = "torch._C._dynamo.eval_frame:_FrameAction"

SKIPPING = Feature("running the debugger's own functions without compiling them", _SET_STRATEGY, _STRATEGY, _ACTION)


def never_compile(function: Callable[..., Any] | CodeType) -> None:
    """Let Dynamo neither trace ``function`` nor what it calls while it runs. ``function`` may be given by its code."""
    # A bound method passes the attributes of its function on.
    code = function if isinstance(function, CodeType) else getattr(function, "__code__", None)
    if isinstance(code, CodeType):
        _skip([code])


def never_compile_below(*folders: str) -> None:
    """Let Dynamo trace no function of the modules in ``folders``, as far as they are imported, nor what they call."""
    inside = tuple(os.path.join(folder, "") for folder in folders)
    modules = [
        module for module in list(sys.modules.values()) if (getattr(module, "__file__", None) or "").startswith(inside)
    ]
    _skip(code for module in modules for code in _codes_of(module))


def _skip(codes: Iterator[CodeType] | list[CodeType]) -> None:
    if SKIPPING.problem is not None:
        return
    set_strategy, skip = SKIPPING.resolve(_SET_STRATEGY), SKIPPING.resolve(_ACTION).SKIP
    strategy = SKIPPING.resolve(_STRATEGY)(skip, skip)
    for code in codes:
        set_strategy(code, strategy)


def _codes_of(module: ModuleType) -> Iterator[CodeType]:
    """Every function that the text of ``module`` makes, but for what nobody can reach any more."""
    for value in list(vars(module).values()):
        if getattr(value, "__module__", None) == module.__name__:
            members = list(vars(value).values()) if isinstance(value, type) else [value]
            for member in members:
                yield from _codes_of_member(member)


def _codes_of_member(member: object) -> Iterator[CodeType]:
    if isinstance(member, property):
        members: tuple[object, ...] = (member.fget, member.fset, member.fdel)
    else:
        members = (getattr(member, "__func__", member),)  # what is behind a static or class method
    for function in members:
        if isinstance(function, FunctionType):
            yield from _with_inner(function.__code__)


def _with_inner(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _with_inner(constant)
