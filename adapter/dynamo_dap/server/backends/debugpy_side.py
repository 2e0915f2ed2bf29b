"""Connects to debugpy, the backend for ordinary Python, during one run of the program.

An ``EagerSide`` is made if the session debugs ordinary Python; it lives as long as its ``Debuggee``. The debugpy of a
launched program connects to the server (``launching.listeners``), which speaks to it as debugpy's own adapter does. A
program that called ``debugpy.listen`` already has an adapter, in a process of its own. The server connects to that
adapter, and has it evaluate an expression that loads the agent into the program. If debugpy fails, the session
continues without it. Runs on the event loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import Callable
from typing import Any

import msgspec

from dynamo_dap.protocol.connection import RequestFailed
from dynamo_dap.protocol.requests.contract import ENTRY, TENSOR, WATCHED, ErrorId, Invitation
from dynamo_dap.protocol.requests.options import LaunchArguments, SessionOptions
from dynamo_dap.protocol.texts import shortened
from dynamo_dap.protocol.wire.messages import (
    ErrorBody,
    ErrorMessage,
    Event,
    ProtocolError,
    Response,
    decode,
    encode_body,
)
from dynamo_dap.protocol.wire.types import (
    DataBreakpointInfoArguments,
    DataBreakpointInfoResponseBody,
    InitializeRequestArguments,
)
from dynamo_dap.server.backends.backend import DEBUGPY, Backend
from dynamo_dap.server.backends.backend_events import BackendEvents
from dynamo_dap.server.backends.ids import ALONE
from dynamo_dap.server.backends.ids import DEBUGPY as DEBUGPY_IDS
from dynamo_dap.server.client.errors import RequestRefused, StartRefused
from dynamo_dap.server.client.ide import Client
from dynamo_dap.server.client.loop_connection import HandshakeReceiver, LoopConnection, until_any
from dynamo_dap.server.launching.listeners import DebugpyListener

_OURS = frozenset(
    {
        "accessToken",
        "handedOver",
        "connect",
        "eager",
        "host",
        "listen",
        "meeting",
        "mode",
        "port",
        "console",
        "env",
        "envFile",
    }
)
"""Options that debugpy does not need, among them secrets and addresses."""


class DebugpyBackend(Backend):
    """The connection to debugpy's in-process server."""

    async def introduce(
        self,
        client: InitializeRequestArguments,
        options: SessionOptions,
        given: dict[str, object],
        initialized: asyncio.Event,
    ) -> None:
        """Begin the session: ``given`` are the client's own ``launch`` or ``attach`` arguments.

        Raises:
            StartRefused: debugpy refused, or did not answer in time.
        """
        timeout = options.launch_timeout
        command = "launch" if isinstance(options, LaunchArguments) else "attach"
        try:
            await self.connection.request("initialize", client, timeout=timeout)
            await self.connection.request(command, debugpy_arguments(options, given), timeout=timeout)
        except RequestFailed as failure:
            raise StartRefused(ErrorId.AGENT_REFUSED, f"debugpy in the program refused: {failure}") from None
        except TimeoutError as error:
            raise StartRefused(ErrorId.CONNECT_TIMEOUT, str(error)) from None
        await until_any(timeout, initialized.wait())
        if not initialized.is_set():
            raise StartRefused(ErrorId.CONNECT_TIMEOUT, f"debugpy in the program was not ready within {timeout:g} s")

    def forward(self, command: str, arguments: msgspec.Raw, on_response: Callable[[Response], None]) -> int:
        """Send the client's request. Add the reason to a failed response if debugpy's body has none."""

        def answered(response: Response) -> None:
            on_response(response if response.success else _with_reason(response))

        return super().forward(command, arguments, answered)


_TRACEBACK = "Traceback (most recent call last)"
_UNKNOWN_ID = "Wrong ID sent from the client"


def _with_reason(response: Response) -> Response:
    with contextlib.suppress(ProtocolError):
        error = decode(response.body, ErrorBody, "body of a failure").error
        if error is not None and error.text.strip():
            return response
    reported = (response.message or "").strip()
    if reported.startswith(_UNKNOWN_ID):
        error_id, text = ErrorId.UNKNOWN_REFERENCE, "unknown frame or variable: it may belong to an earlier stop"
    elif _TRACEBACK in reported:
        error_id, text = ErrorId.EVALUATION_FAILED, reported.splitlines()[-1]
    else:
        error_id, text = ErrorId.EVALUATION_FAILED, reported or f"debugpy cannot serve '{response.command}' here"
    text = shortened(text)
    body = ErrorBody(ErrorMessage(error_id, "{text}", variables={"text": text}))
    return msgspec.structs.replace(response, message=text, body=encode_body(body))


