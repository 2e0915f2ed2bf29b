"""The loopback socket to which debugpy in the debugged program connects, and its child processes' debugpy after it.

pydevd waits to be asked before it sends the token that the program was given. Used on the loop; lives as long as one
run of the program.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import secrets
import socket
from collections.abc import Callable

import msgspec

from dynamo_dap.protocol.connection import RequestFailed
from dynamo_dap.protocol.contract import Invitation
from dynamo_dap.protocol.messages import Event, ProtocolError, Request, decode
from dynamo_dap.protocol.streams import SocketStream
from dynamo_dap.server.loop_connection import LoopConnection
from dynamo_dap.server.strangers import Strangers, connections_to

_log = logging.getLogger(__name__)

_HANDSHAKE_TIMEOUT = 10.0


class _Authorization(msgspec.Struct, rename="camel"):
    client_access_token: str | None = None


class _Process(msgspec.Struct):
    pid: int
    ppid: int | None = None


class _SystemInfo(msgspec.Struct):
    process: _Process


OnArrival = Callable[[LoopConnection, int, "int | None"], None]
"""Gets an authorised connection, the id of its process, and of that one's parent."""


class DebugpyListener:
    """Listens on 127.0.0.1, on a free port."""

    def __init__(self, on_arrival: OnArrival) -> None:
        self._on_arrival = on_arrival
        self._socket = socket.create_server(("127.0.0.1", 0))
        self._token = secrets.token_urlsafe(32)
        self._strangers = Strangers()
        self._accepting = asyncio.get_running_loop().create_task(self._accept())

    @property
    def invitation(self) -> Invitation:
        """What the program has to be told."""
        host, port = self._socket.getsockname()
        return Invitation(f"{host}:{port}", self._token)

    def close(self) -> None:
        """Stop listening; newcomers that have not been recognised are cut off."""
        self._accepting.cancel()
        self._socket.close()
        self._strangers.close()

    async def _accept(self) -> None:
        async for connected in connections_to(self._socket):
            try:
                connection = LoopConnection(SocketStream(connected), "debugpy", _Quiet(), is_trusted=False)
            except (OSError, RuntimeError) as error:  # it is gone already, or no thread can be started for it
                _log.warning("a newcomer on debugpy's port is lost: %s", error)
                connected.close()
                continue
            self._begin_handshake(connection)

    def _begin_handshake(self, connection: LoopConnection) -> None:
        handshake = asyncio.get_running_loop().create_task(self._recognise(connection))

        def cut_off() -> None:
            handshake.cancel()
            connection.close()  # the handshake may not have begun, and then it never does

        self._strangers.admit(cut_off)
        handshake.add_done_callback(lambda _: self._strangers.forget(cut_off))

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
            _log.warning("a newcomer on debugpy's port was not recognised: %s", error)
            connection.close()
        except BaseException:
            connection.close()
            raise
        else:
            self._on_arrival(connection, process.pid, process.ppid)


class _Quiet:
    """Receives until the connection has an owner: what is said before is about pydevd's own start."""

    def on_request(self, request: Request) -> None:
        _log.warning("debugpy asks '%s' before the handshake", request.command)

    def on_event(self, event: Event) -> None:
        _log.debug("debugpy says '%s' before the handshake", event.event)

    def on_invalid_message(self, problem: str) -> None:
        _log.warning("debugpy sent an invalid message: %s", problem)

    def on_closed(self, problem: str | None) -> None:
        """The request in progress fails, which says it all."""
