"""Shares one debug session between the assistant, which owns it, and the editor, whose user watches.

Both see every stop, and both may step. The assistant launches or attaches. Either may end the session. Their
breakpoints form one list. When one of them continues the program, the other gets an event.

The reader threads of the three connections call a ``SharedSession``, which has one lock. It lives as long as the debug
session.
"""

from __future__ import annotations

import socket
import threading
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec

from dynamo_dap.assistants.editor import EditorStream
from dynamo_dap.assistants.shared_breakpoints import ARGUMENTS, LISTS, Asked, SharedBreakpoints
from dynamo_dap.protocol.connection import Connection
from dynamo_dap.protocol.wire.messages import Event, ProtocolError, Request, Response, decode, to_builtins
from dynamo_dap.protocol.wire.streams import ByteStream, SocketStream
from dynamo_dap.protocol.wire.types import ContinuedEventBody, OutputEventBody
from dynamo_dap.terminal.client import Server, ServerProcess

_PATIENCE = 20.0
"""Seconds for an editor to send ``initialize``, and to send its breakpoints."""
_LEAVE_SECONDS = 2.0
_RESUMING = ("continue", "next", "stepIn", "stepOut", "stepBack", "reverseContinue")
_ENDED_BY_USER = "The user has ended the session in the editor.\n"

Change = Callable[[Response], Response]


class _Client:
    """One of the two clients."""

    def __init__(self, session: SharedSession, stream: ByteStream, name: str) -> None:
        self._session = session
        self.connection = Connection(stream, name)
        self.is_introduced = False
        self.is_configured = False
        self.stopped: set[int] = set()
        """The threads that the client considers stopped."""
        self.gone = threading.Event()

    def start(self) -> None:
        self.connection.start(self)

    def event(self, name: str, body: object) -> None:
        if self.is_introduced:
            self.connection.send_event(name, body)

    def on_request(self, request: Request) -> None:
        self._session.take(self, request)

    def on_event(self, event: Event) -> None:
        """Ignore the event: clients send none."""

    def on_invalid_message(self, problem: str) -> None:
        """Do nothing: the connection has answered the message."""

    def on_closed(self, problem: str | None) -> None:
        self.gone.set()
        self._session.left(self)


