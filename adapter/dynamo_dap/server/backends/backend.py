"""Connects to a backend: the agent or debugpy, which run in the debugged program and speak DAP.

Runs on the event loop. Lives as long as its connection, which is never longer than the debugged process.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

import msgspec

from dynamo_dap.protocol.requests.contract import ErrorId
from dynamo_dap.protocol.wire.messages import Event, Request, Response
from dynamo_dap.server.backends.ids import ALONE
from dynamo_dap.server.client.loop_connection import LoopConnection

_log = logging.getLogger(__name__)

AGENT, DEBUGPY = "agent", "debugpy"
"""Names of the backends."""

OnEvent = Callable[["Backend", Event], None]
OnClosed = Callable[["Backend", "str | None"], None]


class Backend:
    """One backend. Receives the messages of its connection."""

    takes_cancel = True
    """Whether it knows ``cancel``."""

    def __init__(self, name: str, connection: LoopConnection, on_event: OnEvent, on_closed: OnClosed) -> None:
        """Take over ``connection``. ``name`` distinguishes backends."""
        self.name = name
        self.connection = connection
        self.is_ready = False
        """Whether it takes requests: it sent ``initialized``, and is still connected."""
        self.ids = ALONE
        """Its share of the client's ids."""
        self._on_event = on_event
        self._on_closed = on_closed
        self._is_gone = False
        connection.receiver = self
        if connection.is_closed:  # it may have closed before this object became its receiver
            asyncio.get_running_loop().call_soon(self.on_closed, None)

    def send(self, command: str, arguments: object, on_response: Callable[[Response], None]) -> int:
        """Send a request and return its ``seq`` on this connection."""
        return self.connection.send_request(command, arguments, on_response)

    def forward(self, command: str, arguments: msgspec.Raw, on_response: Callable[[Response], None]) -> int:
        """Forward a client's request; translate its ids and those of the answer."""
        if self.ids is ALONE:
            return self.send(command, arguments, on_response)

        def answered(response: Response) -> None:
            if response.success:
                response = msgspec.structs.replace(response, body=self.ids.to_client(response.body))
            on_response(response)

        return self.send(command, self.ids.to_backend(arguments), answered)

    @property
    def is_gone(self) -> bool:
        """Whether its connection has ended."""
        return self._is_gone

    def on_event(self, event: Event) -> None:
        """Pass an event on."""
        self._on_event(self, event)

    def on_request(self, request: Request) -> None:
        """Refuse: backends send no requests."""
        text = f"the server does not answer requests of the {self.name} ('{request.command}')"
        self.connection.respond_error(request, text, error_id=ErrorId.UNKNOWN_REQUEST)

    def on_invalid_message(self, problem: str) -> None:
        """Log a message that could not be read."""
        _log.error("%s sent an invalid message: %s", self.name, problem)

    def on_closed(self, problem: str | None) -> None:
        """Report the end of its connection, once."""
        if self._is_gone:
            return
        self._is_gone = True
        self.is_ready = False
        self.connection.close()
        self._on_closed(self, problem)
