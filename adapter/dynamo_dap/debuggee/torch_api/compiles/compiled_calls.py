"""Observes the program's calls of compiled functions, with arguments and results. Runs on any thread.

Only calls from ordinary Python are reported: a call inside a compiled function may be inlined, depending on where the
graphs break.
"""

from __future__ import annotations

import functools
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from dynamo_dap.debuggee.torch_api.features import Feature
from dynamo_dap.debuggee.torch_api.import_hooks import when_imported
from dynamo_dap.debuggee.torch_api.skipping import never_compile

_CONTEXT = "torch._dynamo.eval_frame:OptimizeContext"
RESULTS = Feature("comparing what compiled functions return", _CONTEXT)

_inside = threading.local()


@dataclass(frozen=True)
class CompiledCall:
    """A call of a compiled function or module."""

    function: Callable[..., object]
    args: tuple[object, ...]
    kwargs: dict[str, object]


def call_in_progress() -> CompiledCall | None:
    """Return this thread's present call from ordinary Python, if ``follow_calls`` has been called."""
    return getattr(_inside, "call", None)


def follow_calls() -> None:
    """Note the present call of each thread, from the program's import of ``torch.compile`` on."""
    when_imported("torch._dynamo.eval_frame", lambda: _wrap_compiled_functions(lambda result: None))


def report_results(take: Callable[[object], None]) -> None:
    """Pass the result of each call to ``take``, from the program's import of ``torch.compile`` on."""
    when_imported("torch._dynamo.eval_frame", lambda: _wrap_compiled_functions(take))
    # Otherwise dropout's random numbers, and so the results, depend on graph breaks.
    when_imported("torch._inductor.config", _draw_as_eager)


def _wrap_compiled_functions(take: Callable[[object], None]) -> None:
    if RESULTS.problem is not None:
        return
    context = RESULTS.resolve(_CONTEXT)
    compile_function = context.__call__

    def call(self: object, function: object) -> object:
        compiled = compile_function(self, function)
        # A compiled module compiles its own call, which is a function.
        return _reporting(compiled, take) if hasattr(compiled, "__code__") else compiled

    context.__call__ = call


def _reporting(compiled: Any, take: Callable[[object], None]) -> object:
    @functools.wraps(compiled)
    def wrapper(*args: object, **kwargs: object) -> object:
        if call_in_progress() is not None:
            return compiled(*args, **kwargs)
        _inside.call = CompiledCall(compiled, args, kwargs)
        try:
            result = compiled(*args, **kwargs)
        finally:
            _inside.call = None
        take(result)
        return result

    # Torch distinguishes the function's own attributes from copied ones by this.
    wrapper.__dict__["_torchdynamo_wrapper_id"] = id(wrapper)
    never_compile(wrapper)
    return wrapper


def _draw_as_eager() -> None:
    # An import statement would fail: its package is still being imported.
    config: Any = sys.modules["torch._inductor.config"]
    config.fallback_random = True
