"""Starts sessions: one over stdin and stdout, as IDEs start debug adapters, or any number over TCP.

Runs the loop on the main thread until the session or a signal ends it; then ends every launched program.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import logging
import secrets
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from dynamo_dap.protocol.requests.contract import ACCESS_TOKEN_VARIABLE
from dynamo_dap.protocol.wire.streams import PipeStream, SocketStream
from dynamo_dap.server.client.unauthenticated import UnauthenticatedConnections, connections_to
from dynamo_dap.server.sessions import handlers as _handlers  # noqa: F401 - registers the handlers
from dynamo_dap.server.sessions.session import Access, Session

_ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


@contextlib.contextmanager
def _on_end_signals(end: Callable[[], None]) -> Iterator[None]:
    """Call ``end`` on the running loop at every signal that ends processes."""
    loop = asyncio.get_running_loop()
    for number in _ENDING:
        loop.add_signal_handler(number, end)
    try:
        yield
    finally:
        for number in _ENDING:
            loop.remove_signal_handler(number)


def serve_pipes(stream: PipeStream, filters: frozenset[str] | None = None) -> int:
    """Serve one session and return the exit status of the process.

    ``filters`` are the exception filters that the client is offered; None offers all.
    """
    return asyncio.run(_serve_pipes(stream, filters))


async def _serve_pipes(stream: PipeStream, filters: frozenset[str] | None) -> int:
    session = Session(stream, Access())
    session.filters = filters
    with _on_end_signals(session.end):
        return await session.closed


_log = logging.getLogger(__name__)


class CannotListen(Exception):
    """The address is not available for listening; the message is for the user."""


@dataclass(frozen=True)
class Address:
    """``HOST:PORT``, as given by the user. Port 0 is any free one."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> Address:
        """Read ``HOST:PORT``, ``[IPV6]:PORT`` or ``PORT``. Raises ``CannotListen``."""
        host, _, port = text.rpartition(":")
        if not port.isdecimal() or int(port) > 65535:
            raise CannotListen(f"{text!r} is not an address: expected HOST:PORT, for instance 127.0.0.1:5678")
        return cls(host.strip("[]") or "127.0.0.1", int(port))


def serve_tcp(address: Address, access_token: str | None) -> int:
    """Serve sessions until the process is asked to end; return its exit status.

    Raises:
        CannotListen: the address is in use or invalid, or needs an access token.
    """
    return asyncio.run(_serve_tcp(_listen(address, access_token is not None), access_token))


def _listen(address: Address, has_token: bool) -> socket.socket:
    where = f"{address.host}:{address.port}"
    try:
        found = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError as error:
        raise CannotListen(f"cannot listen on {where}: {error.strerror or error}") from None
    family, _, _, _, resolved = found[0]
    if not has_token and not ipaddress.ip_address(str(resolved[0]).partition("%")[0]).is_loopback:
        raise CannotListen(
            f"cannot listen on {where} without an access token: anyone who reaches that address could run code as you. "
            f"Give --access-token or set {ACCESS_TOKEN_VARIABLE}, or listen on 127.0.0.1."
        )
    try:
        return socket.create_server((str(resolved[0]), int(resolved[1])), family=family)
    except OSError as error:
        raise CannotListen(f"cannot listen on {where}: {error.strerror or error}") from None


async def _serve_tcp(listening: socket.socket, access_token: str | None) -> int:
    token = access_token if access_token is not None else secrets.token_urlsafe(32)
    host, port = listening.getsockname()[:2]
    _report(f"dynamo-dap listens on {host}:{port}")
    if access_token is None:
        _report(f"access token: {token}")
    server = _Server(listening, Access(token))
    accepting = asyncio.get_running_loop().create_task(server.accept())

    def stop() -> None:
        accepting.cancel()

    with _on_end_signals(stop):
        await asyncio.wait([accepting])
    await server.close()
    return 0


class _Server:
    """The listening socket and its sessions."""

    def __init__(self, listening: socket.socket, access: Access) -> None:
        self._listening = listening
        self._access = access
        self._sessions: set[Session] = set()
        self._unauthenticated = UnauthenticatedConnections()

    async def accept(self) -> None:
        async for connected in connections_to(self._listening):
            try:
                self._begin_session(connected)
            except (OSError, RuntimeError) as error:  # it is gone already, or no thread can be started for it
                _log.warning("no session with a connection: %s", error)
                connected.close()

    def _begin_session(self, connected: socket.socket) -> None:
        _log.info("session with %s", connected.getpeername())
        session = Session(SocketStream(connected), self._access, lambda: self._unauthenticated.forget(cut_off))

        def cut_off() -> None:
            session.end()

        self._unauthenticated.admit(cut_off)
        self._sessions.add(session)

        def forget(_: asyncio.Future[int]) -> None:
            self._unauthenticated.forget(cut_off)
            self._sessions.discard(session)

        session.closed.add_done_callback(forget)

    async def close(self) -> None:
        self._listening.close()
        sessions = list(self._sessions)
        for session in sessions:
            session.end()
        if sessions:
            await asyncio.wait([session.closed for session in sessions])


def _report(text: str) -> None:
    print(text, file=sys.stderr, flush=True)  # noqa: T201 - the user of a terminal reads it
