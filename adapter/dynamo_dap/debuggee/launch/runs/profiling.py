"""Profiles the program's compiles from its beginning to the end of the process, and writes the profile.

The profile begins on the main thread before the program, and is written there at the end of the process. A forked
process writes none. There is one profile per process.
"""

from __future__ import annotations

import atexit
import functools
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from dynamo_dap.debuggee.agent.log import log_exception
from dynamo_dap.debuggee.agent.user_code import is_package_file, is_user_file
from dynamo_dap.debuggee.torch_api.import_hooks import (
    when_dynamo_is_imported,
    while_modules_are_imported,
    while_torch_is_imported,
)
from dynamo_dap.debuggee.wrapping.locks import Level, lock
from dynamo_dap.records.model import Place, ProfiledFunction

if TYPE_CHECKING:
    from dynamo_dap.debuggee.recording.profiler import Profiler

_profiler: Profiler | None = None
_FUNCTIONS = 500


def begin_profile(
    stem: str,
    began: float,
    clock: Callable[[], float] = time.perf_counter,
    report: Callable[[str], None] | None = None,
    *,
    is_child: bool = False,
) -> None:
    """Profile from now on.

    ``stem``: see ``write_profile``. ``began``: the start of the process, by ``time.time()``. ``clock`` returns seconds.
    ``report`` gets the profile's path at the end. A worker of multiprocessing (``is_child``) may be killed without a
    chance to write, so it also writes after its compiles.
    """
    global _profiler
    # Imported only now: other programs pay nothing.
    from dynamo_dap.debuggee.recording.profiler import Profiler

    _profiler = Profiler(began, clock)
    while_torch_is_imported(_profiler.import_of)
    _profiler.on_end = while_modules_are_imported(_profiler.import_by_program)
    if is_child:
        _profiler.on_compiled = _KeptProfile(_profiler, Path(stem)).write
    when_dynamo_is_imported(functools.partial(_install_profiler, _profiler))
    atexit.register(_write, _profiler, Path(stem), report)


def is_profiling() -> bool:
    """Return whether this process is profiled."""
    return _profiler is not None


def profiled_functions() -> list[ProfiledFunction]:
    """End the profile, and return the trace time of each user function and of packages."""
    profile = None if _profiler is None else _profiler.finish()
    if profile is None:
        return []
    # Imported only now: see above.
    from dynamo_dap.profile.model import function_times

    return [
        ProfiledFunction(
            one.frame.name, Place(one.frame.path, one.frame.line), one.calls, one.instructions, one.total / 1e9
        )
        for one in function_times(profile)
        if is_user_file(one.frame.path) or is_package_file(one.frame.path)
    ][:_FUNCTIONS]


def _install_profiler(profiler: Profiler) -> None:
    try:
        profiler.install()
    except Exception as error:  # noqa: BLE001  (this runs inside the program's own import of torch)
        log_exception("beginning the profile")
        sys.stderr.write(f"dynamo-dap: cannot profile with this torch: {type(error).__name__}: {error}\n")


class _KeptProfile:
    """Writes a worker's profile so far. Runs on the threads that compile."""

    def __init__(self, profiler: Profiler, stem: Path) -> None:
        self._profiler = profiler
        self._stem = stem
        self._next = 0.0
        self._lock = lock("profile", Level.PROCESS)

    def write(self) -> None:
        """Write the profile so far, unless writing would take more than a tenth of the time."""
        began = time.perf_counter()
        process = sys.modules.get("multiprocessing.process")
        if began < self._next or process is None or process.parent_process() is None:
            return
        # Imported only now: see above.
        from dynamo_dap.profile.files import write_profile

        with self._lock:
            write_profile(self._profiler.so_far(), self._stem)
            ended = time.perf_counter()
            self._next = ended + 9 * (ended - began)


def _write(profiler: Profiler, stem: Path, report: Callable[[str], None] | None) -> None:
    # Imported only now: see above.
    from dynamo_dap.profile.files import CPU_PROFILE, write_profile

    try:
        profile = profiler.finish()
        if profile is not None:
            write_profile(profile, stem)
            if report is not None:
                report(f"dynamo-dap: compile time is in {stem}{CPU_PROFILE}\n")
    except Exception as error:  # noqa: BLE001  (the program has ended, and its exit status must stay)
        log_exception("writing the profile")
        sys.stderr.write(f"dynamo-dap: cannot write the profile {stem}: {type(error).__name__}: {error}\n")
