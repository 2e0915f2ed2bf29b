"""Observes launches of Triton kernels in Inductor's code, including the user's own kernels.

Inductor launches its kernels by a function of its own. This module wraps that function when the program imports it, for
the life of the process. Runs on the threads that launch kernels.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any, Protocol

from dynamo_dap.debuggee.torch_api.features import Feature
from dynamo_dap.debuggee.torch_api.import_hooks import when_imported
from dynamo_dap.debuggee.wrapping.weak_collections import WeakKeyDictionary

_MODULE = "torch._inductor.runtime.triton_heuristics"
_AUTOTUNER = f"{_MODULE}:CachingAutotuner.run"
_GRID = f"{_MODULE}:GridExpr.from_meta"

GENERATED_KERNELS = Feature("inspecting Triton kernels that Inductor generated", _AUTOTUNER, _GRID)

Given = tuple[tuple[object, ...], dict[str, object], Any]
"""A launch's input: arguments, keyword arguments, grid."""


class Launching(Protocol):
    """An observed launch."""

    def launching(self) -> Any:
        """Enter this around the launch."""


def watch_generated_launches(
    observes_any: Callable[[], bool], interpret_copy: Callable[[object, Callable[[], Given]], Launching | None]
) -> None:
    """Call ``interpret_copy`` with the kernel before each launch, while ``observes_any()``."""
    when_imported(_MODULE, lambda: _watch(observes_any, interpret_copy))


def _watch(
    observes_any: Callable[[], bool], interpret_copy: Callable[[object, Callable[[], Given]], Launching | None]
) -> None:
    if GENERATED_KERNELS.problem is not None:
        return
    autotuner = sys.modules[_MODULE].CachingAutotuner
    own = autotuner.run

    def run(self: object, *args: object, stream: object, benchmark_run: bool = False, **kwargs: object) -> object:
        interpreted = None
        if not benchmark_run and observes_any():
            kernel = _kernel_of(self)
            interpreted = None if kernel is None else interpret_copy(kernel, lambda: _given(self, args, kwargs))
        if interpreted is None:
            return own(self, *args, stream=stream, benchmark_run=benchmark_run, **kwargs)
        with interpreted.launching():
            return own(self, *args, stream=stream, benchmark_run=benchmark_run, **kwargs)

    # debugpy cannot step out of the debugger's files, so this function claims to be in Inductor's file.
    run.__code__ = run.__code__.replace(co_filename=str(sys.modules[_MODULE].__file__))
    autotuner.run = functools.wraps(own)(run)


_kernels: WeakKeyDictionary[object, object] = WeakKeyDictionary()


def _kernel_of(autotuner: Any) -> object:
    """Return the kernel, or the user's function behind it; None if this process lacks its source."""
    if autotuner not in _kernels:
        kernel = autotuner.fn
        if kernel.fn is None:
            # The kernel was compiled in another process.
            reload = getattr(autotuner, "_reload_kernel", None)
            kernel = reload().fn if reload is not None else None
        _kernels[autotuner] = kernel if kernel is None else _original(kernel)
    return _kernels[autotuner]


def _original(kernel: Any) -> object:
    """Return the user's kernel that Inductor copied into its code; ``kernel`` for one of Inductor's own."""
    registry = getattr(sys.modules["triton.runtime.jit"], "_triton_jit_function_registry", {})
    name, text = kernel.__name__, kernel.src.strip()
    path = kernel.fn.__code__.co_filename
    for other in list(registry.values()):
        is_same = other.__name__ == name and other.fn is not None and other.src.strip() == text
        if is_same and other.fn.__code__.co_filename != path:
            return other
    return kernel


def _given(autotuner: Any, args: tuple[object, ...], kwargs: dict[str, object]) -> Given:
    config = _config_of(autotuner)
    constants = {**autotuner.triton_meta.get("constants", {}), **config.kwargs}
    names = [name for name in autotuner.fn.arg_names if name not in constants]
    names += autotuner.inductor_meta.get("extra_launcher_args", ())
    scope = {**constants, **dict(zip(names, args, strict=False)), **kwargs}
    grid = GENERATED_KERNELS.resolve(_GRID)(autotuner.inductor_meta, config)
    sizes: dict[str, object] = dict(scope)
    for line in grid.prefix:
        exec(line, {}, sizes)
    sizes_of_axes = [int(eval(str(size), {}, sizes)) for size in (grid.x_grid, grid.y_grid, grid.z_grid)]
    named = {name: value for name, value in scope.items() if name in autotuner.fn.arg_names}
    return (), named, tuple(sizes_of_axes)


def _config_of(autotuner: Any) -> Any:
    """Return the configuration that will be launched: before the first launch, the first candidate."""
    for found in (autotuner.launchers, autotuner.compile_results):
        if found:
            return found[0].config
    return autotuner.configs[0]
