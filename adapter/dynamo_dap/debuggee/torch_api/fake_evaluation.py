"""Computes with the FakeTensors and symbols of a paused trace without changing the trace.

Inside ``evaluating``: nothing is compiled; tensor calls run under the trace's FakeTensorMode; comparisons of symbols
use the values of this call and add no guard; what would need a tensor's data raises instead of making a new symbol;
real tensors are converted apart from the trace's own conversions; the program's tensors cannot be changed in place;
random states and global switches are restored. Runs on the tracing thread.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import random
import sys
from collections.abc import Callable, Iterator
from typing import Any

from dynamo_dap.debuggee.torch_api.features import Feature
from dynamo_dap.debuggee.torch_api.isolation import data_reading, dynamo_off, not_reset, uncompiled_data_reading

_FAKE_CONVERTER = "torch._subclasses.fake_tensor:FakeTensorConverter"
_DISPATCH_MODE = "torch.utils._python_dispatch:TorchDispatchMode"
_PYTHON_DISPATCHER = "torch._dispatch.python:enable_python_dispatcher"

EVALUATION = Feature("computing with tensors of a paused trace", _FAKE_CONVERTER, _DISPATCH_MODE, _PYTHON_DISPATCHER)


class WouldChangeTensor(Exception):
    """An expression tried to change a tensor of the program in place."""


@contextlib.contextmanager
def evaluating(tx: Any) -> Iterator[None]:
    """Compute with the values of ``tx``'s trace; see the module."""
    fake_mode = tx.output.fake_mode
    shape_env = tx.output.shape_env
    enable_python_dispatcher = EVALUATION.resolve(_PYTHON_DISPATCHER)
    with contextlib.ExitStack() as stack:
        stack.enter_context(preserved_global_state())
        stack.enter_context(dynamo_off())
        stack.enter_context(not_reset())
        stack.enter_context(_attributes(shape_env, settings=_without_data_dependent_symbols(shape_env.settings)))
        stack.enter_context(_attributes(fake_mode, fake_tensor_converter=_converter(), allow_non_fake_inputs=True))
        stack.enter_context(shape_env.suppress_guards())
        stack.enter_context(fake_mode)
        stack.enter_context(enable_python_dispatcher())
        stack.enter_context(guarding_mode())
        yield


def _converter() -> Any:
    return EVALUATION.resolve(_FAKE_CONVERTER)()


def _without_data_dependent_symbols(settings: Any) -> Any:
    return dataclasses.replace(settings, allow_scalar_outputs=False, allow_dynamic_output_shape_ops=False)


@contextlib.contextmanager
def _attributes(owner: Any, **values: Any) -> Iterator[None]:
    before = {name: getattr(owner, name) for name in values}
    try:
        for name, value in values.items():
            setattr(owner, name, value)
        yield
    finally:
        for name, value in before.items():
            setattr(owner, name, value)


def guarding_mode() -> Any:
    """Return a dispatch mode that refuses to write to any tensor that the code inside did not make itself."""
    return _guarding_class()()


@functools.cache
def _guarding_class() -> Any:
    base: Any = EVALUATION.resolve(_DISPATCH_MODE)
    tensor = sys.modules["torch"].Tensor

    class Guarding(base):  # type: ignore[misc]  # the base is known at run time
        def __init__(self) -> None:
            super().__init__()
            self._made: dict[int, Any] = {}

        def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            kwargs = kwargs or {}
            for name, value in written_arguments(function, args, kwargs):
                if id(value) not in self._made:
                    raise WouldChangeTensor(f"{function} would change its argument '{name}', a tensor of the program")
            result = function(*args, **kwargs)
            inputs = [each for each in flattened((*args, *kwargs.values())) if id(each) not in self._made]
            of_program = {storage_of(each) for each in inputs}
            for each in flattened(result):
                if isinstance(each, tensor) and storage_of(each) not in of_program:  # no view of the program's
                    self._made[id(each)] = each
            return result

    return Guarding


def storage_of(value: Any) -> object:
    """Return what identifies the memory of a tensor; anything else stands for itself."""
    try:
        return value.untyped_storage()._cdata
    except (AttributeError, NotImplementedError, RuntimeError):
        return id(value)


def written_arguments(function: Any, args: Any, kwargs: Any) -> Iterator[tuple[str, Any]]:
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


