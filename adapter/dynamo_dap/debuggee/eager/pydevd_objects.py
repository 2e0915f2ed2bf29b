"""Keeps debugpy from running code of the program's classes while it shows a value.

debugpy reads ``__class__``, calls ``isinstance`` and ``hasattr``, and looks classes up in dictionaries. Each of these
may run a method of the value's class. With this module only ``__repr__`` is called, since users expect its text. Lives
as long as the process. Runs on the threads that debugpy has stopped. Uses debugpy's private names, as
``pydevd_internals`` does.
"""

from __future__ import annotations

import functools
import importlib
import types
from collections.abc import Callable
from typing import Any

from dynamo_dap.debuggee.agent.eager_expressions import kinds_at
from dynamo_dap.debuggee.bytecode.exact_types import find_in_type, is_a, is_exactly, is_one_of
from dynamo_dap.debuggee.values.model import Interrupted
from dynamo_dap.debuggee.values.type_facts import qualified_name_of

_OF_OBJECTS = ("__class__", "__getattribute__", "__getattr__")
_OF_CLASSES = ("__eq__", "__hash__", "__getattribute__", "__getattr__", "__name__")
"""Methods that run when debugpy examines an object or its class."""
_OF_C = (types.WrapperDescriptorType, types.MethodDescriptorType, types.GetSetDescriptorType)
_ROUTINES = (types.FunctionType, types.BuiltinFunctionType, types.MethodType, types.MethodWrapperType)


def runs_its_own_code(value: object) -> bool:
    """Return whether debugpy would run code of the class or metaclass of ``value``, besides ``__repr__``."""
    return _defines(value, _OF_OBJECTS) or _defines(type(value), _OF_CLASSES)


def _defines(value: object, names: tuple[str, ...]) -> bool:
    found = (find_in_type(value, name) for name in names)
    return any(each is not None and not is_exactly(each, _OF_C) for each in found)


def data(own: Callable[..., object], variable: Any, fmt: object, context: str | None, **limits: int) -> Any:
    """Return a variable's fields, made by debugpy's function ``own`` if that only calls ``__repr__``.

    For other values, make the fields here.
    """
    if not runs_its_own_code(variable.value):
        return own(variable, fmt, context, **limits)
    safe_repr: Any = importlib.import_module("_pydevd_bundle.pydevd_safe_repr").SafeRepr()
    vars(safe_repr).update(limits)
    value = variable.value
    try:
        text = "".join(safe_repr._repr_obj(value, 0, safe_repr.maxother_inner, safe_repr.maxother_outer))
    except (Exception, Interrupted):
        raise
    except BaseException:  # noqa: BLE001  (debugpy does so for each Exception)
        text = object.__repr__(value)
    fields = {"name": variable.name, "value": text, "type": qualified_name_of(type(value))}
    if variable.evaluate_name is not None:
        fields["evaluateName"] = variable.evaluate_name
    return {**fields, "variablesReference": variable.get_variable_reference()}


def install() -> None:
    """Make debugpy sort variables, complete names and recognize failed evaluations without code of the program."""
    resolver = importlib.import_module("_pydevd_bundle.pydevd_resolver")
    own_scope = resolver.get_var_scope

    @functools.wraps(own_scope)
    def get_var_scope(name: str, value: object, expression: object, handle_return_values: bool) -> object:
        return own_scope(name, _placeholder_of(value), expression, handle_return_values)

    for module in ("pydevd_suspended_frames", "pydevd_xml", "pydevd_resolver"):
        vars(importlib.import_module(f"_pydevd_bundle.{module}"))["get_var_scope"] = get_var_scope
    comm: Any = importlib.import_module("_pydevd_bundle.pydevd_comm")
    comm.isinstance_checked = lambda value, kinds: is_one_of(value, kinds if type(kinds) is tuple else (kinds,))
    _hold_results()
    _complete()


_ORDINARY = (int, float, str, bool, type(None), list, dict, tuple)
"""Types of most values, which are neither classes nor routines: a scope may have thousands of them."""


def _placeholder_of(value: object) -> object:
    """Return an object of Python that debugpy sorts like ``value``: a class, a routine, or None for another value."""
    if is_exactly(value, _ORDINARY):
        return None
    if is_a(value, type):
        return object
    is_routine = is_one_of(value, _ROUTINES) or (
        find_in_type(value, "__get__") is not None and find_in_type(value, "__set__") is None
    )
    return len if is_routine else None


class _Held:
    """Wraps the result of an expression: debugpy would read ``__class__`` of the result itself."""

    __slots__ = ("value",)

    def __init__(self, value: object) -> None:
        self.value = value


def _hold_results() -> None:
    variables: Any = importlib.import_module("_pydevd_bundle.pydevd_vars")
    failed = variables.ExceptionOnEvaluate
    evaluate, evaluate_in = variables.evaluate_expression, variables.eval_in_context

    @functools.wraps(evaluate_in)
    def eval_in_context(*arguments: object, **named: object) -> object:
        result = evaluate_in(*arguments, **named)
        return result if type(result) is failed else _Held(result)

    @functools.wraps(evaluate)
    def evaluate_expression(*arguments: object, **named: object) -> object:
        result = evaluate(*arguments, **named)
        return result.value if type(result) is _Held else result

    variables.eval_in_context, variables.evaluate_expression = eval_in_context, evaluate_expression


_COMPLETED = {"module": "0", "class": "1", "function": "2", "method": "2", "keyword": "4", "variable": "5"}
"""pydevd's numbers of DAP's completion kinds; all others are fields."""


def _complete() -> None:
    """Complete names from stored attributes, since debugpy would run properties."""
    completer: Any = importlib.import_module("_pydev_bundle._pydev_completer")
    own = completer.generate_completions

    @functools.wraps(own)
    def generate_completions(frame: types.FrameType | None, path: str) -> object:
        names = {} if frame is None else {**frame.f_globals, **frame.f_locals}
        kinds = kinds_at(path.removesuffix("."), names)
        if frame is None or kinds is None:
            return own(frame, path)  # the user has typed the name of a property, so it may run
        return [(name, "", "", _COMPLETED.get(kind, "3")) for name, kind in kinds.items()]

    completer.generate_completions = generate_completions
