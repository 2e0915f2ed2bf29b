"""Keeps Dynamo and debugpy apart: debugpy traces neither compiles nor generated code, Dynamo does not compile debugpy.

Dynamo is plain Python and takes twice as long under debugpy's tracing. debugpy is mostly plain Python, too, and Dynamo
would compile its functions where compiled code calls them. Made when the program imports Dynamo in a session with
debugpy; its hooks run on compiling threads.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator

from dynamo_dap.debuggee.eager import pydevd_internals
from dynamo_dap.debuggee.eager.idle_tracing import IdleTracing
from dynamo_dap.debuggee.torch_internals.compiling import CompileWatcher
from dynamo_dap.debuggee.torch_internals.features import FeatureMissing
from dynamo_dap.debuggee.torch_internals.generated_names import GeneratedNames
from dynamo_dap.debuggee.torch_internals.skipping import never_compile_below


class Compiles:
    """Both hooks."""

    def __init__(self, tracing: IdleTracing) -> None:
        self._tracing = tracing
        self._watcher = CompileWatcher(self._untraced)
        self._names = GeneratedNames(pydevd_internals.never_trace)

    def watch(self, on_problem: Callable[[str], None]) -> None:
        """Put the hooks in; what this torch has no place for is told to ``on_problem``."""
        never_compile_below(pydevd_internals.package(), os.path.dirname(__file__))
        for install in (self._watcher.install, self._names.install):
            try:
                install()
            except FeatureMissing as missing:
                on_problem(str(missing))

    def close(self) -> None:
        """Take the hooks out."""
        self._watcher.remove()
        self._names.remove()

    @contextlib.contextmanager
    def _untraced(self) -> Iterator[None]:
        restore = self._tracing.suspend()
        try:
            yield
        finally:
            if restore is not None and pydevd_internals.debugger() is not None:
                restore()