class SharedSession:
    """The session, and the server's process."""

    def __init__(self, editor: socket.socket) -> None:
        """Start the server, and wait until the connected ``editor`` has sent ``initialize`` or was too slow."""
        ours, theirs = socket.socketpair()
        self.stream: ByteStream = SocketStream(theirs)
        self._lock = threading.RLock()
        self._process: Server = ServerProcess()
        self._server = Connection(self._process.stream, "server")
        self._assistant = _Client(self, SocketStream(ours), "assistant")
        self._editor = _Client(self, EditorStream(editor), "editor")
        self._breakpoints = SharedBreakpoints()
        self._sent: dict[tuple[_Client, int], int] = {}
        """The number of each unanswered request on the server's connection."""
        self._stops: Counter[int] = Counter()
        """How often each thread has stopped."""
        self._introduction: Response | None = None
        self._introduced = threading.Event()
        self._waiting: Request | None = None
        """The assistant's ``configurationDone``, until the editor has sent its own."""
        self._is_over = False
        self._server.start(self)
        self._editor.start()
        if not self._introduced.wait(_PATIENCE):
            self._editor.connection.close()
        self._assistant.start()

    def end(self, grace: float = 5.0) -> None:
        """End the session for both, and the server."""
        with self._lock:
            self._report_over(self._editor)
        # VS Code disconnects when it gets the end of the session.
        self._editor.gone.wait(_LEAVE_SECONDS)
        for client in (self._editor, self._assistant):
            client.connection.close()
        self._process.end(grace)

    # -- what clients ask --------------------------------------------------------------------------------------------

    def take(self, client: _Client, request: Request) -> None:
        """Answer a request of one client, or pass it to the server."""
        with self._lock:
            try:
                self._take(client, request)
            except (ProtocolError, AttributeError, TypeError, ValueError):
                # The arguments are invalid. Nothing was sent yet, and the server reports what is wrong.
                self._forward(client, request)

    def _take(self, client: _Client, request: Request) -> None:
        if request.command == "initialize":
            self._introduce(client, request)
        elif client is self._editor and request.command in ("launch", "attach"):
            client.connection.respond(request)
        elif client is self._editor and request.command == "disconnect":
            self._leave(request)
        elif request.command == "configurationDone":
            self._configured(client, request)
        elif request.command == "cancel":
            self._cancel(client, request)
        elif request.command in LISTS:
            self._set(client, request)
        elif request.command in _RESUMING:
            self._resume(client, request)
        else:
            self._forward(client, request)

    def left(self, client: _Client) -> None:
        """Continue the session without one of the clients."""
        with self._lock:
            client.is_configured = True
            if client is self._assistant:
                self._server.close()
                return
            self._introduced.set()
            self._begin_if_configured()
            for command, asked, arguments in self._breakpoints.gone(client):
                self._server.send_request(command, arguments, partial(self._breakpoints_changed, asked))

    def _introduce(self, client: _Client, request: Request) -> None:
        arguments = to_builtins(request.arguments)
        if client is self._assistant and self._introduction is not None:
            client.is_introduced = True
            client.connection.forward_response(request, self._introduction)
            return
        # An assistant's programs get no terminals and no child sessions, which would outlive the assistant.
        arguments |= {"supportsRunInTerminalRequest": False, "supportsStartDebuggingRequest": False}

        def introduced(response: Response) -> Response:
            self._introduction = response
            client.is_introduced = True
            self._introduced.set()
            return response

        self._forward(client, request, arguments, introduced)

    def _leave(self, request: Request) -> None:
        """End the session for the user, or confirm an announced end."""
        if self._is_over or self._server.is_closed:
            self._editor.connection.respond(request)
            self._editor.connection.close()
            return
        self._assistant.event("output", OutputEventBody(output=_ENDED_BY_USER, category="console"))

        def ended(response: Response) -> Response:
            self._is_over = True
            self._assistant.event("terminated", {})
            return response

        self._forward(self._editor, request, then=ended)

    def _configured(self, client: _Client, request: Request) -> None:
        client.is_configured = True
        if client is self._editor:
            client.connection.respond(request)
        else:
            self._waiting = request
            patience = threading.Timer(_PATIENCE, self._begin_without_editor)
            patience.daemon = True
            patience.start()
        self._begin_if_configured()

    def _begin_without_editor(self) -> None:
        with self._lock:
            self._editor.is_configured = True
            self._begin_if_configured()

    def _begin_if_configured(self) -> None:
        if self._waiting is not None and self._editor.is_configured:
            request, self._waiting = self._waiting, None
            self._forward(self._assistant, request)

    def _cancel(self, client: _Client, request: Request) -> None:
        arguments = to_builtins(request.arguments)
        known = self._sent.get((client, arguments.get("requestId", 0)))
        self._forward(client, request, arguments if known is None else {**arguments, "requestId": known})

    def _set(self, client: _Client, request: Request) -> None:
        decode(request.arguments, ARGUMENTS[request.command], f"{request.command} arguments")
        asked, arguments = self._breakpoints.given(client, request.command, to_builtins(request.arguments))

        def answered(response: Response) -> Response:
            if not response.success:
                return response
            body = self._breakpoints.answered(client, asked, to_builtins(response.body))
            return msgspec.structs.replace(response, body=msgspec.Raw(msgspec.json.encode(body)))

        self._forward(client, request, arguments, answered)

    def _breakpoints_changed(self, asked: Asked, response: Response) -> None:
        with self._lock:
            if response.success:
                self._breakpoints.answered(None, asked, to_builtins(response.body))

    def _resume(self, client: _Client, request: Request) -> None:
        thread_id = to_builtins(request.arguments).get("threadId", 0)
        client.stopped.discard(thread_id)
        other = self._editor if client is self._assistant else self._assistant
        stops = self._stops[thread_id]

        def answered(response: Response) -> Response:
            if not response.success:
                client.stopped.add(thread_id)
            elif thread_id in other.stopped and stops == self._stops[thread_id]:
                # The thread has not stopped again in the meantime.
                self._report_continued(other, thread_id, everything=_resumes_all_threads(request.command, response))
            return response

        self._forward(client, request, then=answered)

    def _forward(
        self, client: _Client, request: Request, arguments: object = None, then: Change = lambda response: response
    ) -> None:
        def answered(response: Response) -> None:
            with self._lock:
                self._sent.pop((client, request.seq), None)
                client.connection.forward_response(request, then(response))

        given = request.arguments if arguments is None else arguments
        self._sent[client, request.seq] = self._server.send_request(request.command, given, answered)

    # -- what the server says ----------------------------------------------------------------------------------------

    def on_request(self, request: Request) -> None:
        """Refuse the request: our ``initialize`` declares no support for such requests."""
        self._server.respond_error(request, f"no client serves '{request.command}'")

    def on_event(self, event: Event) -> None:
        """Send the event to both clients."""
        with self._lock:
            if event.event == "stopped":
                self._stops[to_builtins(event.body).get("threadId", 0)] += 1
            for client in (self._assistant, self._editor):
                self._report(client, event)
            self._is_over = self._is_over or event.event == "terminated"

    def on_invalid_message(self, problem: str) -> None:
        """Ignore the message."""

    def on_closed(self, problem: str | None) -> None:
        """End the session for both clients: the server is gone."""
        with self._lock:
            self._introduced.set()
            self._report_over(self._editor)
            self._assistant.connection.close()

    def _report(self, client: _Client, event: Event) -> None:
        body: Any = event.body
        if event.event in ("breakpoint", "stopped", "continued"):
            body = self._breakpoints.with_known_ids(client, event.event, to_builtins(event.body))
        if event.event == "stopped":
            thread_id = body.get("threadId", 0)
            if thread_id in client.stopped:
                # Clients take the first stop that was not continued for the current one.
                self._report_continued(client, thread_id, everything=False)
            client.stopped.add(thread_id)
        elif event.event == "continued":
            client.stopped = set() if body.get("allThreadsContinued") else client.stopped - {body["threadId"]}
        client.event(event.event, body)

    def _report_continued(self, client: _Client, thread_id: int, *, everything: bool) -> None:
        client.stopped = set() if everything else client.stopped - {thread_id}
        client.event("continued", ContinuedEventBody(thread_id=thread_id, all_threads_continued=everything))

    def _report_over(self, client: _Client) -> None:
        if not self._is_over:
            self._is_over = True
            client.event("terminated", {})


def _resumes_all_threads(command: str, response: Response) -> bool:
    # DAP: "If omitted, the value true shall be assumed".
    return command == "continue" and to_builtins(response.body).get("allThreadsContinued") is not False
