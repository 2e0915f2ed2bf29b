"""Connects a program to a server that waits for it (``"listen"`` of ``attach``), perhaps on another machine.

The program makes all of its connections to one address of the server, so that a firewall only has to allow that address
in that direction. Each connection begins with ``AUTHORIZE``. Any process and thread may use the structs and functions.
"""

from __future__ import annotations

import contextlib
import socket

from msgspec import Struct

from dynamo_dap.protocol.requests.contract import AUTHORIZE, AuthorizeArguments, ErrorId
from dynamo_dap.protocol.wire.framing import (
    MAXIMUM_UNAUTHENTICATED_BYTES,
    FrameParser,
    FramingError,
    MessageTooLarge,
    frame,
)
from dynamo_dap.protocol.wire.messages import (
    Envelope,
    ErrorBody,
    ErrorMessage,
    ProtocolError,
    Request,
    Response,
    encode,
    encode_body,
    parse,
)

_QUIET_SECONDS, _INTERVAL_SECONDS, _PROBES = 60, 15, 4


class NamedServer(Struct, frozen=True):
    """The address of a waiting server, and the token to show there. As text, ``HOST:PORT#TOKEN``."""

    host: str
    port: int
    token: str

    def __str__(self) -> str:
        return f"{self.address}#{self.token}"

    @property
    def address(self) -> str:
        """The address as ``HOST:PORT``."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @classmethod
    def read(cls, text: str) -> NamedServer:
        """Parse the text that ``str`` returned. Raises ``ValueError``, whose text holds no token."""
        address, _, token = text.strip().partition("#")
        host, _, port = address.rpartition(":")
        if not host or not token or not port.isdecimal() or not 0 < int(port) < 65536:
            raise ValueError("it is not HOST:PORT#TOKEN, which the debugger's console shows")
        return cls(host.strip("[]"), int(port), token)


class Welcome(Struct, rename="camel", omit_defaults=True):
    """Body of the response to ``AUTHORIZE`` for a program."""

    is_wanted: bool = True
    """Whether to debug the program; the user may have excluded its rank."""
    stretch_timeouts: bool = True
    """Whether an unwanted rank waits for held ranks, while the connection lasts."""
    rank_output: str = "plain"


def keep_alive(connected: socket.socket) -> None:
    """End the connection within minutes if the other machine or the network disappears."""
    if connected.family == getattr(socket, "AF_UNIX", None):
        return
    connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (
        ("TCP_KEEPIDLE", _QUIET_SECONDS),
        ("TCP_KEEPINTVL", _INTERVAL_SECONDS),
        ("TCP_KEEPCNT", _PROBES),
    ):
        with contextlib.suppress(OSError, AttributeError):
            connected.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


class FirstMessage:
    """Reads the first message of a connection, and no byte after it: another reader takes over."""

    def __init__(self) -> None:
        self._parser = FrameParser(MAXIMUM_UNAUTHENTICATED_BYTES)

    @property
    def wanted(self) -> int:
        """How many bytes to read next, at most."""
        return self._parser.wanted

    def take(self, data: bytes) -> bytes | None:
        """Take bytes, and return the message's body when it is complete.

        Raises:
            OSError: the connection has ended, or this message is not accepted before authorization.
        """
        if not data:
            raise OSError("the connection has ended")
        try:
            bodies = self._parser.feed(data)
        except FramingError as error:
            raise OSError(str(error)) from None
        for body in bodies:
            if isinstance(body, MessageTooLarge):
                raise OSError(str(body))
            return body
        return None


def acceptance(request: Request, body: object) -> bytes:
    """Return the encoded success response to a connection's first ``request``."""
    return _response(request, success=True, body=body, message=None)


def refusal(request: Request, text: str) -> bytes:
    """Return the encoded refusal."""
    error = ErrorBody(ErrorMessage(ErrorId.ACCESS_DENIED, text))
    return _response(request, success=False, body=error, message=text)


def _response(request: Request, *, success: bool, body: object, message: str | None) -> bytes:
    envelope = Envelope(
        "response",
        seq=1,
        request_seq=request.seq,
        command=request.command,
        success=success,
        message=message,
        body=encode_body(body),
    )
    return frame(encode(envelope))


def show_token(connected: socket.socket, token: str) -> None:
    """Show the token on a new connection, which other code then uses. Raises ``OSError`` if the token is refused."""
    arguments = encode_body(AuthorizeArguments(token))
    connected.sendall(frame(encode(Envelope("request", seq=1, command=AUTHORIZE, arguments=arguments))))
    first = FirstMessage()
    while (body := first.take(connected.recv(first.wanted))) is None:
        pass
    try:
        response = parse(body)
    except ProtocolError as error:
        raise OSError(str(error)) from None
    if not isinstance(response, Response) or not response.success:
        raise OSError("the debug server did not accept the token")
