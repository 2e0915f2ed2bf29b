"""Represents the IDE in a session: its capabilities, and messages to it.

Runs on the event loop; one per IDE connection.
"""

from __future__ import annotations

import logging

import msgspec

from dynamo_dap.protocol.connection import Receiver
from dynamo_dap.protocol.requests.contract import (
    COMPILES,
    COMPILES_CHANGED_EVENT,
    LOGGED_EVENT,
    MISSED_EVENT,
    TERMINAL,
    VS_CODE,
    WHAT_IF_EVENT,
)
from dynamo_dap.protocol.texts import without_links
from dynamo_dap.protocol.wire.messages import ErrorBody, ErrorMessage, Request, Response, decode, encode_body
from dynamo_dap.protocol.wire.streams import ByteStream
from dynamo_dap.protocol.wire.types import (
    Capabilities,
    CapabilitiesEventBody,
    ExitedEventBody,
    InitializeRequestArguments,
    OutputEventBody,
    RunInTerminalRequestArguments,
    RunInTerminalResponseBody,
    StartDebuggingRequestArguments,
)
from dynamo_dap.server.client.dialect import Dialect
from dynamo_dap.server.client.errors import RequestRefused
from dynamo_dap.server.client.loop_connection import LoopConnection

_log = logging.getLogger(__name__)

_TERMINAL_TIMEOUT = 60.0
"""Seconds for the IDE to open a terminal; some ask the user first."""
_SESSION_TIMEOUT = 60.0
"""Seconds for the IDE to start a session for a child process."""

_NOTIFIED = "important"
"""The output category that VS Code also shows as a notification, where Markdown links can run commands."""

_EVENTS = frozenset(
    {
        "breakpoint",
        "capabilities",
        "continued",
        "exited",
        "initialized",
        "loadedSource",
        "module",
        "output",
        "process",
        "stopped",
        "terminated",
        "thread",
    }
)
"""Events that every client knows. Some clients end the session at an unknown event."""
_PROGRESS_EVENTS = frozenset({"progressStart", "progressUpdate", "progressEnd"})


