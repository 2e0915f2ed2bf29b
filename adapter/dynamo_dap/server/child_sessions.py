"""Child processes of the debugged program, each of which becomes a session of its own (DAP ``startDebugging``).

A child connects, shows the token that it found in the invitation's file, and says where it listens for a debugger. The
client is asked to start a session that attaches there; whether that one has the same server does not matter. The child
waits for as long as its connection to us is open. Used on the loop; lives as long as the program's present life.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import msgspec

from dynamo_dap.protocol.connection import RequestFailed
from dynamo_dap.protocol.messages import Event, Request, decode
from dynamo_dap.server.client import Client
from dynamo_dap.server.launching.agent_listener import AgentListener
from dynamo_dap.server.loop_connection import LoopConnection
from dynamo_dap.server.own_folder import make_folder

_log = logging.getLogger(__name__)

_OF_THE_PARENT = frozenset(
    {
        "args",
        "code",
        "connect",
        "console",
        "cwd",
        "env",
        "envFile",
        "host",
        "listen",
        "module",
        "name",
        "noDebug",
        "port",
        "postDebugTask",
        "preLaunchTask",
        "program",
        "request",
        "restart",
        "stopOnEntry",
        "trace",
        "type",
    }
)
"""Attributes of the parent's configuration that say what to debug; the others say how, and hold for its children."""


class _Child(msgspec.Struct, rename="camel"):
    process_id: int
    host: str
    port: int
    access_token: str


class ChildSessions:
    """See the module."""

    def __init__(self, client: Client, given: dict[str, Any]) -> None:
        """``given`` are the client's ``launch`` or ``attach`` arguments."""
        self._client = client
        self._given = given
        self._listener = AgentListener()
        self._children: set[_Waiting] = set()
        self._folder = make_folder()
        self.known: set[int] = set()
        """Process ids of those that came."""
        invitation = {
            "address": self._listener.address,
            "token": self._listener.expect(self._on_arrival, repeatedly=True),
        }
        self.invitation_file = self._folder / "children.json"
        self.invitation_file.touch(mode=0o600)
        self.invitation_file.write_bytes(msgspec.json.encode(invitation))

    def close(self) -> None:
        """Children that come now run undebugged, as do those that wait."""
        self._listener.close()
        self.invitation_file.unlink(missing_ok=True)
        if self._folder.exists():
            self._folder.rmdir()
        for child in list(self._children):
            child.close()

    def _on_arrival(self, connection: LoopConnection, arguments: msgspec.Raw) -> None:
        child = decode(arguments, _Child, "offer of a child process")
        self.known.add(child.process_id)
        waiting = _Waiting(connection, self._children.discard)
        self._children.add(waiting)
        waiting.asking = asyncio.get_running_loop().create_task(self._start(child, waiting))

    async def _start(self, child: _Child, waiting: _Waiting) -> None:
        configuration = {
            **{name: value for name, value in self._given.items() if name not in _OF_THE_PARENT and name[:2] != "__"},
            "name": f"Subprocess {child.process_id}",
            "connect": {"host": child.host, "port": child.port, "accessToken": child.access_token},
        }
        try:
            await self._client.start_debugging(configuration)
        except (RequestFailed, TimeoutError) as error:
            text = f"The child process {child.process_id} runs without debugging: no session was started for it"
            self._client.output(f"{text} ({error}).", "important")
            waiting.close()


class _Waiting:
    """The connection of a child that waits for its session."""

    def __init__(self, connection: LoopConnection, on_closed: Any) -> None:
        self._connection = connection
        self._on_closed = on_closed
        self.asking: asyncio.Task[None] | None = None
        connection.receiver = self

    def close(self) -> None:
        """Let the child run."""
        self._connection.close()
        self._on_closed(self)

    def on_request(self, request: Request) -> None:
        """A child asks nothing more."""

    def on_event(self, event: Event) -> None:
        """A child tells nothing more."""

    def on_invalid_message(self, problem: str) -> None:
        """Log it."""
        _log.error("a child process sent an invalid message: %s", problem)

    def on_closed(self, problem: str | None) -> None:
        """Its session is configured, or it has ended."""
        self.close()
