"""Connects the debugger's own processes on one machine.

On Linux the processes use sockets in the abstract namespace, because a remote window of VS Code offers to forward each
port on which a process of the user listens. Elsewhere they use ports of 127.0.0.1. Every process of the machine can
connect to either kind, so both ends use tokens. The address of an abstract socket also has a host and a port: the host
is ``@NAME``, the port is always 1. Any thread may call its functions.
"""

from __future__ import annotations

import contextlib
import secrets
import socket
import sys

_MARK = "@"
_PORT_OF_NAMES = 1
_MOST_WAITING = 4096
"""Connections that may wait, as all ranks of a job may connect at once: a full queue refuses more. Linux limits it."""


def listen_locally() -> socket.socket:
    """Listen where only this machine's processes can connect. Raises ``OSError``."""
    if sys.platform == "linux":
        listening = socket.socket(socket.AF_UNIX)
        with contextlib.suppress(OSError):  # a sandbox may forbid it
            listening.bind(f"\0dynamo-dap-{secrets.token_hex(8)}")
            listening.listen(_MOST_WAITING)
            return listening
        listening.close()
    return socket.create_server(("127.0.0.1", 0))


def address_of(listening: socket.socket) -> tuple[str, int]:
    """Return the host and the port of a listening socket."""
    name = listening.getsockname()
    if isinstance(name, bytes):
        return _MARK + name[1:].decode(), _PORT_OF_NAMES
    return str(name[0]), int(name[1])


def is_local_name(host: str) -> bool:
    """Return whether ``host`` names an abstract socket."""
    return host.startswith(_MARK)


def name_of(host: str) -> str:
    """Return the address that ``connect`` of an ``AF_UNIX`` socket takes."""
    return "\0" + host.removeprefix(_MARK)


def connect_locally(host: str, port: int, timeout: float | None) -> socket.socket:
    """Connect to an address of ``address_of``, or to any host and port. Raises ``OSError``."""
    if not is_local_name(host):
        return socket.create_connection((host, port), timeout=timeout)
    connected = socket.socket(socket.AF_UNIX)
    try:
        connected.settimeout(timeout)
        connected.connect(name_of(host))
    except BaseException:
        connected.close()
        raise
    return connected
