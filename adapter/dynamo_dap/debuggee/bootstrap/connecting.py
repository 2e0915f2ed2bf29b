"""``dynamo_dap.connect``: a program that was started without the debugger connects to a server that waits for it.

Any thread of the program. The program outlives the debugger.
"""

from __future__ import annotations

import socket

from dynamo_dap.debuggee.agent.serving import AgentReceiver
from dynamo_dap.debuggee.bootstrap.process_agent import process_agent, process_information
from dynamo_dap.protocol.access_tokens import read_token_file
from dynamo_dap.protocol.connection import Connection, RequestFailed
from dynamo_dap.protocol.contract import AUTHORIZE, introduction
from dynamo_dap.protocol.streams import SocketStream

_SECONDS = 20.0


def connect(address: tuple[str, int] | int, *, access_token: str | None = None) -> None:
    """Connect to a debug server that waits at ``address``: its ``attach`` request had ``"listen": {...}``.

    Nothing when this process has a debugger already. ``access_token`` is the server's; one that it made up itself is
    found where it left it for programs of its user.

    Raises:
        PermissionError: there is no token for that address, or the server does not want this one.
        OSError: nobody listens there.
    """
    host, port = ("127.0.0.1", address) if isinstance(address, int) else address
    agent = process_agent()
    if agent.client is not None:
        return
    token = access_token or read_token_file(host, port)
    if token is None:
        raise PermissionError(
            f"no access token for {host}:{port}: no debug server of yours waits there; "
            "give connect() the access_token of one that has its own"
        )
    connection = Connection(SocketStream(socket.create_connection((host, port), timeout=_SECONDS)), "server")
    agent.attach_client(connection)
    connection.start(AgentReceiver(connection, agent))
    try:
        connection.request(AUTHORIZE, introduction(token, process_information()), timeout=_SECONDS)
    except (RequestFailed, TimeoutError) as error:
        agent.detach_client()
        raise PermissionError(f"the debug server at {host}:{port} refused this program: {error}") from None
