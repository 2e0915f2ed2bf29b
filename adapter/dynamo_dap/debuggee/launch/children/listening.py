"""Accepts debuggers that connect to this process.

A daemon thread accepts one client after the other, for the life of the process. Without a client the program runs
normally.
"""

from __future__ import annotations

import functools
import importlib.metadata
import os
import secrets
import socket
import sys
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path

from dynamo_dap.debuggee.agent.agent import Agent
from dynamo_dap.debuggee.agent.own_rank import own_rank
from dynamo_dap.debuggee.agent.serving import AgentReceiver
from dynamo_dap.debuggee.wrapping.locks import Level, lock
from dynamo_dap.protocol.access.access_tokens import is_loopback, write_token_file
from dynamo_dap.protocol.connection import Connection
from dynamo_dap.protocol.own_threads import own_thread
from dynamo_dap.protocol.requests.contract import AUTHORIZE, AuthorizeArguments, ErrorId, ProcessInformation
from dynamo_dap.protocol.wire.local_sockets import address_of, listen_locally
from dynamo_dap.protocol.wire.messages import ProtocolError, Request, decode
from dynamo_dap.protocol.wire.streams import SocketStream

_PATIENCE = 10.0
"""Seconds for a new connection to show the token."""
_MAXIMUM_UNAUTHENTICATED = 16
_RETRY_INTERVAL = 0.1
"""Seconds."""

_listening: tuple[str, int] | None = None
_listener: socket.socket | None = None
_private_listener: socket.socket | None = None
_lock = lock("listener", Level.PROCESS)


def listen_for(agent: Callable[[], Agent], address: tuple[str, int] | int, access_token: str | None) -> tuple[str, int]:
    """Let a debugger attach to ``agent()``, which is made once the address is bound; see ``attaching.listen``."""
    global _listening, _listener
    host, port = ("127.0.0.1", address) if isinstance(address, int) else address
    if access_token is None and not is_loopback(host):
        raise ValueError(f"listening on {host} lets other machines run code here: give listen() an access_token")
    with _lock:
        if _listening is not None:
            raise RuntimeError(f"dynamo_dap is listening already, on {_listening[0]}:{_listening[1]}")
        listener = _bind(host, port)
        token = access_token or secrets.token_urlsafe(32)
        bound = listener.getsockname()
        try:
            # Write the file before a client can connect, since the client reads the token from it.
            token_file = write_token_file(bound[0], bound[1], token)
            _begin_to_listen(listener, token_file)
        except OSError:
            listener.close()
            raise
        _listener, _listening = listener, (bound[0], bound[1])
    acceptor = _Acceptor(listener, token, agent())
    own_thread("acceptor", acceptor.run).start()
    return _listening


def is_listening() -> bool:
    """Return whether this process accepts debuggers after ``listen_for``."""
    return _listening is not None


def listen_privately(agent: Agent) -> tuple[str, int, str]:
    """Let a debugger of this machine attach; return host, port, and the required token."""
    global _private_listener
    _close_listeners_in_forks()
    _private_listener = listener = listen_locally()
    token = secrets.token_urlsafe(32)
    own_thread("acceptor", _Acceptor(listener, token, agent).run).start()
    return *address_of(listener), token


@functools.cache
def _close_listeners_in_forks() -> None:
    os.register_at_fork(after_in_child=_forget_listeners)


def _bind(host: str, port: int) -> socket.socket:
    """Return a socket that is bound to the address, and does not listen yet."""
    _close_listeners_in_forks()
    bound = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        if port:  # reuse an address that another program has just used; a free port must be entirely free
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind((host, port))
    except BaseException:
        bound.close()
        raise
    return bound


def _begin_to_listen(listener: socket.socket, token_file: Path) -> None:
    try:
        listener.listen()
    except OSError:
        token_file.unlink(missing_ok=True)
        raise


def _forget_listeners() -> None:
    """Close the listeners in a forked process: no thread accepts connections there."""
    global _listening, _listener, _private_listener, _lock
    for listener in (_listener, _private_listener):
        if listener is not None:
            listener.close()
    _listening = _listener = _private_listener = None
    _lock = lock("listener", Level.PROCESS)