def flattened(value: Any) -> Iterator[Any]:
    """Yield ``value``, or what is in it when it is a list or a tuple."""
    if isinstance(value, list | tuple):
        for each in value:
            yield from flattened(each)
    else:
        yield value


@contextlib.contextmanager
def preserved_global_state() -> Iterator[None]:
    """Restore random states and torch's global switches, whatever the code inside did to them."""
    restore = global_state()
    try:
        yield
    finally:
        for put_back in restore:
            put_back()


def global_state() -> list[Callable[[], None]]:
    """Return what puts back the present random states and global switches."""
    return [*random_states(), *switches()]


def random_states() -> list[Callable[[], None]]:
    """Return what puts back the present states of all random number generators that are in use."""
    torch: Any = sys.modules["torch"]
    state = random.getstate()
    # Each look at a call reads it: the generator itself has nothing that Dynamo would compile.
    with uncompiled_data_reading():
        tensor_state = torch.default_generator.get_state()
    restore = [lambda: random.setstate(state), lambda: _set_torch_state(torch, tensor_state)]
    numpy: Any = sys.modules.get("numpy")
    if numpy is not None and "numpy.random" in sys.modules:
        numpy_state = numpy.random.get_state()
        restore.append(lambda: numpy.random.set_state(numpy_state))
    if getattr(torch, "cuda", None) is not None and torch.cuda.is_initialized():
        with data_reading():
            cuda_states = torch.cuda.get_rng_state_all()
        restore.append(lambda: _set_cuda_states(torch, cuda_states))
    return restore


def random_state() -> Any:
    """Return torch's random number generators' states, one after another, as a tensor of bytes on the CPU."""
    torch: Any = sys.modules["torch"]
    with data_reading():
        states = [torch.get_rng_state()]
        if getattr(torch, "cuda", None) is not None and torch.cuda.is_initialized():
            states += torch.cuda.get_rng_state_all()
        return torch.cat(states)


def _set_torch_state(torch: Any, state: Any) -> None:
    with uncompiled_data_reading():
        torch.default_generator.set_state(state)


def _set_cuda_states(torch: Any, states: Any) -> None:
    with data_reading():
        torch.cuda.set_rng_state_all(states)


def switches() -> list[Callable[[], None]]:
    """Return what puts back the present global switches of torch."""
    torch: Any = sys.modules["torch"]
    grad = torch.is_grad_enabled()
    dtype = torch.get_default_dtype()
    deterministic = torch.are_deterministic_algorithms_enabled()
    warn_only = torch.is_deterministic_algorithms_warn_only_enabled()
    autocast = {device: torch.is_autocast_enabled(device) for device in ("cpu", "cuda")}
    cache = torch.is_autocast_cache_enabled()

    def put_back() -> None:
        if torch.is_grad_enabled() is not grad:
            torch._C._set_grad_enabled(grad)
        if torch.get_default_dtype() is not dtype:
            torch.set_default_dtype(dtype)
        if torch.are_deterministic_algorithms_enabled() is not deterministic:
            torch.use_deterministic_algorithms(deterministic, warn_only=warn_only)
        for device, enabled in autocast.items():
            if torch.is_autocast_enabled(device) is not enabled:
                torch.set_autocast_enabled(device, enabled)
        if torch.is_autocast_cache_enabled() is not cache:
            torch.set_autocast_cache_enabled(cache)

    return [put_back]


def data_dependent_reason(problem: BaseException) -> str | None:
    """Return a readable explanation why an operation needs a tensor's data; None for any other exception."""
    for cls in type(problem).__mro__:
        if cls.__name__ in ("DataDependentOutputException", "DynamicOutputShapeException"):
            return f"{getattr(problem, 'func', 'it')} depends on a tensor's data, which is not there while tracing"
        if cls.__name__ == "GuardOnDataDependentSymNode":
            return f"{getattr(problem, 'cond', 'it')} depends on a tensor's data, which is not there while tracing"
    return None


def is_of_dynamo(problem: BaseException) -> bool:
    """Whether an exception is one that steers Dynamo: a graph break, a restart, an unsupported construct."""
    return any(cls.__module__ == "torch._dynamo.exc" for cls in type(problem).__mro__) or any(
        cls.__name__ == "RestartAnalysis" for cls in type(problem).__mro__
    )
