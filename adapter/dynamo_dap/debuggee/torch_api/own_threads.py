"""Recognizes the threads that torch starts for itself: Inductor's compile threads, loaders of batches.

Where torch lacks a name that is read here, its threads look like the program's. Runs on any thread, without state.
"""

from __future__ import annotations

import sys
import threading
import types
from typing import Any

_PACKAGES = ("torch._inductor.", "torch.utils.data._utils.")
"""A thread that runs a function of these is torch's. The program itself may run others, such as ``loss.backward``."""
_COMPILES = "torch._inductor.async_compile"


def is_torchs_own(thread: threading.Thread) -> bool:
    """Return whether torch has started ``thread`` for its own work."""
    target = getattr(thread, "_target", None)
    if isinstance(target, types.FunctionType | types.MethodType) and target.__module__.startswith(_PACKAGES):
        return True
    return thread in _compile_threads()


def _compile_threads() -> set[threading.Thread]:
    """Return the threads of Inductor's pool: they run a function of ``concurrent.futures``, like any pool's."""
    compiles: Any = getattr(sys.modules.get(_COMPILES), "AsyncCompile", None)
    try:
        pool = compiles.pool
        # Calling it would make the pool.
        return set(pool()._threads) if pool.cache_info().currsize else set()
    except AttributeError:
        return set()
