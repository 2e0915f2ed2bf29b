"""Recognizes Dynamo's names: resume functions, and its variables in globals and locals.

A resume function (``torch_dynamo_resume_in_fn_at_51``) runs the rest of a user's function after a graph break. Dynamo
adds parameters to resume functions, for the saved value stack and for the callers that resume later. It adds temporary
locals to generated code, and compiled graphs, resume functions and other objects to the globals of the user's module.
The debugger shows all of these in a separate group. This module's functions have no side effects and run on any thread.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from types import CodeType, FrameType
from typing import TypeVar

from dynamo_dap.debuggee.bytecode.line_table import qualified_name
from dynamo_dap.debuggee.torch_api.code_objects.generated_code import original_of, user_function_of
from dynamo_dap.debuggee.torch_api.code_objects.generated_names import is_generated

GROUP = "of Dynamo"
"""The name of the group of Dynamo's own variables, in all frames."""

_RESUME_NAME = re.compile(r"torch_dynamo_resume_in_(?P<function>.+)_at_(?P<line>\d+)$")
_MARK = "__is_tracing_resume_prologue"
"""A local of resume functions: True while they restore their state, then False."""
_LOCAL = re.compile(rf"___|__nested_|__resume_frame_values|{_MARK}$")
"""Prefixes of the locals that Dynamo adds to resume functions: the saved stack, context managers, callers."""
_GLOBAL = re.compile(
    r"__(?:builtins_dict_|compiled_fn_|gen_rand_values_|import_|optimizer_|warnings_warn_wrapper_)\w+$"
    r"|__(?:resume|comprehension_\w+)_at_\d+\w*$"
    r"|\w*_\d{6,}_c(?:None|\d+(?:/\d+)*)$"
)
"""Names of globals that ``OutputGraph`` installs. They end in a counter, or in an object's address and a compile id."""

_DRAWS = "__gen_rand_values_"
"""The beginning of the name of the function with which generated code draws all of Python's random numbers."""
_DRAWN = "random_values_"
"""The beginning of the name of the local that has the numbers."""
_RANDOM = re.compile(r"_[0-9a-f]{8}(?:_[0-9a-f]{4}){3}_[0-9a-f]{12}\b")
"""The part of a compiled graph's name that differs from process to process."""
_IMPORT = re.compile(r"\b__import_(?P<module>\w+)")
_BUILTINS = re.compile(r"\b(__builtins_dict__)_\d+\b")

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ResumeFunction:
    """The user's function, and the line at which the resume function continues it."""

    function: str
    line: int


def resume_function(code: CodeType) -> ResumeFunction | None:
    """Return which function a resume function continues, and where; None if ``code`` is not a resume function."""
    match = _RESUME_NAME.match(code.co_name)
    return ResumeFunction(match["function"], int(match["line"])) if match else None


def draws_of(frame: object) -> tuple[Callable[[], object], object] | None:
    """Return the function by which generated code drew Python's random numbers before it called its graph, and these.

    None if it drew none, or if they are not known.
    """
    if not isinstance(frame, FrameType):
        return None
    functions = [name for name in frame.f_code.co_names if name.startswith(_DRAWS)]
    results = [name for name in frame.f_code.co_varnames if name.startswith(_DRAWN)]
    if len(functions) != 1 or len(results) != 1:
        return None
    function, drawn = frame.f_globals.get(functions[0]), frame.f_locals.get(results[0])
    return None if function is None or drawn is None else (function, drawn)


def restores_state(frame: FrameType) -> bool:
    """Return whether ``frame`` runs the beginning of a resume function, which restores its state.

    These instructions have the line number of the graph break. The first half of that line has run already.
    """
    code = frame.f_code
    return resume_function(code) is not None and _MARK in code.co_varnames and frame.f_locals.get(_MARK) is not False


def calls_resume_function(generated: CodeType) -> bool:
    """Return whether generated code calls a resume function, which runs the rest after a graph break."""
    return any(name.startswith("__resume_at_") for name in generated.co_names)


_OF_COMPILED_BACKWARD = ("inputs", "sizes", "scalars", "hooks", "packed_data")


def is_compiled_backward(code: CodeType) -> bool:
    """Return whether ``code`` is a backward graph that compiled autograd made for Dynamo to compile."""
    return code.co_filename.startswith("<eval_with_key>") and set(_OF_COMPILED_BACKWARD) <= {*code.co_varnames}


def user_function_name(code: CodeType) -> str:
    """Return the user's name of a function: ``Model.forward``, ``fn (resumed at line 8)``."""
    if is_generated(code.co_filename):
        code = original_of(code) or code
    resumed = resume_function(code)
    if resumed is None:
        return qualified_name(code)
    user = user_function_of(code)
    inner = resume_function(code.replace(co_name=resumed.function))
    bare = inner.function if inner is not None else resumed.function
    return f"{qualified_name(user) if user is not code else bare} (resumed at line {resumed.line})"


def readable_function_name(name: str) -> str:
    """Replace the name of a resume function by the user's: ``forward (resumed at line 14)``. Keep other names."""
    match = outer = _RESUME_NAME.match(name)
    while match is not None:
        name = match["function"]
        match = _RESUME_NAME.match(name)
    return name if outer is None else f"{name} (resumed at line {outer['line']})"


def shown_names(text: str) -> str:
    """Shorten the names of Dynamo's globals in ``text``: ``__import_torch_dot__dynamo`` to ``torch._dynamo``."""
    if "__" not in text:
        return text
    text = _BUILTINS.sub(r"\1", _RANDOM.sub("", text))
    return _IMPORT.sub(lambda match: match["module"].replace("_dot_", "."), text)


def is_dynamos_global(name: str) -> bool:
    """Return whether Dynamo added the global with this name."""
    return _GLOBAL.match(name) is not None


def dynamos_locals(code: CodeType, original: CodeType | None = None) -> Callable[[str], bool]:
    """Return a function that decides whether a local name in ``code`` is Dynamo's.

    ``original`` is the code that ``code`` was generated from, if known.
    """
    if original is None and is_generated(code.co_filename):
        original = original_of(code)
    if original is None and resume_function(code) is None:
        return lambda name: False
    users = original if original is not None else code
    names = {*users.co_varnames, *users.co_cellvars, *users.co_freevars}
    if resume_function(users) is not None:
        names = {name for name in names if not _LOCAL.match(name)}
    if original is not None and (function := user_function_of(original)) is not original:
        names &= {*function.co_varnames, *function.co_cellvars, *function.co_freevars}
    return lambda name: name not in names


def split_by_owner(variables: Iterable[T], is_dynamos: Callable[[T], bool]) -> tuple[list[T], list[T]]:
    """Split ``variables`` into the user's and Dynamo's, and keep their order."""
    users: list[T] = []
    dynamos: list[T] = []
    for variable in variables:
        (dynamos if is_dynamos(variable) else users).append(variable)
    return users, dynamos
