"""A child of a debugged process asks for a debug session of its own.

It listens on loopback, tells the server of its parent's session where, and waits until a session is configured, the
server refuses, or the time is up. Runs on the main thread of the child before its program, or on the thread that
forked.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from dataclasses import dataclass

import msgspec

from dynamo_dap.debuggee.agent.agent import Agent
from dynamo_dap.debuggee.agent.binding import add_program_file
from dynamo_dap.debuggee.bootstrap.listening import listen_privately
from dynamo_dap.debuggee.bootstrap.process_agent import process_agent
from dynamo_dap.debuggee.bootstrap.program import Program, run
from dynamo_dap.protocol.connection import Connection, RequestFailed
from dynamo_dap.protocol.contract import AUTHORIZE, RUNS_ON_EVENT, ChildOffer, Invitation, RunsOnEventBody, introduction
from dynamo_dap.protocol.messages import Event, Request
from dynamo_dap.protocol.streams import SocketStream

_ANSWER_SECONDS = 5.0
_PATIENCE_SECONDS = 8.0
"""How long the program waits for a debugger to attach: an editor may start a server for it first."""
_LOOK_SECONDS = 0.05


def run_child(arguments: list[str]) -> None:
    """Offer this process, then run its program. ``arguments``: the invitation's file, then as Python's own."""
    invitation_file, kind, *rest = arguments
    target, rest = (rest[0], rest[1:]) if kind in ("-c", "-m") else (kind, rest)
    agent = process_agent()
    if kind not in ("-c", "-m"):
        add_program_file(os.path.abspath(target))
    offer_session(agent, invitation_file)
    program = Program(
        program=None if kind in ("-c", "-m") else target,
        module=target if kind == "-m" else None,
        code=target if kind == "-c" else None,
        args=rest,
    )
    run(program, before=lambda filename: None, on_end=agent.eager_debugger.report_uncaught)


def offer_session(agent: Agent, invitation_file: str) -> None:
    """Block until a session with this process is configured, or will not be."""
    offer = _connect(invitation_file)
    if offer is None:
        return
    host, port, token = listen_privately(agent)
    try:
        offer.connection.request(
            AUTHORIZE,
            introduction(offer.token, ChildOffer(os.getpid(), host, port, token)),
            timeout=_ANSWER_SECONDS,
        )
        if not _wait(agent, offer.is_over):
            offer.connection.send_event(RUNS_ON_EVENT, RunsOnEventBody(_PATIENCE_SECONDS))
    except (RequestFailed, TimeoutError):
        return
    finally:
        offer.connection.close()
    if agent.configured.is_set():
        agent.eager_debugger.wait_until_configured()


def _wait(agent: Agent, is_over: threading.Event) -> bool:
    """Wait until the session is configured, or there will be none; False when nobody attached in time.

    The server's end counts only while nobody has attached.
    """
    until = time.monotonic() + _PATIENCE_SECONDS
    was_attached = False
    while not agent.configured.wait(_LOOK_SECONDS):
        was_attached = was_attached or agent.client is not None
        if agent.client is None and (was_attached or is_over.is_set()):
            return True
        if not was_attached and time.monotonic() > until:
            return False
    return True


@dataclass(frozen=True)
class _Offer:
    connection: Connection
    token: str
    is_over: threading.Event


def _connect(invitation_file: str) -> _Offer | None:
    """Connect to the server of the parent's session; None when that is over."""
    try:
        with open(invitation_file, "rb") as file:
            invitation = msgspec.json.decode(file.read(), type=Invitation)
        host, _, port = invitation.address.rpartition(":")
        connected = socket.create_connection((host, int(port)), timeout=_ANSWER_SECONDS)
    except OSError:
        return None
    connection = Connection(SocketStream(connected), "server")
    is_over = threading.Event()
    connection.start(_Receiver(is_over))
    return _Offer(connection, invitation.token, is_over)


class _Receiver:
    """Learns when the server does not want this process, or is gone. The connection's reader thread."""

    def __init__(self, is_over: threading.Event) -> None:
        self._is_over = is_over

    def on_request(self, request: Request) -> None:
        """The server asks nothing."""

    def on_event(self, event: Event) -> None:
        """The server tells nothing."""

    def on_invalid_message(self, problem: str) -> None:
        """It speaks our own protocol."""

    def on_closed(self, problem: str | None) -> None:
        self._is_over.set()