class Client:
    """The IDE's end of the session."""

    def __init__(self, stream: ByteStream, receiver: Receiver, *, is_trusted: bool) -> None:
        self._connection = LoopConnection(stream, "IDE", receiver, is_trusted=is_trusted)
        self._information: InitializeRequestArguments | None = None
        self._dialect = Dialect()
        self._follows_compiles = False
        """Whether the client has requested compiles, and so knows the event about new ones."""
        self._offers_step_back: bool | None = None
        """Whether a stop has allowed steps back; None before the first stop. ``initialize`` announces them."""

    def trust(self) -> None:
        """Accept large messages: the client has shown the access token."""
        self._connection.trust()

    def introduce(self, arguments: InitializeRequestArguments) -> None:
        """Remember the client's capabilities."""
        self._information = arguments
        self._dialect = Dialect.of(arguments)

    @property
    def initialize_arguments(self) -> InitializeRequestArguments:
        """The client's ``initialize`` arguments for backends; places are translated for them."""
        assert self._information is not None, "nothing is started before 'initialize'"
        return msgspec.structs.replace(
            self._information, lines_start_at1=True, columns_start_at1=True, path_format="path"
        )

    def take(self, request: Request) -> Request:
        """Note what ``request`` says about the client; return it with places in the backends' form."""
        self._follows_compiles = self._follows_compiles or request.command == COMPILES
        if self._dialect.is_common:
            return request
        return Request(request.seq, request.command, self._dialect.to_backend(request.arguments))

    @property
    def is_introduced(self) -> bool:
        """Whether ``initialize`` was received."""
        return self._information is not None

    @property
    def has_terminal(self) -> bool:
        """Whether the client takes ``runInTerminal`` requests."""
        return self._information is not None and bool(self._information.supports_run_in_terminal_request)

    async def run_in_terminal(self, arguments: RunInTerminalRequestArguments) -> RunInTerminalResponseBody:
        """Make the client run a command in its terminal. Raises ``RequestFailed``, ``TimeoutError``."""
        body = await self._connection.request("runInTerminal", arguments, timeout=_TERMINAL_TIMEOUT)
        return decode(body, RunInTerminalResponseBody, "response to runInTerminal")

    @property
    def has_child_sessions(self) -> bool:
        """Whether the client takes ``startDebugging`` requests."""
        return self._information is not None and bool(self._information.supports_start_debugging_request)

    async def start_debugging(self, configuration: dict[str, object]) -> None:
        """Make the client start another session that attaches. Raises ``RequestFailed``, ``TimeoutError``."""
        arguments = StartDebuggingRequestArguments(configuration=configuration, request="attach")
        await self._connection.request("startDebugging", arguments, timeout=_SESSION_TIMEOUT)

    def output(self, text: str, category: str = "console") -> None:
        """Show ``text``, one or more lines; ``category`` is DAP's, such as ``important``."""
        text = text if text.endswith("\n") else text + "\n"
        body = OutputEventBody(output=without_links(text) if category == _NOTIFIED else text, category=category)
        self._connection.send_event("output", body)

    def program_output(self, text: str, category: str) -> None:
        """Pass on the program's output unchanged."""
        self._connection.send_event("output", OutputEventBody(output=text, category=category), is_private=True)

    def event(self, name: str, body: object = None) -> None:
        """Send an event if the client supports it."""
        if not self._knows(name):
            _log.debug("the client does not know the event %s", name)
            return
        body = self._dialect.to_client(body)
        self._connection.send_event(name, _notified(body) if name == "output" else body)

    def stops(self, *, steps_back: bool) -> None:
        """Prepare the client for a stop. Until a stop allows steps back, report whether this one does.

        From then on, VS Code keeps its two buttons for steps back. If the buttons came and went with each step into and
        out of a trace, the others would move under the mouse: a second click on Step Over would continue.
        """
        if self._offers_step_back or steps_back is self._offers_step_back:
            return
        if not (steps_back and self._offers_step_back is None):
            self.event("capabilities", CapabilitiesEventBody(Capabilities(supports_step_back=steps_back)))
        self._offers_step_back = steps_back

    def _knows(self, event: str) -> bool:
        if event == COMPILES_CHANGED_EVENT:
            return self._follows_compiles
        information = self._information
        if event in _PROGRESS_EVENTS:
            return information is not None and bool(information.supports_progress_reporting)
        if event in (LOGGED_EVENT, WHAT_IF_EVENT):
            return information is not None and information.client_id == VS_CODE
        if event == MISSED_EVENT:
            return information is not None and information.client_id in (VS_CODE, TERMINAL)
        if event == "invalidated":
            return information is not None and bool(information.supports_invalidated_event)
        if event == "memory":
            return information is not None and bool(information.supports_memory_event)
        return event in _EVENTS

    def exited(self, exit_code: int) -> None:
        """Report the program's exit code."""
        self._connection.send_event("exited", ExitedEventBody(exit_code=exit_code))

    def respond(self, request: Request, body: object = None) -> None:
        """Answer with success."""
        self._connection.respond(request, self._dialect.to_client(body))

    def refuse(self, request: Request, refusal: RequestRefused) -> None:
        """Answer with a failure."""
        self._connection.respond_error(
            request,
            without_links(refusal.text) if refusal.show_user else refusal.text,
            error_id=refusal.error_id,
            message=refusal.message,
            show_user=refusal.show_user,
        )

    def forward_response(self, request: Request, response: Response) -> None:
        """Pass on a backend's answer."""
        if not self._dialect.is_common and response.success:
            self.respond(request, response.body)
            return
        self._connection.forward_response(request, response if response.success else _as_a_failure(response))

    @property
    def is_gone(self) -> bool:
        """Whether the connection has ended."""
        return self._connection.is_closed

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()


class _Category(msgspec.Struct):
    category: str | None = None


def _notified(body: object) -> object:
    """Return the body of a program's ``output`` event, without links if the client shows a notification."""
    raw = encode_body(body)
    try:
        if msgspec.json.decode(raw, type=_Category).category != _NOTIFIED:
            return raw
        fields: dict[str, object] = msgspec.json.decode(raw)
    except msgspec.MsgspecError:
        return raw  # malformed, so the client finds no category in it either
    return {**fields, "output": without_links(str(fields.get("output", "")))}


def _as_a_failure(response: Response) -> Response:
    """Return a program's failure without links: the client may show it as a notification."""
    try:
        error = msgspec.json.decode(response.body, type=ErrorBody).error
    except msgspec.MsgspecError:
        return response
    if error is None or not (error.show_user or error.url):
        return response
    text = without_links(error.text)
    shown = ErrorMessage(id=error.id, format="{text}", variables={"text": text}, show_user=error.show_user)
    return msgspec.structs.replace(response, body=encode_body(ErrorBody(error=shown)))
