"""Keeps Dynamo away from the debugger's own functions.

Hooks run on the program's threads while Dynamo is active there: it would count, trace and compile every Python function
that a hook calls. A function marked here runs as plain Python, with all its callees. Runs on any thread.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterable, Iterator
from types import CodeType, FunctionType

from dynamo_dap.debuggee.bytecode.exact_types import is_a, is_one_of
from dynamo_dap.debuggee.bytecode.loaded_modules import loaded_files
from dynamo_dap.debuggee.torch_api.features import Feature

_SET_STRATEGY = "torch._C._dynamo.eval_frame:set_code_exec_strategy"
_STRATEGY = "torch._C._dynamo.eval_frame:_FrameExecStrategy"
_ACTION = "torch._C._dynamo.eval_frame:_FrameAction"

SKIPPING = Feature("running the debugger's own functions without compiling them", _SET_STRATEGY, _STRATEGY, _ACTION)

_MADE_FOR_A_CLASS = "<string>"
"""The file of methods that the standard library makes for one dataclass or NamedTuple."""
_CACHED = type(functools.cache(len))
"""The class of a function with ``functools.cache``, which holds the function as ``__wrapped__``."""
_PACKAGE = __name__.partition(".")[0]
_skipped: set[str] = set()
"""Names of this package's modules whose functions are skipped."""
_marked: dict[int, CodeType] = {}
"""Code whose calls are also skipped, by ``id``. Code can be unhashable."""


def never_compile(function: Callable[..., object] | CodeType) -> None:
    """Keep Dynamo from tracing ``function`` and its callees. ``function`` may be the code of a function."""
    # A bound method has the attributes of its function.
    code = function if isinstance(function, CodeType) else getattr(function, "__code__", None)
    if isinstance(code, CodeType):
        _skip([code])


def never_compile_below(*folders: str) -> None:
    """Keep Dynamo from tracing imported modules in ``folders``, and their callees."""
    inside = tuple(os.path.join(folder, "") for folder in folders)
    found = [each for each in loaded_files() if each[1].startswith(inside)]
    _skip(code for each in found for code in _codes_of(*each))


def never_compile_own_functions() -> None:
    """Keep Dynamo from tracing this package's functions that are imported by now.

    Functions of the program that they call are still compiled: our wrapper may lie between two of them.
    """
    new = [each for each in loaded_files() if each[0].partition(".")[0] == _PACKAGE and each[0] not in _skipped]
    _skipped.update(name for name, _, _ in new)
    codes = (code for each in new for code in _codes_of(*each))
    _skip((code for code in codes if id(code) not in _marked), with_calls=False)


def _skip(codes: Iterable[CodeType], *, with_calls: bool = True) -> None:
    if SKIPPING.problem is not None:
        return
    set_strategy, actions = SKIPPING.resolve(_SET_STRATEGY), SKIPPING.resolve(_ACTION)
    strategy = SKIPPING.resolve(_STRATEGY)(actions.SKIP, actions.SKIP if with_calls else actions.DEFAULT)
    for code in codes:
        set_strategy(code, strategy)
        if with_calls:
            _marked[id(code)] = code


def _codes_of(module: str, path: str, namespace: dict[str, object]) -> Iterator[CodeType]:
    """Yield the code of each reachable function that a module's own text defines.

    Wrappers by decorators of the standard library are left out: they share their code with wrappers in the program.
    """
    for value in list(namespace.values()):
        if is_one_of(value, (type, FunctionType, _CACHED)) and value.__module__ == module:
            members = list(vars(value).values()) if is_a(value, type) else [value]
            for member in members:
                for code in _codes_of_member(member):
                    if code.co_filename in (path, _MADE_FOR_A_CLASS):
                        yield code


def _codes_of_member(member: object) -> Iterator[CodeType]:
    if isinstance(member, property):
        members: tuple[object, ...] = (member.fget, member.fset, member.fdel)
    else:
        members = (getattr(member, "__func__", member),)  # the function behind a static or class method
    for outermost in members:
        function = outermost.__wrapped__ if is_a(outermost, _CACHED) else outermost
        while isinstance(function, FunctionType):
            yield from _with_inner(function.__code__)
            function = vars(function).get("__wrapped__")


def _with_inner(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _with_inner(constant)
