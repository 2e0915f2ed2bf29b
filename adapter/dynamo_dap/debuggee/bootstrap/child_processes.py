"""Starts child processes of the debugged one under the debugger, while a session wants them.

The functions that start processes are wrapped: a Python that runs the user's program is started with ``entry.py
--child``; a forked process calls ``_after_fork``. The fork server of multiprocessing runs untouched; the start-up data
that it gets for a worker is changed so that the worker runs ``entry.py``. ``child_process`` has what they do then. Runs
on whichever thread starts the process, and on the only thread of a forked one.
"""

from __future__ import annotations

import os
import runpy
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from dynamo_dap.debuggee.agent.agent import Agent
from dynamo_dap.debuggee.agent.log import log_exception
from dynamo_dap.debuggee.bootstrap.child_command import Argument, debugged_command, is_for_program
from dynamo_dap.debuggee.bootstrap.child_process import offer_session
from dynamo_dap.debuggee.eager import pydevd_internals
from dynamo_dap.debuggee.torch_internals.arrival import when_imported
from dynamo_dap.protocol.options import AgentOptions

_ENTRY = os.path.join(os.path.dirname(os.path.abspath(__file__)), "entry.py")


@dataclass(frozen=True)
class _Wish:
    """What a session wants of the children: ``invitation_file`` is None when they are to be left alone."""

    invitation_file: str | None
    is_in_force: Callable[[], bool]


_wish: _Wish | None = None
_wish_of_parent: _Wish | None = None
"""In a forked process, where the session is the parent's."""


def invite_children(agent: Agent, options: AgentOptions) -> None:
    """Have the children of this process offer themselves, for as long as the agent's session goes on."""
    global _wish
    client = agent.client
    if client is None:
        return
    try:
        pydevd_internals.load()
    except pydevd_internals.DebugpyMissing:
        return  # said already: without it there is no eager debugging either
    _wish = _Wish(options.children_file, lambda: agent.client is client)
    pydevd_internals.wrap_process_creation(_is_ours, _rewritten, lambda: _after_fork(agent))
    _watch_forks()


def _is_ours() -> bool:
    return _wish_of_parent is not None or (_wish is not None and _wish.is_in_force())


_is_watching_forks = False


def _watch_forks() -> None:
    global _is_watching_forks
    if not _is_watching_forks:
        _is_watching_forks = True
        os.register_at_fork(after_in_child=_take_over_wish, before=_note_wish)
        when_imported("multiprocessing.popen_forkserver", _wrap_preparation)


_noted: _Wish | None = None


def _note_wish() -> None:
    """Before a fork: the session's state is gone when the child comes to look."""
    global _noted
    _noted = _wish if _wish is not None and _wish.is_in_force() else None


def _take_over_wish() -> None:
    global _wish, _wish_of_parent
    _wish, _wish_of_parent = None, _noted


def _rewritten(command: Sequence[Argument]) -> Sequence[Argument]:
    wish = _wish or _wish_of_parent
    if wish is None or wish.invitation_file is None:
        return command
    try:
        debugged = debugged_command(command, _ENTRY, wish.invitation_file)
    except TypeError:  # what is no command is the program's own affair
        return command
    if debugged is None or not is_for_program(sys._getframe(), is_fork=False):
        return command
    return debugged


def _after_fork(agent: Agent) -> None:
    global _wish_of_parent
    wish, _wish_of_parent = _wish_of_parent, None
    if wish is None or wish.invitation_file is None or not is_for_program(sys._getframe(), is_fork=True):
        return
    try:
        offer_session(agent, wish.invitation_file)
    except Exception:  # noqa: BLE001  (whatever it is, the child is to run)
        log_exception("offering a forked process")


# -- workers of multiprocessing's server of forks ----------------------------------------------------------------------


class _Invitation:
    """Stands in the data that a worker begins with, and brings it to ``entry.py`` as that is read."""

    def __init__(self, invitation_file: str) -> None:
        self._invitation_file = invitation_file

    def __reduce__(self) -> tuple[Any, ...]:
        return runpy.run_path, (_ENTRY, {"INVITATION_FILE": self._invitation_file}, "dynamo_dap_worker")


def _wrap_preparation() -> None:
    """Have what a worker of the server of forks is sent first contain an invitation, while there is a wish."""
    spawn: Any = sys.modules["multiprocessing.spawn"]
    prepare = spawn.get_preparation_data

    def get_preparation_data(name: str) -> dict[str, Any]:
        data: dict[str, Any] = prepare(name)
        maker = sys._getframe(1)
        wish = _wish or _wish_of_parent
        if (
            maker.f_globals.get("__name__") == "multiprocessing.popen_forkserver"
            and wish is not None
            and wish.invitation_file is not None
            and _is_ours()
            and is_for_program(maker, is_fork=True)
        ):
            data["dynamo_dap"] = _Invitation(wish.invitation_file)
        return data

    spawn.get_preparation_data = get_preparation_data
