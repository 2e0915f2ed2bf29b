"""Passes a program's connections from the server process that received them to the one with the program's session.

The socket itself is sent over a local socket, in a folder that only the user can enter. The session then no longer
depends on the first process. The giver runs on its loop as long as its session; the taker runs while its program
starts.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import logging
import secrets
import shutil
import socket
from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from dynamo_dap.protocol.requests.options import HandedOverTarget
from dynamo_dap.server.client.unauthenticated import connections_to
from dynamo_dap.server.launching.own_folder import make_folder_for_sockets
from dynamo_dap.server.launching.program_listener import IncomingProgram, ProgramListener

_log = logging.getLogger(__name__)

_LARGEST = 64 * 1024
_SECONDS = 10.0
_DEBUGPY = b"debugpy\n"


class _Claim(msgspec.Struct):
    """The taker's first message."""

    token: str
    debugpy_token: str | None = None
    """The token of the program's debugpy, which connects to the same address; None if debugpy is not wanted."""


@dataclass(frozen=True)
class _Waiting:
    connected: socket.socket
    information: msgspec.Raw
    on_taken: Callable[[], None]


class ConnectionGiver:
    """The end that has the connections."""

    def __init__(self, listener: ProgramListener) -> None:
        """Pass on programs, and their debugpy, that arrive at ``listener``."""
        self._incoming = listener
        self._folder = make_folder_for_sockets()
        self._path = self._folder / "programs"
        self._listening = socket.socket(socket.AF_UNIX)
        self._listening.bind(str(self._path))
        self._listening.listen()
        self._waiting: dict[str, _Waiting] = {}
        self._takers: set[socket.socket] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._run(self._accept())

    def offer(
        self, connected: socket.socket, information: msgspec.Raw, on_taken: Callable[[], None], *, is_local: bool
    ) -> HandedOverTarget:
        """Offer a connection with its program's description; return the address."""
        token = secrets.token_urlsafe(32)
        self._waiting[token] = _Waiting(connected, information, on_taken)
        return HandedOverTarget(path=str(self._path), access_token=token, is_local=is_local)

    def withdraw(self, target: HandedOverTarget) -> bool:
        """Close an offered connection; return False if it was taken."""
        waiting = self._waiting.pop(target.access_token, None)
        if waiting is not None:
            waiting.connected.close()
        return waiting is not None

    def close(self) -> None:
        """Close the connections that nobody has taken; their programs run on."""
        for task in self._tasks:
            task.cancel()
        self._listening.close()
        for connected in (*self._takers, *(each.connected for each in self._waiting.values())):
            connected.close()
        self._takers.clear()
        self._waiting.clear()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _run(self, coroutine: object) -> None:
        assert asyncio.iscoroutine(coroutine)
        task = asyncio.get_running_loop().create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _accept(self) -> None:
        async for taker in connections_to(self._listening):
            taker.setblocking(False)
            self._takers.add(taker)
            self._run(self._serve(taker))

    async def _serve(self, taker: socket.socket) -> None:
        try:
            await asyncio.wait_for(self._give(taker), _SECONDS)
        except (OSError, ValueError, asyncio.TimeoutError, TimeoutError) as error:
            _log.warning("a connection was not handed over: %s", error)
            self._drop(taker)

    async def _give(self, taker: socket.socket) -> None:
        claim = msgspec.json.decode(await asyncio.get_running_loop().sock_recv(taker, _LARGEST), type=_Claim)
        token = next((one for one in self._waiting if hmac.compare_digest(one.encode(), claim.token.encode())), None)
        if token is None:
            raise OSError("nothing is offered under this token")
        waiting = self._waiting.pop(token)
        if claim.debugpy_token is not None:
            # Expect debugpy's connection before the session can ask the program for it.
            self._incoming.expect(lambda incoming: self._give_debugpy(taker, incoming), token=claim.debugpy_token)
            self._run(self._forget_at_end(taker, claim.debugpy_token))
        _send(taker, bytes(waiting.information) + b"\n", waiting.connected)
        waiting.on_taken()

    async def _give_debugpy(self, taker: socket.socket, incoming: IncomingProgram) -> None:
        _send(taker, _DEBUGPY, await incoming.accept())

    async def _forget_at_end(self, taker: socket.socket, token: str) -> None:
        try:
            await asyncio.get_running_loop().sock_recv(taker, 1)
        finally:
            self._incoming.forget(token)
            self._drop(taker)

    def _drop(self, taker: socket.socket) -> None:
        self._takers.discard(taker)
        taker.close()


def _send(taker: socket.socket, text: bytes, connected: socket.socket) -> None:
    """Send a socket to the other process, and close this process's descriptor."""
    try:
        socket.send_fds(taker, [text], [connected.fileno()])
    finally:
        connected.close()


class NotTaken(Exception):
    """The connection cannot be taken over; the message says why."""


class ConnectionTaker:
    """The end that has the session."""

    def __init__(self, target: HandedOverTarget) -> None:
        """Take over at ``target``, which ``ConnectionGiver.offer`` returned."""
        self._target = target
        self._giver = socket.socket(socket.AF_UNIX)
        self._giver.setblocking(False)

    async def take(self, debugpy_token: str | None) -> tuple[socket.socket, msgspec.Raw]:
        """Return the program's connection, and its description.

        Raises:
            NotTaken: the connection is gone.
        """
        try:
            return await asyncio.wait_for(self._take(debugpy_token), _SECONDS)
        except (OSError, asyncio.TimeoutError, TimeoutError) as error:
            self.close()
            raise NotTaken(f"the program's connection was not handed over: {error or 'no answer'}") from None

    async def _take(self, debugpy_token: str | None) -> tuple[socket.socket, msgspec.Raw]:
        loop = asyncio.get_running_loop()
        await loop.sock_connect(self._giver, self._target.path)
        claim = _Claim(self._target.access_token, debugpy_token)
        await loop.sock_sendall(self._giver, msgspec.json.encode(claim) + b"\n")
        text, connected = await self._receive()
        return connected, msgspec.Raw(text)

    async def wait_for_debugpy(self, receive: Callable[[socket.socket], None]) -> None:
        """Call ``receive`` with debugpy's connection if it arrives."""
        try:
            with contextlib.suppress(OSError):
                _, connected = await self._receive()
                receive(connected)
        finally:
            self.close()

    def close(self) -> None:
        """Close the connection."""
        self._giver.close()

    async def _receive(self) -> tuple[bytes, socket.socket]:
        await _until_readable(self._giver)
        text, descriptors, _, _ = socket.recv_fds(self._giver, _LARGEST, 1)
        if not descriptors:
            raise OSError("it is not offered under this token, or was withdrawn")
        return text, socket.socket(fileno=descriptors[0])


async def _until_readable(waiting: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    is_readable: asyncio.Future[None] = loop.create_future()

    def report() -> None:
        if not is_readable.done():
            is_readable.set_result(None)

    loop.add_reader(waiting, report)
    try:
        await is_readable
    finally:
        loop.remove_reader(waiting)
