"""Reports when Dynamo starts and stops compiling on a thread.

Torch's own ``callback_handler`` reports only the start of the first and the end of the last of several threads that
compile at once; here each thread reports both, so that what was done on a thread can be undone there. Installed on any
thread, called on the compiling one; stays installed until it is removed.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

from dynamo_dap.debuggee.torch_internals.features import Feature

_HANDLER = "torch._dynamo.callback:callback_handler.install_callbacks"

COMPILING = Feature("leaving compiles untraced by debugpy", _HANDLER)


class CompileWatcher:
    """Wraps every compile, on the thread it happens on, in a context of ours; nested compiles count as one."""

    def __init__(self, around: Callable[[], AbstractContextManager[None]]) -> None:
        """``around`` makes the context."""
        self._around = around
        self._local = threading.local()
        self._original: Callable[..., AbstractContextManager[None]] | None = None

    def install(self) -> None:
        """Put the hook in; harmless when it is in. Any thread.

        Raises:
            FeatureMissing: this torch does not tell of its compiles.
        """
        COMPILING.require()
        if self._original is None:
            handler = self._handler()
            self._original = handler.install_callbacks
            handler.install_callbacks = self._install_callbacks

    def remove(self) -> None:
        """Take the hook out; harmless when it is not in. Any thread."""
        if self._original is not None:
            self._original = None
            with contextlib.suppress(AttributeError):
                del self._handler().install_callbacks

    @staticmethod
    def _handler() -> Any:
        return sys.modules["torch._dynamo.callback"].callback_handler

    @contextlib.contextmanager
    def _install_callbacks(self, *arguments: Any, **options: Any) -> Iterator[None]:
        with contextlib.ExitStack() as stack:
            if not getattr(self._local, "is_compiling", False):
                self._local.is_compiling = True
                stack.callback(setattr, self._local, "is_compiling", False)
                stack.enter_context(self._around())
            stack.enter_context(type(self._handler()).install_callbacks(self._handler(), *arguments, **options))
            yield
