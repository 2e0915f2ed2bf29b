"""Decides which launches of compiled Triton kernels are also interpreted, and stops after launches that differ.

A launch is interpreted if its kernel has breakpoints, or if a step enters the kernel. With an exception filter for
kernels, every launch is. A launch whose results differ from the interpreter's stops the program. There is one
``KernelLaunches`` per process. Runs on the threads that launch kernels, and takes little time if nothing is set.
"""

from __future__ import annotations

import contextlib
import sys
import types
from collections.abc import Iterator

from dynamo_dap.debuggee.agent.engine import Host
from dynamo_dap.debuggee.agent.frames import walk
from dynamo_dap.debuggee.agent.log import log_exception
from dynamo_dap.debuggee.agent.user_code import is_user_file
from dynamo_dap.debuggee.eager import pydevd_internals, pydevd_passing
from dynamo_dap.debuggee.eager.kernel_programs import KernelPrograms, line_outside_of_triton
from dynamo_dap.debuggee.triton.argument_copies import KernelDifference
from dynamo_dap.debuggee.triton.launches import Launch
from dynamo_dap.debuggee.triton.real_launches import LaunchObserver, Observation, names_of
from dynamo_dap.debuggee.wrapping.weak_collections import WeakKeyDictionary
from dynamo_dap.protocol.requests.contract import KERNEL_MISMATCH, OUT_OF_BOUNDS, RACE

_FILTERS = (OUT_OF_BOUNDS, RACE, KERNEL_MISMATCH)
_Place = tuple[str, range, str]
"""A function's file (as breakpoints write it), lines and name."""


class KernelLaunches(LaunchObserver):
    """Stops in compiled kernels, by interpreting their launches, and after launches that differ."""

    def __init__(self, host: Host, programs: KernelPrograms) -> None:
        """Report to ``host``, the agent; ``programs`` stops in interpreted kernels."""
        self._host = host
        self._programs = programs
        self._places: WeakKeyDictionary[types.FunctionType, list[_Place]] = WeakKeyDictionary()
        self._reported: set[str] = set()

    def observes_any(self) -> bool:
        """Return whether a filter for kernels is on, or a breakpoint is set."""
        filters, debugger = self._host.breakpoints.exception_filters, self._host.eager_debugger
        if any(name in filters for name in _FILTERS):
            return True
        return debugger.is_active and pydevd_passing.has_breakpoints()

    def observation(self, function: types.FunctionType, *, is_entered: bool) -> Observation | None:
        """Return how to observe a launch of ``function``; None if it needs no observation."""
        host = self._host
        filters = host.breakpoints.exception_filters
        is_of_all = any(name in filters for name in _FILTERS)
        debugs_python = host.eager_debugger.is_active
        if not (is_of_all or debugs_python) or host.is_holding or host.eager_debugger.holds_this_thread:
            return None
        if is_of_all:
            return Observation(True, KERNEL_MISMATCH in filters)
        try:
            return self._observation_of_breakpoints(function) or self._observation_of_step(function, is_entered)
        except Exception:  # noqa: BLE001  (whatever it is, the program's launch continues)
            log_exception("looking for breakpoints in a kernel")
            return None

    def _observation_of_breakpoints(self, function: types.FunctionType) -> Observation | None:
        places = self._places.get(function)
        if places is None:
            places = self._places[function] = [_place_of(each) for each in _functions_of(function)]
        found = [pydevd_passing.breakpoints_at(*place) for place in places]
        if any(found):
            return Observation(True)
        if any(one is not None for one in found):
            return Observation(False)
        return None

    def _observation_of_step(self, function: types.FunctionType, is_entered: bool) -> Observation | None:
        is_entered = is_entered and pydevd_internals.is_stepping(into_calls=True)
        return Observation(False) if is_entered and is_user_file(function.__code__.co_filename) else None

    def chosen(self, launch: Launch) -> tuple[int, int, int] | None:
        """Return the program that ``tritonProgram`` selects, by default the first; None if the grid has no such one."""
        x, y, z = self._programs.chosen_program(launch)
        return (x, y, z) if x < launch.grid[0] and y < launch.grid[1] and z < launch.grid[2] else None

    @contextlib.contextmanager
    def step_suspended(self) -> Iterator[None]:
        """Return a context in which debugpy's step in progress is suspended."""
        begin_again = pydevd_internals.suspend_step() if self._host.eager_debugger.is_active else None
        try:
            yield
        finally:
            if begin_again is not None:
                begin_again()

    def report(self, text: str) -> None:
        """Show the user a text, unless it was shown already."""
        if text not in self._reported:
            self._reported.add(text)
            self._host.print(f"dynamo-dap: {text}\n", "important")

    def differs(self, launch: Launch, difference: KernelDifference) -> None:
        """Stop at the user's line that made the launch, whose results differ from the interpreter's."""
        top = line_outside_of_triton()
        top = next((one for one in walk(top) if is_user_file(one.f_code.co_filename)), top)
        names: dict[str, object] = {
            "__kernel__": launch.name,
            "__tensor__": difference.name,
            "__index__": difference.index,
            "__interpreted__": difference.interpreted,
            "__launched__": difference.launched,
            "__difference__": difference.largest,
        }
        if top is not None and self._programs.holds(KERNEL_MISMATCH, top, names):
            text = f"{difference.text}\nin the launch of {launch.name}"
            self._programs.stop(top, f"Kernel differs: {difference.headline}", text)


def _place_of(function: types.FunctionType) -> _Place:
    code = function.__code__
    last = max((line for _, _, line in code.co_lines() if line is not None), default=code.co_firstlineno)
    return pydevd_passing.path_of(code), range(code.co_firstlineno, last + 1), function.__name__


def _functions_of(function: types.FunctionType) -> Iterator[types.FunctionType]:
    """Yield a kernel's function, and all jitted functions that it may call, directly or indirectly."""
    seen: set[types.FunctionType] = set()
    waiting = [function]
    while waiting:
        one = waiting.pop()
        if one in seen:
            continue
        seen.add(one)
        yield one
        waiting += _called_by(one)


def _called_by(function: types.FunctionType) -> Iterator[types.FunctionType]:
    kernel = sys.modules["triton.runtime.jit"].JITFunction
    scope = names_of(function)
    names = (*function.__code__.co_names, *function.__code__.co_freevars)
    for name in names:
        value = scope.get(name)
        if isinstance(value, types.ModuleType) and not value.__name__.startswith("triton."):
            found = [vars(value).get(below) for below in names]
        else:
            found = [value]
        yield from (one.fn for one in found if isinstance(one, kernel))
