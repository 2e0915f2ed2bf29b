"""Connects the server to a program or to another session. Runs on the event loop."""

from __future__ import annotations

import asyncio
import socket

from dynamo_dap.protocol.requests.options import ConnectTarget
from dynamo_dap.protocol.wire.local_sockets import is_local_name, name_of


async def connect_to(target: ConnectTarget) -> socket.socket:
    """Connect to one of the addresses of ``target``. Raises ``OSError`` if none accepts."""
    if is_local_name(target.host):
        return await _connected(name_of(target.host), socket.AF_UNIX)
    problem: OSError | None = None
    found = await asyncio.get_running_loop().getaddrinfo(target.host, target.port, type=socket.SOCK_STREAM)
    for family, kind, protocol, _, address in found:
        try:
            return await _connected(address, family, kind, protocol)
        except OSError as error:
            problem = error
    raise problem or OSError("no address")


async def _connected(address: tuple[object, ...] | str, *form: int) -> socket.socket:
    connecting = socket.socket(*form)
    connecting.setblocking(False)
    try:
        await asyncio.get_running_loop().sock_connect(connecting, address)
    except BaseException:
        connecting.close()
        raise
    return connecting