def debugpy_arguments(options: SessionOptions, given: dict[str, object]) -> dict[str, object]:
    """Return the arguments of debugpy's ``launch`` or ``attach``."""
    arguments = {name: value for name, value in given.items() if name not in _OURS and not name.startswith("__")}
    arguments["justMyCode"] = options.just_my_code
    # Threads stop one by one, as with the agent. If all stopped, a second thread at a breakpoint would never be
    # reported.
    arguments["stopAllThreadsOnSuspend"] = arguments["steppingResumesAllThreads"] = False
    if isinstance(options, LaunchArguments):
        # The program's output is read from its pipes, or goes to a terminal.
        arguments.pop("redirectOutput", None)
        arguments["isOutputRedirected"] = options.console == "internalConsole"
    return arguments


def given_arguments(raw: msgspec.Raw) -> dict[str, object]:
    """Return the client's arguments as plain values."""
    return {} if bytes(raw) == b"null" else decode(raw, dict[str, Any], "arguments")


def request_for_tensor(arguments: msgspec.Raw) -> tuple[str, msgspec.Raw]:
    """Return the command and arguments of a request to debugpy that carries a ``TENSOR`` request.

    debugpy does not know ``TENSOR``; our code in the program answers it (``debuggee.eager.presentation``). debugpy
    finds the thread by the variables reference of the tensor, or by the frame's id.
    """
    wanted = decode(arguments, dict[str, Any], f"arguments of '{TENSOR}'")
    reference = wanted.get("variablesReference") or wanted.get("frameId")
    if not reference:
        text = f"'{TENSOR}' takes a variables reference, or an expression and a frame"
        raise RequestRefused(ErrorId.INVALID_ARGUMENTS, text)
    # debugpy's adapter translates the id only in this field of a request that it knows.
    nested = {name: value for name, value in wanted.items() if name not in ("variablesReference", "frameId")}
    asked = {"variablesReference": reference, TENSOR: nested}
    return "variables", msgspec.Raw(msgspec.json.encode(asked))


_NOT_WATCHED = encode_body(
    DataBreakpointInfoResponseBody(data_id=None, description="this version of debugpy cannot watch attributes")
)


def ask_whether_watched(arguments: msgspec.Raw) -> tuple[str, msgspec.Raw]:
    """Return the request, and its arguments, that replaces ``dataBreakpointInfo``, which debugpy does not know."""
    asked = decode(arguments, DataBreakpointInfoArguments, "arguments of 'dataBreakpointInfo'")
    reference = asked.variables_reference or asked.frame_id
    return "variables", msgspec.Raw(msgspec.json.encode({"variablesReference": reference, WATCHED: asked.name}))


class _WhetherWatched(msgspec.Struct):
    watched: msgspec.Raw = msgspec.field(default=msgspec.Raw(), name=WATCHED)


def whether_watched(response: Response) -> Response:
    """Make the answer to ``dataBreakpointInfo`` from debugpy's answer to the request of ``ask_whether_watched``."""
    found = decode(response.body, _WhetherWatched, "body of 'dataBreakpointInfo'")
    return msgspec.structs.replace(response, body=found.watched if bytes(found.watched) else _NOT_WATCHED)


class _TensorBody(msgspec.Struct):
    tensor: msgspec.Raw = msgspec.field(default=msgspec.Raw(), name=TENSOR)
    problem: str | None = None


def answer_about_tensor(response: Response) -> Response:
    """Convert debugpy's answer to ``request_for_tensor``'s request into the answer to ``TENSOR``."""
    found = decode(response.body, _TensorBody, f"body of '{TENSOR}'")
    if bytes(found.tensor):
        return msgspec.structs.replace(response, body=found.tensor)
    problem = found.problem or "this version of debugpy cannot show tensors"
    error = {"error": {"id": ErrorId.EVALUATION_FAILED, "format": problem}}
    return msgspec.structs.replace(response, success=False, message=problem, body=encode_body(error))


_log = logging.getLogger(__name__)

_WITHOUT = "This session debugs tracing and generated code, but not ordinary Python."


class EagerSide:
    """debugpy during one run of the program."""

    def __init__(self, client: Client, events: BackendEvents, given: dict[str, object]) -> None:
        """Take ``given``, the client's ``launch`` or ``attach`` arguments."""
        self.backend: DebugpyBackend | None = None
        """Set while debugpy takes requests."""
        self.is_adopted = False
        """Whether debugpy debugged the program before the agent existed."""
        self.uses_agents_address = False
        """Whether debugpy connects to the address to which the agent connected, perhaps from another machine."""
        self.left = asyncio.Event()
        """Set when debugpy's connection has ended."""
        self.has_terminated = False
        """Whether debugpy sent ``terminated``."""
        self._client = client
        self._events = events
        self._given = given
        self._arrived = asyncio.Event()
        self._coming: DebugpyBackend | None = None
        self._listener = DebugpyListener(self._on_accepted)

    @property
    def invitation(self) -> Invitation:
        """The address that debugpy connects to, and its token."""
        invitation = self._listener.invitation
        return Invitation("", invitation.token) if self.uses_agents_address else invitation

    def receive(self, connected: socket.socket) -> None:
        """Take debugpy's connection, which arrived at another listener."""
        self._listener.receive(connected)

    async def wait_until_connected(self, timeout: float, agent_left: asyncio.Event) -> bool:
        """Wait until debugpy is connected, and return whether it is. Show the user why it is not."""
        reported = self._events.eager_problem
        await until_any(timeout, self._arrived.wait(), reported, agent_left.wait())
        problem = reported.result() if reported.done() else None
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
        """Begin the session with the connected debugpy, and report a failure to the user."""
        assert self._coming is not None, "introduce() was called before debugpy connected"
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

    def _on_accepted(self, connection: LoopConnection, process_id: int, parent_id: int | None) -> None:
        if self._coming is not None:
            _log.warning("a second debugpy (process %d, child of %s) is cut off", process_id, parent_id)
            connection.close()
            return
        self._coming = DebugpyBackend(DEBUGPY, connection, self._take, self._on_closed)
        self._coming.ids = DEBUGPY_IDS
        self._arrived.set()

    def _take(self, backend: Backend, event: Event) -> None:
        self._events.take(backend, event)
        if event.event == "terminated":
            # debugpy sends no further event. Close the connection: until then, or its timeout, the program cannot end.
            self.has_terminated = True
            backend.connection.close()

    def _on_closed(self, backend: object, problem: str | None) -> None:
        self.backend = None
        self.left.set()
        if problem is not None:
            _log.error("the connection to debugpy broke: %s", problem)


