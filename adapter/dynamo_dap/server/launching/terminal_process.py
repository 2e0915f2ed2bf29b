"""Runs a debugged program in a terminal of the IDE (consoles ``integratedTerminal`` and ``externalTerminal``).

The IDE runs ``supervisor.py`` there, which starts the program and reports over its own connection. Runs on the event
loop; lives as long as that connection.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from dynamo_dap.protocol.connection import RequestFailed
from dynamo_dap.protocol.requests.contract import ErrorId, TerminalStarted
from dynamo_dap.protocol.wire.messages import Event, Request, decode
from dynamo_dap.protocol.wire.types import ExitedEventBody, RunInTerminalRequestArguments
from dynamo_dap.server.client.errors import StartRefused
from dynamo_dap.server.client.ide import Client
from dynamo_dap.server.client.loop_connection import LoopConnection
from dynamo_dap.server.launching.listeners import AgentListener
from dynamo_dap.server.launching.program import Changes

_log = logging.getLogger(__name__)

_SUPERVISOR = Path(__file__).resolve().parents[1] / "sessions" / "supervisor.py"


@dataclass(frozen=True)
class TerminalCommand:
    """A command, and the kind of terminal to run it in."""

    command: Sequence[str]
    cwd: Path
    environment_changes: Changes
    console: str
    title: str


class TerminalProcess:
    """Runs the program in a terminal of the editor (``OwnedProcess``), through the supervisor there."""

    recent_errors = ""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self.exited: asyncio.Future[int | None] = loop.create_future()
        self._arrived: asyncio.Future[TerminalStarted] = loop.create_future()
        self._supervisor: LoopConnection | None = None

    async def start(self, what: TerminalCommand, client: Client, listener: AgentListener, timeout: float) -> None:
        """Make ``client`` run the supervisor, and wait until it has started the program.

        Raises:
            StartRefused: the client has no terminal, or the program did not start within ``timeout`` seconds.
        """
        if not client.has_terminal:
            text = f'"console": "{what.console}" needs an IDE that supports runInTerminal; use "internalConsole"'
            raise StartRefused(ErrorId.TERMINAL_UNSUPPORTED, text)
        job = _write_job(what, listener.address, listener.expect(self._on_accepted))
        try:
            await self._run(what, client, job)
            started = await asyncio.wait_for(self._arrived, timeout)
        except asyncio.TimeoutError:
            text = f"the terminal did not start the program within {timeout:g} s ({_SUPERVISOR.name} did not connect)"
            raise StartRefused(ErrorId.CONNECT_TIMEOUT, text) from None
        finally:
            with contextlib.suppress(FileNotFoundError):
                job.unlink()
        if started.problem is not None:
            raise StartRefused(ErrorId.CANNOT_START, started.problem)
        _log.info("process %s was started in a terminal", started.process_id)

    async def _run(self, what: TerminalCommand, client: Client, job: Path) -> None:
        kind = "external" if what.console == "externalTerminal" else "integrated"
        arguments = RunInTerminalRequestArguments(
            cwd=str(what.cwd), args=[sys.executable, "-I", str(_SUPERVISOR), str(job)], kind=kind, title=what.title
        )
        try:
            await client.run_in_terminal(arguments)
        except (RequestFailed, TimeoutError) as error:
            raise StartRefused(ErrorId.TERMINAL_FAILED, f"the IDE could not open a terminal: {error}") from None

    def flush_output(self, *, whole_lines: bool) -> None:
        """Do nothing: the output goes to the terminal."""

    def terminate(self) -> None:
        """Send SIGTERM to the program's group."""
        self._report("terminate")

    def kill(self) -> None:
        """Send SIGKILL to the program's group."""
        self._report("disconnect", {"terminateDebuggee": True})

    def detach(self) -> None:
        """Detach; the supervisor owns the terminal, and stays until the program ends."""
        self._report("disconnect", {"terminateDebuggee": False})

    def close(self) -> None:
        """Close the connection: the supervisor kills a process that is not detached."""
        if self._supervisor is not None:
            self._supervisor.close()
        self._end(None)

    def on_request(self, request: Request) -> None:
        """Refuse: a supervisor sends no requests."""
        if self._supervisor is not None:
            self._supervisor.respond_error(request, "the server answers nothing", error_id=ErrorId.UNKNOWN_REQUEST)

    def on_event(self, event: Event) -> None:
        """Take the exit code."""
        if event.event == "exited":
            self._end(decode(event.body, ExitedEventBody, "exited event").exit_code)

    def on_invalid_message(self, problem: str) -> None:
        """Log the problem."""
        _log.error("the supervisor sent an invalid message: %s", problem)

    def on_closed(self, problem: str | None) -> None:
        """Close: without the supervisor the program's state is unknown."""
        self.close()

    def _on_accepted(self, connection: LoopConnection, arguments: msgspec.Raw) -> None:
        self._supervisor = connection
        connection.receiver = self
        if not self._arrived.done():
            self._arrived.set_result(decode(arguments, TerminalStarted, "what the supervisor started"))

    def _report(self, command: str, arguments: object = None) -> None:
        if self._supervisor is not None:
            self._supervisor.send_request(command, arguments, lambda response: None)

    def _end(self, exit_code: int | None) -> None:
        if not self.exited.done():
            self.exited.set_result(exit_code)


def _write_job(what: TerminalCommand, address: str, token: str) -> Path:
    """Write the supervisor's job to a file that only the user can read: other users could see a command line."""
    job = {
        "address": address,
        "token": token,
        "path": sys.path,
        "command": list(what.command),
        "cwd": str(what.cwd),
        "environment": what.environment_changes,
    }
    descriptor, name = tempfile.mkstemp(prefix="dynamo-dap-", suffix=".json")
    with os.fdopen(descriptor, "wb") as file:
        file.write(msgspec.json.encode(job))
    return Path(name)
