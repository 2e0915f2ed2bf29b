"""Reports when Dynamo starts and stops compiling on a thread.

Torch's own ``callback_handler`` reports only the start of the first and the end of the last of several threads that
compile at once, and leaves out what surrounds a compile, its metrics for instance, which calls as many functions of
Python as a trace does. Here each thread reports both, so that what was done on a thread can be undone there. Installed
on any thread, called on the compiling one; stays installed until it is removed.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

from dynamo_dap.debuggee.torch_api.features import Feature

_CONTEXT = "torch._dynamo.convert_frame:compile_context"

COMPILING = Feature("leaving compiles untraced by debugpy", _CONTEXT)


class CompileWatcher:
    """Wraps every compile, on the thread it happens on, in a context of ours; nested compiles count as one."""

    def __init__(self, around: Callable[[], AbstractContextManager[None]]) -> None:
        """``around`` makes the context."""
        self._around = around
        self._local = threading.local()
        self._original: Callable[..., AbstractContextManager[Any]] | None = None
        self._is_wanted = False

    def install(self) -> None:
        """Put the hook in; harmless when it is in. Any thread.

        Raises:
            FeatureMissing: this torch does not tell of its compiles.
        """
        COMPILING.require()
        self._is_wanted = True
        if self._original is None:
            self._original = self._convert_frame().compile_context
            self._convert_frame().compile_context = self._compile_context

    def remove(self) -> None:
        """Take the hook out; harmless when it is not in. Any thread."""
        self._is_wanted = False
        if self._original is not None and self._convert_frame().compile_context == self._compile_context:
            self._convert_frame().compile_context, self._original = self._original, None
        # Else somebody has wrapped ours: it stays, and does nothing.

    @staticmethod
    def _convert_frame() -> Any:
        return sys.modules["torch._dynamo.convert_frame"]

    @contextlib.contextmanager
    def _compile_context(self, *arguments: Any, **options: Any) -> Iterator[Any]:
        original = self._original
        assert original is not None, "it is in"
        with contextlib.ExitStack() as stack:
            if self._is_wanted and not getattr(self._local, "is_compiling", False):
                self._local.is_compiling = True
                stack.callback(setattr, self._local, "is_compiling", False)
                stack.enter_context(self._around())
            yield stack.enter_context(original(*arguments, **options))
