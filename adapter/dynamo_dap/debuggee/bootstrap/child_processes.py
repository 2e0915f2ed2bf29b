"""While a session wants them, child processes of the debugged one begin as debugged programs.

The functions that make processes are wrapped: a Python that is started begins with ``entry.py --child``, a forked
process comes to ``_after_fork``. What they do then is told in ``child_process``. Runs on whichever thread makes the
process, and on the only thread of a forked one.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from dynamo_dap.debuggee.agent.agent import Agent
from dynamo_dap.debuggee.agent.log import log_exception
from dynamo_dap.debuggee.agent.options import Options
from dynamo_dap.debuggee.bootstrap.child_command import Argument, debugged_command
from dynamo_dap.debuggee.bootstrap.child_process import offer_session
from dynamo_dap.debuggee.eager import pydevd_internals

_ENTRY = os.path.join(os.path.dirname(os.path.abspath(__file__)), "entry.py")


@dataclass(frozen=True)
class _Invitation:
    file: str
    is_in_force: Callable[[], bool]


_invitation: _Invitation | None = None


def invite_children(agent: Agent, options: Options) -> None:
    """Have the children of this process offer themselves, for as long as the agent's session goes on."""
    client = agent.client
    if options.children_file is not None and client is not None:
        _invite(agent, options.children_file, lambda: agent.client is client)


def invite_forked_children(agent: Agent, invitation_file: str) -> None:
    """Have them offer themselves though this process has no session: it is a server of forks."""
    _invite(agent, invitation_file, lambda: True)


def _invite(agent: Agent, invitation_file: str, is_in_force: Callable[[], bool]) -> None:
    global _invitation
    try:
        pydevd_internals.load()
        pydevd_internals.wrap_process_creation(_rewritten, lambda: _after_fork(agent))
    except pydevd_internals.DebugpyMissing:
        return  # said already: without it there is no eager debugging either
    _invitation = _Invitation(invitation_file, is_in_force)
    if not _is_watching_forks:
        _watch_forks()


_is_watching_forks = False
_invitation_of_parent: _Invitation | None = None


def _watch_forks() -> None:
    """The session is the parent's, its state is gone when we come to ``_after_fork``."""
    global _is_watching_forks
    _is_watching_forks = True
    os.register_at_fork(before=_before_fork)


def _before_fork() -> None:
    global _invitation_of_parent
    _invitation_of_parent = _invitation if _invitation is not None and _invitation.is_in_force() else None


def _rewritten(command: Sequence[Argument]) -> Sequence[Argument]:
    if _invitation is None or not _invitation.is_in_force():
        return command
    try:
        return debugged_command(command, _ENTRY, _invitation.file) or command
    except TypeError:  # what is no command is the program's own affair
        return command


def _after_fork(agent: Agent) -> None:
    global _invitation
    _invitation = None
    if _invitation_of_parent is None:
        return
    try:
        offer_session(agent, _invitation_of_parent.file)
    except Exception:  # noqa: BLE001  (whatever it is, the child is to run)
        log_exception("offering a forked process")
