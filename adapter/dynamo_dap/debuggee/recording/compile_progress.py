"""Reports which part of a compile runs now: Dynamo's trace, the backend's work, a backward pass.

Hooks are installed while the client of a session shows progress. Reports come on the compiling thread.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from dynamo_dap.debuggee.recording.function_names import name_of_compile
from dynamo_dap.debuggee.torch_api.compiles.compilation import name_of_backend
from dynamo_dap.debuggee.torch_api.compiles.compile_hooks import HOOKS, CompileObserver, FrameCompile
from dynamo_dap.debuggee.torch_api.compiles.compile_records import current_compile_id
from dynamo_dap.debuggee.torch_api.compiles.compile_timing import watch_phases
from dynamo_dap.debuggee.wrapping.patches import Patches

_TRACE, _BACKEND, _BACKWARD = (
    "_compile.compile_inner",
    "OutputGraph.call_user_compiler",
    "backward._backward_impl",
)
"""Torch's names of these phases."""
_NAMES = 1000


class CompileProgress(CompileObserver):
    """Calls a function when the running part changes; one per process."""

    feature = "the progress of compiles"

    def __init__(self, report: Callable[[str | None], None], is_wanted: Callable[[], bool]) -> None:
        """Call ``report`` with a text about the calling thread's compile; with None at the end of the compile."""
        self._report = report
        self._is_wanted = is_wanted
        self._local = threading.local()
        self._names: dict[str, str] = {}
        """Functions by compile id: a backward pass is compiled later than the forward pass."""
        self._patches = Patches(self.feature, self.close)

    def update_hooks(self) -> None:
        """Report from now on, if the client shows progress."""
        if not self._is_wanted():
            self.close()
        elif not self._patches.is_installed and not self._patches.is_off:
            HOOKS.want(self, (CompileObserver.compile_began,))
            watch_phases(self._patches, self)

    def close(self) -> None:
        """Report nothing more."""
        HOOKS.want(self, ())
        self._patches.remove()

    def compile_began(self, compiling: FrameCompile) -> None:
        """Note the function's name for its backward pass."""
        if len(self._names) < _NAMES:
            self._names[compiling.compile_id] = name_of_compile(compiling)

    def phase_began(self, name: str) -> None:
        """Report the beginning of a phase that can take long."""
        what = self._text_of(name)
        if what is not None:
            self._running.append((name, what))
            self._report(what)

    def phase_ended(self, name: str) -> None:
        """Report the outer phase, or the end of the compile."""
        running = self._running
        if running and running[-1][0] == name:
            running.pop()
            self._report(running[-1][1] if running else None)

    @property
    def _running(self) -> list[tuple[str, str]]:
        found: list[tuple[str, str]] = self._local.__dict__.setdefault("running", [])
        return found

    def _text_of(self, phase: str) -> str | None:
        if phase == _BACKWARD:
            name = self._names.get(current_compile_id() or "")
            return "Compiling a backward pass" if name is None else f"Compiling the backward pass of {name}"
        compiling = HOOKS.current if phase in (_TRACE, _BACKEND) else None
        if compiling is None:
            return None
        backend = name_of_backend(compiling.backend)
        by = "Dynamo" if phase == _TRACE else "Inductor" if backend == "inductor" else backend
        return f"{by} {'traces' if phase == _TRACE else 'compiles'} {name_of_compile(compiling)}"
