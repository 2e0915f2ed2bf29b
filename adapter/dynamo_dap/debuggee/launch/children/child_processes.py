"""Starts child processes of the program under the debugger, while the session debugs child processes.

The functions that start processes are wrapped. A Python process that runs the user's program starts with
``entry.py --child``; a forked process calls ``_after_fork``. The fork server of multiprocessing runs unchanged; the
start-up data of its workers makes them run ``entry.py``.

A child asks for its own session: it listens on this machine, sends the address to its parent's server, and waits until
a session is configured, the server refuses, or the time is up. In the parent, this module runs on the thread that
starts the process. In the child, it runs on the main thread before the program, or on the only thread of a fork.
"""

from __future__ import annotations

import os
import runpy
import sys
import threading
import time
import types
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from dynamo_dap.debuggee.agent.agent import Agent
from dynamo_dap.debuggee.agent.log import log_exception
from dynamo_dap.debuggee.agent.own_rank import be_spawned_as, own_rank
from dynamo_dap.debuggee.eager import pydevd_internals
from dynamo_dap.debuggee.launch.children.child_command import Argument, debugged_command, is_for_program
from dynamo_dap.debuggee.launch.children.listening import listen_privately
from dynamo_dap.debuggee.launch.children.rank_output import divert
from dynamo_dap.debuggee.launch.children.waiting_ranks import wait_for_held_ranks
from dynamo_dap.debuggee.torch_api.import_hooks import when_imported
from dynamo_dap.debuggee.torch_api.spawning import rank_of_spawned
from dynamo_dap.debuggee.wrapping.patches import Patches
from dynamo_dap.protocol.connection import Connection, RequestFailed
from dynamo_dap.protocol.requests.contract import (
    AUTHORIZE,
    ENTRY,
    RUNS_ON_EVENT,
    SESSION_BEGINS_EVENT,
    ChildOffer,
    Invitation,
    RunsOnEventBody,
    introduction,
)
from dynamo_dap.protocol.requests.options import AgentOptions
from dynamo_dap.protocol.requests.ranks import Rank, invitation_text
from dynamo_dap.protocol.wire.local_sockets import connect_locally
from dynamo_dap.protocol.wire.messages import Event, Request
from dynamo_dap.protocol.wire.streams import SocketStream


@dataclass(frozen=True)
class _Choice:
    """The session's choice for child processes: it debugs none of them if ``invitation_file`` is None."""

    invitation_file: str | None
    is_in_force: Callable[[], bool]


_HOOKS = Patches("debugging of child processes")
_choice: _Choice | None = None
_choice_of_parent: _Choice | None = None
"""The choice of the parent's session, in a forked process."""


def invite_children(agent: Agent, options: AgentOptions) -> None:
    """Make the children of this process request sessions, while the agent's session lasts."""
    global _choice
    client = agent.client
    if client is None:
        return
    try:
        pydevd_internals.load()
    except pydevd_internals.DebugpyMissing:
        return  # already reported: eager debugging needs it as well
    _choice = _Choice(options.children_file, lambda: agent.client is client)
    pydevd_internals.wrap_process_creation(_is_ours, _rewritten, lambda: _after_fork(agent))
    _watch_forks()


def _is_ours() -> bool:
    return _choice_of_parent is not None or (_choice is not None and _choice.is_in_force())


_is_watching_forks = False


def _watch_forks() -> None:
    global _is_watching_forks
    if not _is_watching_forks:
        _is_watching_forks = True
        os.register_at_fork(after_in_child=_take_over_choice, before=_note_choice)
        when_imported("multiprocessing.popen_forkserver", lambda: invite_workers(_invitation, _HOOKS))


def _invitation() -> str | None:
    choice = _choice or _choice_of_parent
    if choice is None or choice.invitation_file is None or not _is_ours():
        return None
    return invitation_text(choice.invitation_file, rank_of_spawned(sys._getframe()))


_noted: _Choice | None = None


def _note_choice() -> None:
    """Keep the session's choice before a fork, since the child cannot read the session's state."""
    global _noted
    _noted = _choice if _choice is not None and _choice.is_in_force() else None


def _take_over_choice() -> None:
    global _choice, _choice_of_parent
    _choice, _choice_of_parent = None, _noted


def _rewritten(command: Sequence[Argument]) -> Sequence[Argument]:
    debugged = _HOOKS.guarded(_debugged, None)(command)
    return command if debugged is None else debugged


def _debugged(command: Sequence[Argument]) -> Sequence[Argument] | None:
    """Return the command of a debugged child; None if it starts unchanged."""
    choice = _choice or _choice_of_parent
    if choice is None or choice.invitation_file is None:
        return None
    try:
        reported = invitation_text(choice.invitation_file, rank_of_spawned(sys._getframe()))
        debugged = debugged_command(command, ENTRY, reported)
    except TypeError:  # the program itself must get the error for an invalid command
        return None
    return debugged if debugged is not None and is_for_program(sys._getframe(), is_fork=False) else None


def _after_fork(agent: Agent) -> None:
    global _choice_of_parent
    choice, _choice_of_parent = _choice_of_parent, None
    if choice is None or choice.invitation_file is None or not is_for_program(sys._getframe(), is_fork=True):
        return
    try:
        be_spawned_as(rank_of_spawned(sys._getframe()))
        offer_session(lambda: agent, choice.invitation_file)
    except Exception:  # noqa: BLE001  (whatever it is, the child must run)
        log_exception("offering a forked process")


# -- workers of multiprocessing's fork server ----------------------------------------------------------------------


