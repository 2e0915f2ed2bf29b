"""Listens for programs that connect by themselves, perhaps from other machines: one address for all.

Runs on the event loop. Unlike the other listeners, this one reads only a connection's first message, so that it can
pass the socket to another process. A connection without an expected token is refused and reported.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import logging
import secrets
import socket
from collections.abc import Awaitable, Callable

from dynamo_dap.protocol.access.authorization import FirstMessage, acceptance, keep_alive, refusal
from dynamo_dap.protocol.requests.contract import AUTHORIZE, AuthorizeArguments
from dynamo_dap.protocol.wire.messages import ProtocolError, Request, decode, parse
from dynamo_dap.server.launching.listeners import Listener

_log = logging.getLogger(__name__)


class IncomingProgram:
    """A connection whose first message had the right token; it is answered once."""

    def __init__(self, connected: socket.socket, request: Request) -> None:
        self.request = request
        self.host = _peer_of(connected)
        """The address of the other end."""
        self._connected = connected

    async def accept(self, body: object = None) -> socket.socket:
        """Accept the connection and return its socket. Raises ``OSError`` if the other end has closed it."""
        await asyncio.get_running_loop().sock_sendall(self._connected, acceptance(self.request, body))
        return self._connected

    async def refuse(self, text: str) -> None:
        """Answer with a refusal, and close the connection."""
        with contextlib.suppress(OSError):
            await asyncio.get_running_loop().sock_sendall(self._connected, refusal(self.request, text))
        self._connected.close()


OnAccepted = Callable[[IncomingProgram], Awaitable[None]]


class ProgramListener(Listener):
    """Listens, and finds a connection's receiver by its token."""

    who = "programs that connect"

    def __init__(self, host: str, port: int, on_refused: Callable[[str], None]) -> None:
        """Listen. ``on_refused`` gets the address of a connection without a valid token. Raises ``OSError``."""
        super().__init__(host, port)
        self._on_refused = on_refused
        self._expected: dict[str, tuple[OnAccepted, bool]] = {}

    def expect(self, on_accepted: OnAccepted, *, token: str | None = None, repeatedly: bool = False) -> str:
        """Expect one connection, or any number; return the token that it must show, a random one by default."""
        token = token or secrets.token_urlsafe(32)
        self._expected[token] = on_accepted, repeatedly
        return token

    def forget(self, token: str) -> None:
        """Refuse this token from now on, if it is still valid."""
        self._expected.pop(token, None)

    def receive(self, connected: socket.socket) -> None:
        """Wait for the first message."""
        connected.setblocking(False)
        keep_alive(connected)
        greeting = asyncio.get_running_loop().create_task(self._greet(connected))

        def cut_off() -> None:
            greeting.cancel()
            connected.close()

        self._unauthenticated.admit(cut_off)
        greeting.add_done_callback(lambda _: self._unauthenticated.forget(cut_off))

    async def _greet(self, connected: socket.socket) -> None:
        try:
            request = await _first_request(connected)
        except (OSError, ProtocolError) as error:
            _log.warning("a connection on the port for %s is cut off: %s", self.who, error)
            connected.close()
            return
        incoming = IncomingProgram(connected, request)
        on_accepted = self._recognise(request)
        if on_accepted is None:
            self._on_refused(incoming.host)
            await incoming.refuse(f"a connection begins with '{AUTHORIZE}' and the right token")
            return
        try:
            await on_accepted(incoming)
        except ProtocolError as error:
            await incoming.refuse(str(error))
        except OSError as error:
            _log.warning("a connection closed before its answer: %s", error)
            connected.close()

    def _recognise(self, request: Request) -> OnAccepted | None:
        if request.command != AUTHORIZE:
            return None
        try:
            given = decode(request.arguments, AuthorizeArguments, AUTHORIZE).token.encode()
        except (ProtocolError, UnicodeError):
            return None
        for token, (on_accepted, repeatedly) in self._expected.items():
            if hmac.compare_digest(token.encode(), given):
                if not repeatedly:
                    self.forget(token)
                return on_accepted
        return None


async def _first_request(connected: socket.socket) -> Request:
    first = FirstMessage()
    while (body := first.take(await asyncio.get_running_loop().sock_recv(connected, first.wanted))) is None:
        pass
    message = parse(body)
    if not isinstance(message, Request):
        raise ProtocolError("a connection begins with a request")
    return message


def _peer_of(connected: socket.socket) -> str:
    try:
        return str(connected.getpeername()[0])
    except OSError:
        return "an unknown address"