_GREETING_SECONDS = 3.0


class AdoptedDebugpy(EagerSide):
    """A debugpy that the program started before the session; the server reaches it through its adapter."""

    def __init__(
        self, client: Client, events: BackendEvents, given: dict[str, object], connection: LoopConnection
    ) -> None:
        """Take ``connection`` to debugpy's adapter, after the adapter's first events."""
        super().__init__(client, events, given)
        self.is_adopted = True
        self._coming = DebugpyBackend(DEBUGPY, connection, self._take, self._on_closed)
        # Ids are translated only after the client's session has begun.
        self._coming.ids = ALONE
        # The adapter gives requests new numbers before it passes them on, so debugpy does not know ours.
        self._coming.takes_cancel = False
        self._initialized = asyncio.Event()

    def _take(self, backend: Backend, event: Event) -> None:
        if event.event == "initialized":
            self._initialized.set()
        if not event.event.startswith("debugpy") and not _is_telemetry(event):
            self._events.take(backend, event)

    async def inject_agent(self, options: SessionOptions, address: str, token: str) -> None:
        """Begin the session with debugpy, and make the program connect its agent to ``address``.

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
            # debugpy answers ``attach`` only after ``configurationDone``, unless it refuses.
            arguments = {**debugpy_arguments(options, self._given), "subProcess": False}
            connection.send_request("attach", arguments, _refusal_to(refused))
            await until_any(timeout, self._initialized.wait(), refused, self.left.wait())
            if not self._initialized.is_set():
                text = refused.result() if refused.done() else "debugpy's adapter was not ready"
                raise StartRefused(ErrorId.CANNOT_ATTACH, f"the program's debugpy did not accept the debugger: {text}")
            await connection.request("evaluate", _injection(address, token), timeout=timeout)
        except (RequestFailed, TimeoutError) as error:
            text = f"the debug agent could not be loaded into the program: {error}"
            raise StartRefused(ErrorId.CANNOT_ATTACH, text) from None

    async def wait_until_connected(self, timeout: float, agent_left: asyncio.Event) -> bool:
        """Return whether debugpy is still connected, as it was before this session."""
        return not self.left.is_set()

    async def introduce(self, options: SessionOptions) -> None:
        """Pass requests to debugpy from now on."""
        assert self._coming is not None
        self._coming.ids = DEBUGPY_IDS
        self.backend = self._coming


def _injection(address: str, token: str) -> dict[str, str]:
    load = f"__import__('runpy').run_path({ENTRY!r}, run_name='dynamo_dap_entry')"
    return {"expression": f"{load}['inject']({address!r}, {token!r})", "context": "repl"}


def _refusal_to(refused: asyncio.Future[str]) -> Callable[[Response], None]:
    def take(response: Response) -> None:
        if not response.success and not refused.done():
            refused.set_result(response.error_text)

    return take


class _TelemetryBody(msgspec.Struct):
    category: str | None = None
    output: str = ""


def _is_telemetry(event: Event) -> bool:
    return event.event == "output" and decode(event.body, _TelemetryBody, "output event").category == "telemetry"


class Greeted(HandshakeReceiver):
    """Receives an adapter's first events, which show whether it is debugpy's."""

    def __init__(self) -> None:
        super().__init__("debugpy's adapter")
        self.by_debugpy = asyncio.Event()

    def on_event(self, event: Event) -> None:
        """Look for debugpy's name."""
        if event.event.startswith("debugpy") or (_is_telemetry(event) and b"debugpy" in bytes(event.body)):
            self.by_debugpy.set()


async def is_greeted_by_debugpy(connection: LoopConnection, greeted: Greeted) -> bool:
    """Return whether debugpy's adapter is at the other end of ``connection``; ``greeted`` receives its events."""
    return await until_any(_GREETING_SECONDS, greeted.by_debugpy.wait()) and not connection.is_closed
