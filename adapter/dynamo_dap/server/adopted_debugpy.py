"""Attaching to a program that already listens for debugpy: debugpy's own adapter is the backend for ordinary Python.

The adapter is a process that ``debugpy.listen`` started; it takes clients at the address that the program chose. The
server starts the agent in the program by evaluating code through the adapter's session; the agent then connects to the
server. Used on the loop.
"""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any

import msgspec

from dynamo_dap.protocol.connection import RequestFailed
from dynamo_dap.protocol.contract import ErrorId
from dynamo_dap.protocol.messages import Event, Request, decode
from dynamo_dap.protocol.options import SessionOptions
from dynamo_dap.server.backend import Backend
from dynamo_dap.server.backend_events import BackendEvents
from dynamo_dap.server.client import Client
from dynamo_dap.server.debugpy_backend import DEBUGPY, DebugpyBackend, debugpy_arguments
from dynamo_dap.server.eager_side import EagerSide
from dynamo_dap.server.errors import StartRefused
from dynamo_dap.server.ids import ALONE
from dynamo_dap.server.ids import DEBUGPY as DEBUGPY_IDS
from dynamo_dap.server.loop_connection import LoopConnection
from dynamo_dap.server.waiting import until_any

_log = logging.getLogger(__name__)

_ENTRY = Path(__file__).resolve().parents[1] / "debuggee" / "bootstrap" / "entry.py"
_GREETING_SECONDS = 3.0


class AdoptedDebugpy(EagerSide):
    """debugpy in a program that listened for it before the session, by way of its adapter."""

    def __init__(
        self, client: Client, events: BackendEvents, given: dict[str, Any], connection: LoopConnection
    ) -> None:
        """``connection`` is that to the adapter, which has greeted us."""
        super().__init__(client, events, given)
        self.is_adopted = True
        self._coming = DebugpyBackend(DEBUGPY, connection, self._take, self._on_closed)
        # The session with it begins before the client's.
        self._coming.ids = ALONE
        # The adapter in between gives requests other numbers.
        self._coming.takes_cancel = False
        self._initialized = asyncio.Event()

    def _take(self, backend: Backend, event: Event) -> None:
        if event.event == "initialized":
            self._initialized.set()
        if not event.event.startswith("debugpy") and not _is_telemetry(event):
            self._events.take(backend, event)

    async def bring_agent(self, options: SessionOptions, address: str, token: str) -> None:
        """Begin the session with debugpy, and have the program connect its agent to ``address``.

        Raises:
            StartRefused: debugpy refused, or did not answer in time.
        """
        assert self._coming is not None
        connection, timeout = self._coming.connection, options.launch_timeout
        client = msgspec.structs.replace(
            self._client.initialize_arguments,
            supports_start_debugging_request=False,
            supports_run_in_terminal_request=False,
        )
        refused: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        try:
            await connection.request("initialize", client, timeout=timeout)
            # It is answered only after ``configurationDone``, unless it is refused.
            arguments = {**debugpy_arguments(options, self._given), "subProcess": False}
            connection.send_request("attach", arguments, _refusal_to(refused))
            await until_any(timeout, self._initialized.wait(), refused, self.left.wait())
            if not self._initialized.is_set():
                text = refused.result() if refused.done() else "debugpy's adapter was not ready"
                raise StartRefused(ErrorId.CANNOT_ATTACH, f"the program's debugpy did not accept the debugger: {text}")
            await connection.request("evaluate", _bringing(address, token), timeout=timeout)
        except (RequestFailed, TimeoutError) as error:
            text = f"the debug agent could not be brought into the program: {error}"
            raise StartRefused(ErrorId.CANNOT_ATTACH, text) from None

    async def until_here(self, timeout: float, agent_left: asyncio.Event) -> bool:
        """It was here before us."""
        return not self.left.is_set()

    async def introduce(self, options: SessionOptions) -> None:
        """The session has begun; requests may come."""
        assert self._coming is not None
        self._coming.ids = DEBUGPY_IDS
        self.backend = self._coming


def _bringing(address: str, token: str) -> dict[str, str]:
    load = f"__import__('runpy').run_path({str(_ENTRY)!r}, run_name='dynamo_dap_entry')"
    return {"expression": f"{load}['inject']({address!r}, {token!r})", "context": "repl"}


def _refusal_to(refused: asyncio.Future[str]) -> Any:
    def take(response: Any) -> None:
        if not response.success and not refused.done():
            refused.set_result(response.error_text)

    return take


class _TelemetryBody(msgspec.Struct):
    category: str | None = None
    output: str = ""


def _is_telemetry(event: Event) -> bool:
    return event.event == "output" and decode(event.body, _TelemetryBody, "output event").category == "telemetry"


class Greeted:
    """Receives what an adapter says before it is asked: debugpy's introduces itself."""

    def __init__(self) -> None:
        self.by_debugpy = asyncio.Event()

    def on_request(self, request: Request) -> None:
        """Nobody asks before ``initialize``."""

    def on_event(self, event: Event) -> None:
        """Look for its name."""
        if event.event.startswith("debugpy") or (_is_telemetry(event) and b"debugpy" in bytes(event.body)):
            self.by_debugpy.set()

    def on_invalid_message(self, problem: str) -> None:
        """It is not debugpy."""
        _log.warning("invalid message while waiting for a greeting: %s", problem)

    def on_closed(self, problem: str | None) -> None:
        """It is not debugpy."""


async def is_greeted_by_debugpy(connection: LoopConnection, greeted: Greeted) -> bool:
    """Whether debugpy's adapter is at the other end of ``connection``, whose receiver is ``greeted``."""
    return await until_any(_GREETING_SECONDS, greeted.by_debugpy.wait()) and not connection.is_closed
