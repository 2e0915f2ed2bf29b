"""Makes Dynamo trace an interpreted kernel's launch as one call of an operator, which later launches the kernel.

Otherwise Dynamo would trace into the interpreter, and fail there. The operands are numbers, the tensors that the kernel
only reads, and those that it may write to; a text has the other arguments. Like the launch, it has no gradient.

``launch`` replaces every launch: Dynamo traces it, and in eager programs it launches at once. Compiled code, on any
thread, and code that runs a graph call the operator.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

from dynamo_dap.debuggee.torch_api.import_hooks import when_all_of_dynamo_is_imported
from dynamo_dap.debuggee.triton.interpreter import NUMBER, kernel_of
from dynamo_dap.debuggee.triton.written_parameters import written_parameters

_NAMESPACE, _NAME = "dynamo_dap", "triton_launch"
_SCHEMA = (
    f"{_NAME}(int kernel, Tensor[] read, Tensor(a!)[] written, SymInt[] grid, SymInt[] integers, float[] reals, "
    "str form) -> ()"
)
_READ, _WRITTEN, _INTEGER, _REAL, _TRUE, _FALSE, _NONE, _TYPE = "rwifTFNd"
"""The kinds of parameters in the text: a tensor, a number, a plain value, a Triton type."""


def install() -> None:
    """Replace launches by ``launch``. Triton's interpreter and autotuner are already imported."""
    interface = sys.modules["triton.runtime.jit"].KernelInterface
    own = interface.__getitem__

    def launcher(self: object, grid: object) -> object:
        return functools.partial(_launch[0], self, grid) if _launch else own(self, grid)

    interface.__getitem__ = _as_of_triton(launcher)
    when_all_of_dynamo_is_imported(_begin)


def _as_of_triton(function: Any) -> Any:
    """Disguise a function as the Triton function that it replaces: debugpy cannot step out of the debugger's files."""
    file_name = str(sys.modules["triton.runtime.jit"].__file__)
    function.__code__ = function.__code__.replace(co_filename=file_name)
    return function


_launch: list[Callable[..., None]] = []
"""Contains ``launch`` once Dynamo can trace it."""
_library: list[object] = []


def _begin() -> None:
    torch = sys.modules["torch"]
    library = torch.library.Library(_NAMESPACE, "FRAGMENT")
    library.define(_SCHEMA)
    library.impl(_NAME, _run, "CompositeExplicitAutograd")
    library.impl(_NAME, torch.library.fallthrough_kernel, "Autograd")
    torch.library.register_fake(f"{_NAMESPACE}::{_NAME}", lambda *operands: None, lib=library)
    _library.append(library)
    _launch.append(_as_of_triton(_make_launch(torch, getattr(getattr(torch.ops, _NAMESPACE), _NAME))))


def _run(
    number: int,
    read: list[object],
    written: list[object],
    grid: list[int],
    integers: list[int],
    reals: list[float],
    form: str,
) -> None:
    """Launch the kernel. This implements the operator."""
    language = sys.modules["triton.language"]
    given = {_READ: iter(read), _WRITTEN: iter(written), _INTEGER: iter(integers), _REAL: iter(reals)}
    values = {_TRUE: True, _FALSE: False, _NONE: None}
    arguments: dict[str, object] = {}
    for part in form.split():
        name, kind, value = part.split(":")
        if kind == _TYPE:
            arguments[name] = getattr(language, value)
        else:
            arguments[name] = values[kind] if kind in values else next(given[kind])
    kernel_of(number).run(grid=tuple(grid), warmup=False, **arguments)


@functools.lru_cache(maxsize=256)
def _written_by(number: int) -> frozenset[str]:
    kernel = innermost(kernel_of(number))
    return written_parameters(kernel.fn, tuple(kernel.arg_names))


def innermost(kernel: Any) -> Any:
    """Return the kernel inside its wrappers for tuning or heuristics."""
    while hasattr(kernel.fn, "arg_names"):
        kernel = kernel.fn
    return kernel


# -- what Dynamo traces ------------------------------------------------------------------------------------------------


def _make_launch(torch: ModuleType, operator: Any) -> Callable[..., None]:
    """Return ``launch``. Dynamo must know everything that this function refers to."""
    tensor, data_type = torch.Tensor, sys.modules["triton.language"].dtype

    @torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]  # torch is untyped
    def written(number: int) -> tuple[str, ...]:
        return tuple(sorted(_written_by(number)))

    @torch.compiler.disable(reason="an argument of a Triton kernel is neither a tensor nor a number")  # type: ignore[untyped-decorator]  # untyped
    def launch_apart(kernel: Any, grid: object, args: Any, kwargs: Any) -> None:
        kernel.run(*args, grid=grid, warmup=False, **kwargs)

    def launch(kernel: Any, grid: Any, *args: object, **kwargs: object) -> None:
        number = getattr(kernel, NUMBER)
        if number is None or not torch.compiler.is_dynamo_compiling():
            kernel.run(*args, grid=grid, warmup=False, **kwargs)
            return
        given = {**dict(zip(kernel.arg_names, args, strict=False)), **kwargs}
        sizes = grid(_configured(kernel, given)) if callable(grid) else grid
        sizes = [sizes] if isinstance(sizes, int) else list(sizes)
        operands = _operands(given, written(number), tensor, data_type)
        if operands is None:
            launch_apart(kernel, grid, args, kwargs)
        else:
            read, changed, integers, reals, form = operands
            operator(number, read, changed, sizes, integers, reals, form)

    return launch


def _configured(kernel: Any, given: dict[str, object]) -> dict[str, object]:
    """Return the values from which the grid is computed: the first configuration, and heuristics."""
    known = dict(given)
    while hasattr(kernel.fn, "arg_names"):
        if hasattr(kernel, "configs"):
            known.update(kernel.configs[0].kwargs)
        else:
            for name, value in kernel.values.items():
                known[name] = value(known)
        kernel = kernel.fn
    return known


_Operands = tuple[list[Any], list[Any], list[Any], list[Any], str]


def _operands(given: dict[str, object], may_change: tuple[str, ...], tensor: Any, data_type: Any) -> _Operands | None:
    """Return the operator's operands after the grid; None if one is neither a tensor nor a number."""
    read: list[object] = []
    changed: list[object] = []
    integers: list[object] = []
    reals: list[object] = []
    form = ""
    for name, value in given.items():
        written_as = ""
        if isinstance(value, tensor):
            kind = _WRITTEN if name in may_change else _READ
            (changed if name in may_change else read).append(value)
        elif value is None:
            kind = _NONE
        elif isinstance(value, bool):
            kind = _TRUE if value else _FALSE
        elif isinstance(value, int):
            kind = _INTEGER
            integers.append(value)
        elif isinstance(value, float):
            kind = _REAL
            reals.append(value)
        elif isinstance(value, data_type):
            kind, written_as = _TYPE, value.name
        else:
            return None
        form += f"{name}:{kind}:{written_as} "
    return read, changed, integers, reals, form