class _WorkerInvitation:
    """An item of a worker's start-up data. Unpickling it runs ``entry.py``."""

    def __init__(self, invitation: str) -> None:
        self._invitation = invitation

    def __reduce__(self) -> tuple[object, ...]:
        return runpy.run_path, (ENTRY, {"INVITATION": self._invitation}, "dynamo_dap_worker")


def invite_workers(invitation: Callable[[], str | None], hooks: Patches) -> None:
    """Add the invitation, if any, to the start-up data of the fork server's workers, as a hook of ``hooks``.

    Called when ``multiprocessing.popen_forkserver`` has been imported.
    """
    spawn: Any = sys.modules["multiprocessing.spawn"]
    prepare = spawn.get_preparation_data

    def invited(maker: types.FrameType) -> str | None:
        return invitation() if is_for_program(maker, is_fork=True) else None

    def get_preparation_data(name: str) -> dict[str, Any]:
        data: dict[str, object] = prepare(name)
        maker = sys._getframe(1)
        is_for_worker = maker.f_globals.get("__name__") == "multiprocessing.popen_forkserver"
        given = hooks.guarded(invited, None)(maker) if is_for_worker else None
        if given is not None:
            data["dynamo_dap"] = _WorkerInvitation(given)
        return data

    spawn.get_preparation_data = get_preparation_data


_ANSWER_SECONDS = 5.0
_PATIENCE_SECONDS = 8.0
"""Seconds to wait for a debugger to attach, after the client has begun a session; before that, the server decides."""
_POLL_SECONDS = 0.05


def offer_session(agent_here: Callable[[], Agent], invitation_file: str) -> bool:
    """Block until a session with this process is configured or refused; return False for an unwanted rank.

    An unwanted rank gets no agent.
    """
    offer = _connect(invitation_file)
    if offer is None:
        return True
    rank, wanted = own_rank(), offer.invitation.ranks
    if rank is not None and wanted is not None and rank.number not in wanted:
        divert(rank, offer.invitation.rank_output, lambda text, category: False)
        _report(offer, ChildOffer(os.getpid(), rank=rank))
        if offer.invitation.stretch_timeouts:
            # The file exists as long as the job is debugged.
            wait_for_held_ranks(lambda: os.path.exists(invitation_file), lambda text: None)
        return False
    agent = agent_here()
    if rank is not None:
        divert(rank, offer.invitation.rank_output, lambda text, category: _show(agent, text, category))
    _have_session(agent, offer, rank)
    return True


def _show(agent: Agent, text: str, category: str) -> bool:
    is_there = agent.client is not None
    if is_there:
        agent.print(text, category)
    return is_there


def _report(offer: _Offer, reported: ChildOffer) -> None:
    try:
        offer.connection.request(AUTHORIZE, introduction(offer.invitation.token, reported), timeout=_ANSWER_SECONDS)
    except (RequestFailed, TimeoutError):
        return
    finally:
        offer.connection.close()


def _have_session(agent: Agent, offer: _Offer, rank: Rank | None) -> None:
    host, port, token = listen_privately(agent)
    try:
        offer.connection.request(
            AUTHORIZE,
            introduction(offer.invitation.token, ChildOffer(os.getpid(), host, port, token, rank)),
            timeout=_ANSWER_SECONDS,
        )
        if not _wait(agent, offer):
            offer.connection.send_event(RUNS_ON_EVENT, RunsOnEventBody(_PATIENCE_SECONDS))
    except (RequestFailed, TimeoutError):
        return
    finally:
        offer.connection.close()
    if agent.configured.is_set():
        agent.eager_debugger.wait_until_configured()


def _wait(agent: Agent, offer: _Offer) -> bool:
    """Wait until the session is configured or refused; return False if no debugger attached in time.

    If the server closes its connection while a debugger is attached, the wait continues.
    """
    until: float | None = None
    was_attached = False
    while not agent.configured.wait(_POLL_SECONDS):
        was_attached = was_attached or agent.client is not None
        if agent.client is None and (was_attached or offer.is_over.is_set()):
            return True
        if until is None and offer.begins.is_set():
            until = time.monotonic() + _PATIENCE_SECONDS
        if until is not None and not was_attached and time.monotonic() > until:
            return False
    return True


@dataclass(frozen=True)
class _Offer:
    connection: Connection
    invitation: Invitation
    begins: threading.Event
    is_over: threading.Event


def _connect(invitation_file: str) -> _Offer | None:
    """Connect to the server of the parent's session; return None if that session has ended."""
    try:
        with open(invitation_file, "rb") as file:
            invitation = msgspec.json.decode(file.read(), type=Invitation)
        host, _, port = invitation.address.rpartition(":")
        connected = connect_locally(host, int(port), _ANSWER_SECONDS)
    except OSError:
        return None
    connection = Connection(SocketStream(connected), "server")
    begins, is_over = threading.Event(), threading.Event()
    connection.start(_OfferReceiver(begins, is_over))
    return _Offer(connection, invitation, begins, is_over)


class _OfferReceiver:
    """Notes that a session begins, or that the server closed the connection. Runs on the reader thread."""

    def __init__(self, begins: threading.Event, is_over: threading.Event) -> None:
        self._begins = begins
        self._is_over = is_over

    def on_request(self, request: Request) -> None:
        """Ignore it: the server sends no requests."""

    def on_event(self, event: Event) -> None:
        """Note that the client has started a session."""
        if event.event == SESSION_BEGINS_EVENT:
            self._begins.set()

    def on_invalid_message(self, problem: str) -> None:
        """Ignore it: both ends send valid messages only."""

    def on_closed(self, problem: str | None) -> None:
        self._is_over.set()
