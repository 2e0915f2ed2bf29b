"""Listens on this machine for a started program's agent and debugpy, and authenticates them.

Runs on the event loop. Each expected process has its own random token; a connection without a valid token gets a
failure response and is closed. debugpy sends its token only when asked.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import secrets
import socket
from collections.abc import Callable
from typing import ClassVar

import msgspec

from dynamo_dap.protocol.connection import RequestFailed
from dynamo_dap.protocol.requests.contract import AUTHORIZE, AuthorizeArguments, ErrorId, Invitation
from dynamo_dap.protocol.wire.local_sockets import address_of, listen_locally
from dynamo_dap.protocol.wire.messages import Event, ProtocolError, Request, decode
from dynamo_dap.protocol.wire.streams import SocketStream
from dynamo_dap.server.client.loop_connection import HandshakeReceiver, LoopConnection
from dynamo_dap.server.client.unauthenticated import UnauthenticatedConnections, connections_to

_log = logging.getLogger(__name__)

OnAccepted = Callable[[LoopConnection, msgspec.Raw], None]
"""Gets a new connection and the arguments of its first request; sets the receiver before the next message arrives."""


class Listener:
    """Listens for processes of this machine, unless an address is given."""

    who: ClassVar[str]
    """The expected programs, for log messages."""

    def __init__(self, host: str | None = None, port: int = 0) -> None:
        """Begin to listen. Raises ``OSError`` if the address is not available."""
        if host is None:
            self._socket = listen_locally()
        else:
            self._socket = socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
        self._unauthenticated = UnauthenticatedConnections()
        self._accepting = asyncio.get_running_loop().create_task(self._accept())

    @property
    def address(self) -> str:
        """The address as ``HOST:PORT``."""
        host, port = address_of(self._socket)
        return f"{host}:{port}"

    def close(self) -> None:
        """Stop listening; close connections that have not shown a token."""
        self._accepting.cancel()
        self._socket.close()
        self._unauthenticated.close()

    async def _accept(self) -> None:
        async for connected in connections_to(self._socket):
            try:
                self.receive(connected)
            except (OSError, RuntimeError) as error:  # it is gone already, or no thread can be started for it
                _log.warning("a connection on the port for %s closed before it identified itself: %s", self.who, error)
                connected.close()

    def receive(self, connected: socket.socket) -> None:
        """Identify a new connection."""
        raise NotImplementedError


class AgentListener(Listener):
    """Listens for agents."""

    who = "the agent"

    def __init__(self) -> None:
        super().__init__()
        self._expected: list[tuple[str, OnAccepted, bool]] = []

    def expect(self, on_accepted: OnAccepted, *, repeatedly: bool = False) -> str:
        """Expect one connection, or any number, and return the random token that it must show."""
        token = secrets.token_urlsafe(32)
        self._expected.append((token, on_accepted, repeatedly))
        return token

    def receive(self, connected: socket.socket) -> None:
        """Wait until the connection has shown its token."""
        _UnidentifiedAgent(SocketStream(connected), self._recognise, self._unauthenticated)

    def _recognise(self, token: str) -> OnAccepted | None:
        for index, (expected, on_accepted, repeatedly) in enumerate(self._expected):
            if hmac.compare_digest(expected.encode(), token.encode()):
                if not repeatedly:
                    del self._expected[index]
                return on_accepted
        return None


class _UnidentifiedAgent:
    """A connection that has not shown its token yet."""

    def __init__(
        self,
        stream: SocketStream,
        recognise: Callable[[str], OnAccepted | None],
        unauthenticated: UnauthenticatedConnections,
    ) -> None:
        self._recognise = recognise
        self._unauthenticated = unauthenticated
        self._connection = LoopConnection(stream, "agent", self, is_trusted=False)
        unauthenticated.admit(self.cut_off)

    def cut_off(self) -> None:
        self._leave()
        self._connection.close()

    def on_request(self, request: Request) -> None:
        on_accepted = self._recognised(request)
        if on_accepted is None:
            text = f"a connection begins with '{AUTHORIZE}' and the right token"
            self._connection.respond_error(request, text, error_id=ErrorId.ACCESS_DENIED)
            self.cut_off()
            return
        self._leave()
        self._connection.trust()
        try:
            on_accepted(self._connection, request.arguments)
        except ProtocolError as error:
            self._connection.respond_error(request, str(error), error_id=ErrorId.INVALID_ARGUMENTS)
            self._connection.close()
            return
        self._connection.respond(request)

    def on_event(self, event: Event) -> None:
        self.cut_off()

    def on_invalid_message(self, problem: str) -> None:
        _log.warning("a connection on the agent's port sent an invalid message: %s", problem)
        self.cut_off()

    def on_closed(self, problem: str | None) -> None:
        self.cut_off()

    def _recognised(self, request: Request) -> OnAccepted | None:
        if request.command != AUTHORIZE:
            return None
        try:
            return self._recognise(decode(request.arguments, AuthorizeArguments, AUTHORIZE).token)
        except ProtocolError:
            return None

    def _leave(self) -> None:
        self._unauthenticated.forget(self.cut_off)


_log = logging.getLogger(__name__)

_HANDSHAKE_TIMEOUT = 10.0


class _Authorization(msgspec.Struct, rename="camel"):
    client_access_token: str | None = None


class _Process(msgspec.Struct):
    pid: int
    ppid: int | None = None


class _SystemInfo(msgspec.Struct):
    process: _Process


OnDebugpy = Callable[[LoopConnection, int, "int | None"], None]
"""Gets an authorised connection, its process id, and its parent's."""


class DebugpyListener(Listener):
    """Listens for debugpy."""

    who = "debugpy"

    def __init__(self, on_accepted: OnDebugpy) -> None:
        super().__init__()
        self._on_accepted = on_accepted
        self._token = secrets.token_urlsafe(32)

    @property
    def invitation(self) -> Invitation:
        """The address that the program connects to, and its token."""
        return Invitation(self.address, self._token)

    def receive(self, connected: socket.socket) -> None:
        """Ask the connection for its token."""
        # Messages before the handshake are only logged: they are about pydevd's own start.
        stream = SocketStream(connected)
        self._begin_handshake(LoopConnection(stream, "debugpy", HandshakeReceiver("debugpy"), is_trusted=False))

    def _begin_handshake(self, connection: LoopConnection) -> None:
        handshake = asyncio.get_running_loop().create_task(self._recognise(connection))

        def cut_off() -> None:
            handshake.cancel()
            connection.close()  # the handshake may not have begun

        self._unauthenticated.admit(cut_off)
        handshake.add_done_callback(lambda _: self._unauthenticated.forget(cut_off))

    async def _recognise(self, connection: LoopConnection) -> None:
        try:
            body = await connection.request(
                "pydevdAuthorize", {"debugServerAccessToken": None}, timeout=_HANDSHAKE_TIMEOUT
            )
            shown = decode(body, _Authorization, "answer to pydevdAuthorize").client_access_token
            if shown is None or not hmac.compare_digest(shown.encode(), self._token.encode()):
                raise ProtocolError("wrong token")
            connection.trust()
            body = await connection.request("pydevdSystemInfo", {}, timeout=_HANDSHAKE_TIMEOUT)
            process = decode(body, _SystemInfo, "answer to pydevdSystemInfo").process
        except (RequestFailed, TimeoutError, ProtocolError) as error:
            _log.warning("a connection on debugpy's port was not recognized: %s", error)
            connection.close()
        except BaseException:
            connection.close()
            raise
        else:
            self._on_accepted(connection, process.pid, process.ppid)
