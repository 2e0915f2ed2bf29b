"""debugpy during one run of the debugged program: waiting for it, starting its session, losing it.

Used on the loop. Made when the session wants ordinary Python debugged; lives as long as its ``Debuggee``. If debugpy
fails, the session goes on without it.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from dynamo_dap.protocol.contract import Invitation
from dynamo_dap.protocol.options import SessionOptions
from dynamo_dap.server.backend_events import BackendEvents
from dynamo_dap.server.client import Client
from dynamo_dap.server.debugpy_backend import DEBUGPY, DebugpyBackend
from dynamo_dap.server.errors import StartRefused
from dynamo_dap.server.ids import DEBUGPY as DEBUGPY_IDS
from dynamo_dap.server.launching.debugpy_listener import DebugpyListener
from dynamo_dap.server.loop_connection import LoopConnection
from dynamo_dap.server.waiting import until_any

_log = logging.getLogger(__name__)

_WITHOUT = "Ordinary Python is not debugged in this session; tracing and generated code are."


class EagerSide:
    """debugpy during one run of the program."""

    def __init__(self, client: Client, events: BackendEvents, given: dict[str, Any]) -> None:
        """``given`` are the client's ``launch`` or ``attach`` arguments."""
        self.backend: DebugpyBackend | None = None
        """Set while debugpy takes requests."""
        self.is_adopted = False
        """Whether it debugged the program before the agent was there."""
        self.left = asyncio.Event()
        """Set when debugpy's connection has ended."""
        self._client = client
        self._events = events
        self._given = given
        self._arrived = asyncio.Event()
        self._coming: DebugpyBackend | None = None
        self._listener = DebugpyListener(self._on_arrival)

    @property
    def invitation(self) -> Invitation:
        """What the program has to be told."""
        return self._listener.invitation

    async def until_here(self, timeout: float, agent_left: asyncio.Event) -> bool:
        """Wait until debugpy is here, or will not come; the user is told why."""
        told = self._events.eager_problem
        await until_any(timeout, self._arrived.wait(), told, agent_left.wait())
        problem = told.result() if told.done() else None
        if problem is None and not agent_left.is_set():
            await until_any(timeout, self._arrived.wait(), agent_left.wait())
        if self._coming is not None:
            return True
        if not agent_left.is_set():
            self._client.output(
                f"{problem or f'debugpy did not connect within {timeout:g} s'}. {_WITHOUT}", "important"
            )
        return False

    async def introduce(self, options: SessionOptions) -> None:
        """Begin the session with debugpy, which is here; the user is told when that fails."""
        assert self._coming is not None, "debugpy is introduced when it is here"
        initialized = self._events.initialized[DEBUGPY]
        try:
            await self._coming.introduce(self._client.initialize_arguments, options, self._given, initialized)
        except StartRefused as refusal:
            self._client.output(f"{refusal.text}. {_WITHOUT}", "important")
            self._coming.connection.close()
        else:
            self.backend = self._coming

    def close(self) -> None:
        """Release everything."""
        self._listener.close()
        if self._coming is not None:
            self._coming.connection.close()

    def _on_arrival(self, connection: LoopConnection, process_id: int, parent_id: int | None) -> None:
        if self._coming is not None:
            _log.warning("a second debugpy (process %d, child of %s) is cut off", process_id, parent_id)
            connection.close()
            return
        self._coming = DebugpyBackend(DEBUGPY, connection, self._events.take, self._on_closed)
        self._coming.ids = DEBUGPY_IDS
        self._arrived.set()

    def _on_closed(self, backend: object, problem: str | None) -> None:
        self.backend = None
        self.left.set()
        if problem is not None:
            _log.error("the connection to debugpy broke: %s", problem)
