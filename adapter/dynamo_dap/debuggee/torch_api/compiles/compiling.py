"""Reports when Dynamo starts and stops compiling on a thread, and when it runs code of the program's in between.

If several threads compile at once, torch's own ``callback_handler`` reports only the first start and the last end. It
also leaves out work around a compile, such as its metrics, which calls as many Python functions as a trace. Here each
thread reports both, so that a change on a thread can be reverted there. Installed on any thread, called on the
compiling one; stays installed until it is removed.
"""

from __future__ import annotations

import contextlib
import threading
import types
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import AbstractContextManager
from typing import Any

from dynamo_dap.debuggee.torch_api.cache.cache_entries import code_of_callable
from dynamo_dap.debuggee.torch_api.features import Feature, owner_of
from dynamo_dap.debuggee.wrapping.patches import Outcome, Patches, Result

_CONTEXT = "torch._dynamo.convert_frame:compile_context"
_BACKEND = "torch._dynamo.output_graph:OutputGraph.call_user_compiler"

COMPILING = Feature("leaving compiles untraced by debugpy", _CONTEXT)
BACKENDS = Feature("stopping in backends", _BACKEND)


class CompileWatcher:
    """Calls a function before and another after each compile, on its thread; nested compiles count as one."""

    def __init__(self, begin: Callable[[], Callable[[], None] | None]) -> None:
        """Call ``begin``, and at the end its result."""
        self._patches = Patches(COMPILING.name)
        self._begin = self._patches.guarded(begin, None)
        self._local = threading.local()

    def install(self) -> None:
        """Install the hook; harmless if it is installed. Runs on any thread.

        Raises:
            FeatureMissing: this torch does not report its compiles.
        """
        COMPILING.require()
        if not self._patches.is_installed:
            self._patches.around(*owner_of(_CONTEXT), self._compile)

    def remove(self) -> None:
        """Remove the hook; harmless if it is not installed. Runs on any thread."""
        self._patches.remove()

    def _compile(self, *_: object, **__: object) -> Generator[None, Outcome, Result | None]:
        outcome = yield None
        return None if outcome.error is not None else Result(self._within(outcome.result))

    @contextlib.contextmanager
    def _within(self, torchs: AbstractContextManager[Any]) -> Iterator[object]:
        is_outermost = not getattr(self._local, "is_compiling", False)
        end = self._begin() if is_outermost else None
        self._local.is_compiling = True
        try:
            with torchs as given:
                yield given
        finally:
            if is_outermost:
                self._local.is_compiling = False
            if end is not None:
                self._patches.guarded(end, None)()


class BackendWatcher:
    """Calls a function before each call of a backend, and what it returns after it, on the compiling thread."""

    def __init__(self, begin: Callable[[Iterable[types.CodeType]], Callable[[], None] | None]) -> None:
        """Call ``begin`` with the code of the backend's functions, except torch's."""
        self._patches = Patches(BACKENDS.name)
        self._begin = self._patches.guarded(begin, None)

    def install(self) -> None:
        """Install the hook; harmless if it is installed. Runs on any thread.

        Raises:
            FeatureMissing: this torch lacks the function through which backends are called.
        """
        BACKENDS.require()
        if not self._patches.is_installed:
            self._patches.around(*owner_of(_BACKEND), self._call)

    def remove(self) -> None:
        """Remove the hook; harmless if it is not installed. Runs on any thread."""
        self._patches.remove()

    def _call(self, output: Any, *_: object, **__: object) -> Generator[None, Outcome, None]:
        end = self._begin(code_of_callable(output.compiler_fn))
        yield None
        if end is not None:
            self._patches.guarded(end, None)()
