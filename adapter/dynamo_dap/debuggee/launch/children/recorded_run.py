"""Records, profiles or explores the child processes of a recorded program, each separately.

The interpreter's functions that start processes are wrapped for the life of this process. A child in which Python runs
the user's program starts with ``entry.py --child``, and gets the ``RecordedRun`` instead of a debugger's invitation. A
worker of multiprocessing's fork server gets the ``RecordedRun`` with its preparation data; other forks inherit the
recorder. Runs on whichever thread starts a process.
"""

from __future__ import annotations

import functools
import importlib
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from dynamo_dap.debuggee.agent.own_rank import be_spawned_as
from dynamo_dap.debuggee.launch.children.child_command import Argument, debugged_command, is_for_program
from dynamo_dap.debuggee.launch.children.child_processes import invite_workers
from dynamo_dap.debuggee.torch_api.import_hooks import when_imported
from dynamo_dap.debuggee.torch_api.spawning import rank_of_spawned
from dynamo_dap.debuggee.wrapping.patches import Patches
from dynamo_dap.protocol.requests.contract import ENTRY, LaunchDescription, RecordedRun
from dynamo_dap.records.folders import RUN_SUFFIX, SUFFIX, new_name, records_folder

_run: RecordedRun | None = None
_HOOKS = Patches("recording of child processes")


def begin_run(reported: LaunchDescription | None = None) -> None:
    """Begin a run with this process, unless it is already in one. Its descendants join the run."""
    if _run is None:
        reported = reported or LaunchDescription()
        run = RecordedRun(new_name(), str(records_folder(Path.cwd())), reported.profile, reported.explore)
        run.comparisons, run.compare_every = reported.comparisons, reported.compare_every
        run.hashed_calls, run.cache_keys = reported.hashed_calls, reported.cache_keys
        run.torch_settings = reported.torch_settings
        join_run(run)


def join_run(run: RecordedRun) -> None:
    """Make this process, and those that it starts, part of a run."""
    global _run
    be_spawned_as(run.rank)
    if _run is None:
        _wrap("_posixsubprocess", "fork_exec", 0)
        _wrap("os", "posix_spawn", 1)
        _wrap("os", "posix_spawnp", 1)
        _wrap("os", "execv", 1)
        _wrap("os", "execve", 1)
        if "subprocess" in sys.modules:
            # From Python 3.11 on, ``subprocess`` calls the function by a name of its own.
            _wrap("subprocess", "_fork_exec", 0)
        when_imported("multiprocessing.popen_forkserver", lambda: invite_workers(_reported, _HOOKS))
    _run = run


def _wrap(module: str, name: str, position: int) -> None:
    """Wrap a function that starts a process, to rewrite the command in the argument at ``position``."""
    owner = importlib.import_module(module)
    original = getattr(owner, name, None)
    if original is None:
        return

    @functools.wraps(original)
    def start(*arguments: Any, **keywords: Any) -> Any:
        if len(arguments) > position:
            recorded = _HOOKS.guarded(_rewritten, None)(arguments[position])
            if recorded is not None:
                arguments = (*arguments[:position], recorded, *arguments[position + 1 :])
        return original(*arguments, **keywords)

    setattr(owner, name, start)


def _rewritten(command: Sequence[Argument]) -> Sequence[Argument] | None:
    """Return the command of a recorded child; None if it starts unchanged."""
    reported = _reported()
    try:
        recorded = None if reported is None else debugged_command(command, ENTRY, reported)
    except TypeError:  # the program itself must get the error for an invalid command
        return None
    return recorded if recorded is not None and is_for_program(sys._getframe(), is_fork=False) else None


def _reported() -> str | None:
    if _run is None:
        return None
    reported = msgspec.structs.replace(_run, rank=rank_of_spawned(sys._getframe()))
    return msgspec.json.encode(reported).decode()


def run_in_argument(text: str) -> RecordedRun | None:
    """Return the run in the argument of ``--child``; None if that is a debugger's invitation file."""
    return msgspec.json.decode(text, type=RecordedRun) if text.startswith("{") else None


def own_record() -> Path | None:
    """Return this process's record file; None outside a run."""
    if _run is None:
        return None
    first = Path(_run.folder) / f"{_run.name}{SUFFIX}"
    # After os.exec() the first process runs another program, whose record must not replace the first one.
    if _is_first(_run) and not first.exists():
        return first
    return first.with_suffix(RUN_SUFFIX) / f"{new_name()}{SUFFIX}"


def _is_first(run: RecordedRun) -> bool:
    return run.name.rpartition("-")[2] == str(os.getpid())


def own_path(path: str, suffix: str = "") -> str:
    """Return the file of this process; the first process of the run writes to ``path``, which ends with ``suffix``."""
    return path if _run is None or _is_first(_run) else f"{path.removesuffix(suffix)}.{os.getpid()}{suffix}"
