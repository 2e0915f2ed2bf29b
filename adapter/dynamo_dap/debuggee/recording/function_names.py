"""Names a compiled function alike in every command: by the function that a decorator wraps, not by the wrapper.

The name is ``LlamaForCausalLM.forward`` where Dynamo compiles ``can_return_tuple.<locals>.wrapper``. A wrapper's
captured variables contain the function that it will call. A resume function captures none, so this module notes the
function that each wrapper called last, as long as the wrapper's code lives. Runs on threads that compile or run
compiled code. No code of the program runs.
"""

from __future__ import annotations

import types
import weakref
from collections.abc import Mapping
from inspect import CO_VARARGS, CO_VARKEYWORDS

from dynamo_dap.debuggee.torch_api.code_objects.dynamo_names import resume_function, user_function_name
from dynamo_dap.debuggee.torch_api.code_objects.generated_code import user_function_of
from dynamo_dap.debuggee.torch_api.compiles.compile_hooks import FrameCompile
from dynamo_dap.debuggee.torch_api.traced.replays import CachedCall
from dynamo_dap.records.model import Place

NamedFunction = tuple[str, Place]
"""A function's name, without the resume line, and its first line."""

_WRAPPERS = 16
"""The most decorators around one function that are followed."""
_PASSES_ALL = CO_VARARGS | CO_VARKEYWORDS

_called_last: dict[int, tuple[weakref.ref[types.CodeType], NamedFunction]] = {}
"""The functions that wrappers called last, by the ``id`` of the wrapper's code."""


def place_of_code(code: types.CodeType) -> Place:
    """Return where a function begins."""
    return Place(code.co_filename, max(1, code.co_firstlineno))


def own_function(code: types.CodeType) -> NamedFunction:
    """Return name and place of the function that ``code`` is or resumes, also for a wrapper."""
    original = user_function_of(code)
    return user_function_name(original).partition(" (resumed")[0], place_of_code(original)


def function_of(code: types.CodeType, variables: Mapping[str, object]) -> NamedFunction:
    """Return the user's function that a call of ``code`` runs; ``variables`` belong to its frame."""
    original = user_function_of(code)
    wrapped = _wrapped(original, variables)
    if wrapped is not None:
        _note(original, wrapped)
    elif resume_function(code) is not None:
        _, wrapped = _called_last.get(id(original), (None, None))
    return wrapped or own_function(code)


def name_of(code: types.CodeType, variables: Mapping[str, object]) -> str:
    """Return the name of ``function_of``, with the line if it is resumed: ``forward (resumed at line 8)``."""
    name, _ = function_of(code, variables)
    resumed = resume_function(code)
    return name if resumed is None else f"{name} (resumed at line {resumed.line})"


def function_of_compile(compiling: FrameCompile) -> NamedFunction:
    """Return the user's function that is compiled."""
    return function_of(compiling.code, getattr(compiling.frame, "f_locals", None) or {})


def name_of_compile(compiling: FrameCompile) -> str:
    """Return the name of the function that is compiled, with the line if it is resumed."""
    return name_of(compiling.code, getattr(compiling.frame, "f_locals", None) or {})


def name_of_call(call: CachedCall) -> str:
    """Return the name of the function that a cached call runs, with the line if it is resumed."""
    return name_of(call.code, call.arguments)


def _note(wrapper: types.CodeType, wrapped: NamedFunction) -> None:
    key = id(wrapper)
    if key in _called_last:
        _called_last[key] = (_called_last[key][0], wrapped)
    else:
        _called_last[key] = (weakref.ref(wrapper, lambda _: _called_last.pop(key, None)), wrapped)


def _wrapped(code: types.CodeType, variables: Mapping[str, object]) -> NamedFunction | None:
    """Return the function that a decorator's wrapper is about to call; None if it is not a wrapper.

    A wrapper captures one function and passes its own arguments on. A training step that captures a loss does not.
    """
    if not code.co_freevars or "<locals>" not in user_function_name(code):
        return None
    held = [variables.get(name) for name in code.co_freevars]
    functions = [one for one in held if type(one) is types.FunctionType]
    if len(functions) != 1:
        return None
    (function,) = functions
    inner = function
    for _ in range(_WRAPPERS):
        following = inner.__dict__.get("__wrapped__")
        if type(following) is not types.FunctionType:
            break
        inner = following
    if not code.co_flags & _PASSES_ALL and _parameters(code) != _parameters(inner.__code__):
        return None
    return str(function.__qualname__), place_of_code(inner.__code__)


def _parameters(code: types.CodeType) -> tuple[str, ...]:
    return code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