class _Acceptor:
    """Accepts clients, one at a time. Runs on its own daemon thread."""

    def __init__(self, listener: socket.socket, token: str, agent: Agent) -> None:
        self._listener = listener
        self._token = token
        self._agent = agent
        self._unauthenticated: deque[tuple[float, _ListeningReceiver]] = deque()
        """Connections without a token so far, each with its deadline; in order of arrival."""

    def run(self) -> None:
        while self._listener.fileno() >= 0:
            try:
                self._listener.settimeout(self._next_deadline())
                connected, _ = self._listener.accept()
            except TimeoutError:
                continue
            except OSError:
                # The program may be out of file descriptors: drop the oldest unauthenticated connection.
                self._cut_off(len(self._unauthenticated))
                time.sleep(_RETRY_INTERVAL)
                continue
            self._greet(connected)

    def _greet(self, connected: socket.socket) -> None:
        try:
            connection = Connection(SocketStream(connected), "server", is_trusted=False)
            receiver = _ListeningReceiver(connection, self._token, self._agent)
            connection.start(receiver)
        except (OSError, RuntimeError):  # the client is gone already, or no thread can be started for it
            connected.close()
            return
        self._unauthenticated.append((time.monotonic() + _PATIENCE, receiver))
        self._cut_off(len(self._unauthenticated) - _MAXIMUM_UNAUTHENTICATED)

    def _next_deadline(self) -> float | None:
        """Close connections past their deadline; return the seconds until the next deadline, or None."""
        while self._unauthenticated and (
            self._unauthenticated[0][0] <= time.monotonic() or self._unauthenticated[0][1].is_known
        ):
            self._cut_off(1)
        return max(0.001, self._unauthenticated[0][0] - time.monotonic()) if self._unauthenticated else None

    def _cut_off(self, count: int) -> None:
        for _ in range(count):
            self._unauthenticated.popleft()[1].cut_off()


class _ListeningReceiver(AgentReceiver):
    """Receives from one client: its token, then requests. Runs on the connection's reader thread."""

    def __init__(self, connection: Connection, token: str, agent: Agent) -> None:
        super().__init__(connection, agent)
        self._token = token
        self._is_client = False
        self._is_closed = False

    @property
    def is_known(self) -> bool:
        """Whether the client has shown the token, or the connection is closed."""
        return self._is_client or self._is_closed

    def cut_off(self) -> None:
        """Close the connection, unless it has shown the token. Runs on the acceptor's thread."""
        if not self._is_client:
            self._connection.close()

    def on_request(self, request: Request) -> None:
        """Serve a client's request; the first must present the token."""
        if self._is_client:
            super().on_request(request)
        else:
            self._authorise(request)

    def _authorise(self, request: Request) -> None:
        problem = self._problem_with(request)
        if problem is not None:
            self._connection.respond_error(request, problem, error_id=ErrorId.ACCESS_DENIED)
            self._connection.close()
            return
        self._is_client = True
        self._connection.trust()
        self._agent.attach_client(self._connection)
        self._connection.respond(request, process_information())

    def _problem_with(self, request: Request) -> str | None:
        if request.command != AUTHORIZE:
            return "this program needs an access token in the first request"
        try:
            given = decode(request.arguments, AuthorizeArguments, f"arguments of '{AUTHORIZE}'").token
        except ProtocolError as error:
            return str(error)
        if not secrets.compare_digest(given.encode(), self._token.encode()):
            return "wrong access token"
        if self._agent.client is not None:
            return "another debugger is attached to this program; detach it first"
        return None

    def on_invalid_message(self, problem: str) -> None:
        """Report it to the client; an unauthenticated connection gets no answer."""
        if self._is_client:
            super().on_invalid_message(problem)
        else:
            self._connection.close()

    def on_closed(self, problem: str | None) -> None:
        """Close the socket, and let the program run on."""
        self._is_closed = True
        self._connection.close()
        super().on_closed(problem)


def process_information() -> ProcessInformation:
    """Describe this process, without importing torch."""
    try:
        torch_version: str | None = importlib.metadata.version("torch")
    except importlib.metadata.PackageNotFoundError:
        torch_version = None
    return ProcessInformation(os.getpid(), sys.executable, sys.version.split()[0], torch_version, own_rank())
