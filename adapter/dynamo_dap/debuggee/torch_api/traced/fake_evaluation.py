"""Computes with the FakeTensors and symbols of a paused trace without changing the trace.

Inside ``evaluating`` nothing is compiled. Tensor calls run under the trace's FakeTensorMode. Comparisons of symbols use
the values of this call and add no guard. An operation that needs a tensor's data raises instead of making a new symbol.
Real tensors are converted separately from the trace's own conversions. The program's tensors cannot be changed in
place. Random states and global switches are restored. Runs on the tracing thread.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import sys
from collections.abc import Iterator
from typing import Any

from dynamo_dap.debuggee.torch_api.features import Feature
from dynamo_dap.debuggee.torch_api.isolation import isolated
from dynamo_dap.debuggee.torch_api.objects import Translator
from dynamo_dap.debuggee.torch_api.swaps import Swap

_FAKE_CONVERTER = "torch._subclasses.fake_tensor:FakeTensorConverter"
_DISPATCH_MODE = "torch.utils._python_dispatch:TorchDispatchMode"
_PYTHON_DISPATCHER = "torch._dispatch.python:enable_python_dispatcher"

EVALUATION = Feature("computing with tensors of a paused trace", _FAKE_CONVERTER, _DISPATCH_MODE, _PYTHON_DISPATCHER)


class WouldChangeTensor(Exception):
    """An expression tried to change a tensor of the program in place."""


@contextlib.contextmanager
def evaluating(tx: Translator) -> Iterator[None]:
    """Compute with the values of ``tx``'s trace without changing the trace."""
    fake_mode = tx.output.fake_mode
    shape_env = tx.output.shape_env
    enable_python_dispatcher = EVALUATION.resolve(_PYTHON_DISPATCHER)
    with isolated(resets=True) as stack:
        swap = stack.enter_context(Swap())
        swap.set(shape_env, "settings", _without_data_dependent_symbols(shape_env.settings))
        swap.set(fake_mode, "fake_tensor_converter", _converter())
        swap.set(fake_mode, "allow_non_fake_inputs", True)
        stack.enter_context(shape_env.suppress_guards())
        stack.enter_context(fake_mode)
        stack.enter_context(enable_python_dispatcher())
        stack.enter_context(guarding_mode())
        yield


def _converter() -> object:
    return EVALUATION.resolve(_FAKE_CONVERTER)()


def _without_data_dependent_symbols(settings: Any) -> object:
    return dataclasses.replace(settings, allow_scalar_outputs=False, allow_dynamic_output_shape_ops=False)


def guarding_mode() -> Any:
    """Return a dispatch mode that refuses writes to tensors that the code inside did not make."""
    return _guarding_class()()


@functools.cache
def _guarding_class() -> Any:
    base: Any = EVALUATION.resolve(_DISPATCH_MODE)
    tensor = sys.modules["torch"].Tensor

    class Guarding(base):  # type: ignore[misc]  # the base is known at run time
        def __init__(self) -> None:
            super().__init__()
            self._made: dict[int, object] = {}

        def __torch_dispatch__(self, function: Any, types: object, args: Any = (), kwargs: Any = None) -> object:
            kwargs = kwargs or {}
            for name, value in written_arguments(function, args, kwargs):
                if id(value) not in self._made:
                    raise WouldChangeTensor(f"{function} would change its argument '{name}', a tensor of the program")
            result = function(*args, **kwargs)
            inputs = [each for each in flattened((*args, *kwargs.values())) if id(each) not in self._made]
            of_program = {storage_of(each) for each in inputs}
            for each in flattened(result):
                if isinstance(each, tensor) and storage_of(each) not in of_program:  # not a view of the program's
                    self._made[id(each)] = each
            return result

    return Guarding


def storage_of(value: Any) -> object:
    """Return a key of a tensor's memory; the ``id`` of any other value."""
    try:
        return value.untyped_storage()._cdata
    except (AttributeError, NotImplementedError, RuntimeError):
        return id(value)


def written_arguments(function: object, args: Any, kwargs: Any) -> Iterator[tuple[str, object]]:
    """Yield name and value of each argument that an operator writes to, by its schema."""
    schema = getattr(function, "_schema", None)
    if schema is None or not schema.is_mutable:
        return
    for position, argument in enumerate(schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            value = args[position] if position < len(args) else kwargs.get(argument.name)
            for each in flattened(value):
                if each is not None:
                    yield argument.name, each


def flattened(value: object) -> Iterator[Any]:
    """Yield ``value``, or the contents of a list or a tuple."""
    if isinstance(value, list | tuple):
        for each in value:
            yield from flattened(each)
    else:
        yield value


def data_dependent_reason(problem: BaseException) -> str | None:
    """Return a readable explanation why an operation needs a tensor's data; None for any other exception."""
    for cls in type(problem).__mro__:
        if cls.__name__ in ("DataDependentOutputException", "DynamicOutputShapeException"):
            return f"{getattr(problem, 'func', 'it')} depends on a tensor's data, which is not there while tracing"
        if cls.__name__ == "GuardOnDataDependentSymNode":
            return f"{getattr(problem, 'cond', 'it')} depends on a tensor's data, which is not there while tracing"
    return None


def is_of_dynamo(problem: BaseException) -> bool:
    """Return whether an exception steers Dynamo: a graph break, a restart, an unsupported construct."""
    return any(cls.__module__ == "torch._dynamo.exc" for cls in type(problem).__mro__) or any(
        cls.__name__ == "RestartAnalysis" for cls in type(problem).__mro__
    )
