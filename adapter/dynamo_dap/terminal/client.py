"""Implements a DAP client, without presentation, and runs the server as its child process.

Requests are methods that block until the answer arrives or a deadline passes. Any thread but the connection's reader
may call them. The reader thread passes on events and reverse requests in order of arrival. A client lives as long as
its connection; the thread that owns the session starts and ends the server.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import IO, Protocol, TypeVar

import msgspec

from dynamo_dap.protocol.access.own_code import own_code
from dynamo_dap.protocol.connection import Connection, RequestFailed
from dynamo_dap.protocol.requests.contract import TERMINAL
from dynamo_dap.protocol.texts import json_with_visible_controls, with_visible_controls
from dynamo_dap.protocol.user_files import read_regular
from dynamo_dap.protocol.wire.messages import Event, Request, Response, decode
from dynamo_dap.protocol.wire.streams import ByteStream, PipeStream
from dynamo_dap.protocol.wire.types import (
    Breakpoint,
    Capabilities,
    CompletionItem,
    CompletionsArguments,
    CompletionsResponseBody,
    ContinueResponseBody,
    DataBreakpoint,
    DataBreakpointInfoArguments,
    DataBreakpointInfoResponseBody,
    EvaluateArguments,
    EvaluateResponseBody,
    ExceptionInfoArguments,
    ExceptionInfoResponseBody,
    FunctionBreakpoint,
    InitializeRequestArguments,
    PauseArguments,
    Scope,
    ScopesArguments,
    ScopesResponseBody,
    SetBreakpointsArguments,
    SetBreakpointsResponseBody,
    SetDataBreakpointsArguments,
    SetDataBreakpointsResponseBody,
    SetExceptionBreakpointsArguments,
    SetFunctionBreakpointsArguments,
    SetFunctionBreakpointsResponseBody,
    Source,
    SourceArguments,
    SourceBreakpoint,
    SourceResponseBody,
    StackTraceArguments,
    StackTraceResponseBody,
    Thread,
    ThreadsResponseBody,
    Variable,
    VariablesArguments,
    VariablesResponseBody,
)


def introduction(*, runs_in_terminal: bool, shows_progress: bool) -> InitializeRequestArguments:
    """Return the terminal's arguments for ``initialize``."""
    return InitializeRequestArguments(
        adapter_id="dynamo",
        client_id=TERMINAL,
        client_name="dynamo-dap in the terminal",
        path_format="path",
        lines_start_at1=True,
        columns_start_at1=True,
        supports_variable_type=True,
        supports_variable_paging=True,
        supports_run_in_terminal_request=runs_in_terminal,
        supports_progress_reporting=shows_progress,
    )


DEFAULT_COMMAND = (
    sys.executable,
    "-c",
    own_code("from dynamo_dap.command_line import main; sys.exit(main())"),
)


class Server(Protocol):
    """A running server, for one client."""

    @property
    def stream(self) -> ByteStream:
        """Its DAP stream."""

    def end(self, grace: float = ...) -> None:
        """End it within ``grace`` seconds."""


class ServerProcess:
    """The server as a child process, and the byte stream to it."""

    def __init__(
        self,
        command: Sequence[str] = DEFAULT_COMMAND,
        *,
        environment: Mapping[str, str] | None = None,
        standard_error: IO[bytes] | int | None = None,
    ) -> None:
        """Start ``command``; ``standard_error`` is as for ``subprocess``, inherited if None."""
        self._process = subprocess.Popen(
            list(command),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=standard_error,
            env=dict(os.environ if environment is None else environment),
            # Ctrl-C in a terminal is for the client, which asks the server to pause the program.
            start_new_session=True,
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        # The stream owns its descriptors, so that nothing closes them twice.
        self.stream: ByteStream = PipeStream(
            os.dup(self._process.stdout.fileno()), os.dup(self._process.stdin.fileno())
        )
        self._process.stdout.close()
        self._process.stdin.close()

    @property
    def process_id(self) -> int:
        """The server's process id."""
        return self._process.pid

    def wait(self, timeout: float) -> int:
        """Wait until the server has ended and return its exit code.

        Raises:
            TimeoutError: it was still running after ``timeout`` seconds.
        """
        try:
            return self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            raise TimeoutError(f"the server (process {self.process_id}) did not end within {timeout:g} s") from None

    def end(self, grace: float = 5.0) -> None:
        """Close the stream, which asks the server to end; kill it after ``grace`` seconds."""
        self.stream.close()
        try:
            self._process.wait(grace)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()
            self._process.wait()


T = TypeVar("T")

OnEvent = Callable[[Event], None]
OnReverseRequest = Callable[[Request], object]
"""Serves a request of the server (``runInTerminal``) and returns the response's body."""

DEFAULT_TIMEOUT = 60.0
"""Seconds that a request may take; the slowest one waits for torch's import on a busy machine."""


class PendingResponse:
    """The future answer to a request."""

    def __init__(self, command: str) -> None:
        self.command = command
        self._response: Response | None = None
        self._answered = threading.Event()

    def settle(self, response: Response) -> None:
        """Take the answer; called by the reader thread."""
        self._response = response
        self._answered.set()

    @property
    def has_failed(self) -> bool:
        """Whether the answer has arrived and is a failure."""
        return self._response is not None and not self._response.success

    def result(self, timeout: float = DEFAULT_TIMEOUT) -> msgspec.Raw:
        """Wait for the answer and return its body.

        Raises:
            RequestFailed: the answer was ``success: false``.
            TimeoutError: there was none within ``timeout`` seconds.
        """
        if not self._answered.wait(timeout) or self._response is None:
            raise TimeoutError(f"the server did not answer '{self.command}' within {timeout:g} s")
        if not self._response.success:
            raise RequestFailed(msgspec.structs.replace(self._response, body=_visible(self._response.body)))
        return _visible(self._response.body)


def _visible(body: msgspec.Raw) -> msgspec.Raw:
    """Return a body in which no text moves the cursor of a terminal."""
    return msgspec.Raw(json_with_visible_controls(bytes(body)))


class Client:
    """The IDE's end of a session."""

    def __init__(
        self,
        stream: ByteStream,
        *,
        on_event: OnEvent,
        on_closed: Callable[[str | None], None] = lambda problem: None,
        reverse_requests: Mapping[str, OnReverseRequest] | None = None,
        timeout: float = DEFAULT_TIMEOUT,
    ) -> None:
        """Start reading ``stream``; ``on_event`` and ``on_closed`` are called on the reader thread."""
        self.capabilities = Capabilities()
        self.timeout = timeout
        self._on_event = on_event
        self._on_closed = on_closed
        self._reverse_requests = dict(reverse_requests or {})
        self._is_decided = threading.Event()
        """Set once breakpoints can be set, or the launch or attach has failed."""
        self.connection = Connection(stream, "server")
        self.connection.start(self)

    # -- callbacks of the connection's reader ------------------------------------------------------------------------

    def on_request(self, request: Request) -> None:
        """Serve a reverse request."""
        serve = self._reverse_requests.get(request.command)
        if serve is None:
            self.connection.respond_error(request, f"this client does not serve '{request.command}'")
            return
        try:
            body = serve(request)
        except Exception as error:  # noqa: BLE001  whatever went wrong, the server waits for an answer
            self.connection.respond_error(request, f"{request.command}: {error}")
        else:
            self.connection.respond(request, body)

    def on_event(self, event: Event) -> None:
        """Pass an event on."""
        # Output stays unchanged: the screen treats the program's own output differently.
        is_output = event.event == "output"
        self._on_event(event if is_output else Event(event.event, _visible(event.body)))
        if event.event == "initialized":
            self._is_decided.set()

    def on_invalid_message(self, problem: str) -> None:
        """Close the connection: the server sent something that is not a DAP message."""
        self._on_closed(f"the server sent a message that cannot be read: {problem}")

    def on_closed(self, problem: str | None) -> None:
        """Report the end of the connection."""
        self._is_decided.set()
        self._on_closed(problem)

    # -- requests of any kind --------------------------------------------------------------------------------------

    def send(self, command: str, arguments: object = None) -> PendingResponse:
        """Send a request and return at once."""
        pending = PendingResponse(command)
        self.connection.send_request(command, arguments, pending.settle)
        return pending

    def request(self, command: str, arguments: object = None, *, timeout: float | None = None) -> msgspec.Raw:
        """Send a request, wait for the answer, and return its body as raw JSON.

        Raises:
            RequestFailed: the answer was ``success: false``.
            TimeoutError: there was none in time.
        """
        return self.send(command, arguments).result(self.timeout if timeout is None else timeout)

    def ask(self, command: str, arguments: object, body: type[T]) -> T:
        """Send a request, wait for the answer, and return its body as ``body``."""
        return decode(self.request(command, arguments), body, f"body of '{command}'")

    # -- the beginning and the end of a session --------------------------------------------------------------------

    def initialize(self, arguments: InitializeRequestArguments) -> Capabilities:
        """Introduce this client and get the server's capabilities."""
        self.capabilities = self.ask("initialize", arguments, Capabilities)
        return self.capabilities

    def begin(self, request: str, configuration: Mapping[str, object]) -> PendingResponse:
        """Send ``launch`` or ``attach`` and wait until breakpoints can be set.

        The server answers only after ``configuration_done``; wait for the returned answer then.

        Raises:
            RequestFailed: the program cannot be started or reached.
            TimeoutError: nothing happened in time.
        """
        pending = PendingResponse(request)

        def settle(response: Response) -> None:
            pending.settle(response)
            if not response.success:
                self._is_decided.set()

        self._is_decided.clear()
        self.connection.send_request(request, dict(configuration), settle)
        is_decided = self._is_decided.wait(self.timeout)
        if pending.has_failed:
            pending.result()
        if not is_decided:
            raise TimeoutError(f"no 'initialized' event within {self.timeout:g} s of '{request}'")
        return pending

    def configuration_done(self) -> None:
        """Report that every breakpoint is set: the program may run."""
        self.request("configurationDone")

    def close(self) -> None:
        """Close the connection."""
        self.connection.close()

    # -- breakpoints -----------------------------------------------------------------------------------------------

    def set_breakpoints(
        self, path: str | os.PathLike[str], breakpoints: Sequence[SourceBreakpoint]
    ) -> list[Breakpoint]:
        """Replace the line breakpoints of a file."""
        source = Source(name=os.path.basename(path), path=os.fspath(path))  # noqa: PTH119  a path as the user gave it
        arguments = SetBreakpointsArguments(source=source, breakpoints=list(breakpoints))
        return self.ask("setBreakpoints", arguments, SetBreakpointsResponseBody).breakpoints

    def set_function_breakpoints(self, breakpoints: Sequence[FunctionBreakpoint]) -> list[Breakpoint]:
        """Replace the function breakpoints."""
        arguments = SetFunctionBreakpointsArguments(breakpoints=list(breakpoints))
        return self.ask("setFunctionBreakpoints", arguments, SetFunctionBreakpointsResponseBody).breakpoints

    def data_breakpoint_info(self, name: str, frame_id: int | None) -> DataBreakpointInfoResponseBody:
        """Return whether changes of an expression in a frame can stop the program, and the expression's id."""
        arguments = DataBreakpointInfoArguments(name, frame_id=frame_id)
        return self.ask("dataBreakpointInfo", arguments, DataBreakpointInfoResponseBody)

    def set_data_breakpoints(self, breakpoints: Sequence[DataBreakpoint]) -> list[Breakpoint]:
        """Replace the breakpoints on changes."""
        arguments = SetDataBreakpointsArguments(breakpoints=list(breakpoints))
        return self.ask("setDataBreakpoints", arguments, SetDataBreakpointsResponseBody).breakpoints

    def set_exception_filters(self, filters: Sequence[str]) -> None:
        """Replace the exception filters."""
        self.request("setExceptionBreakpoints", SetExceptionBreakpointsArguments(filters=list(filters)))

    # -- reading ---------------------------------------------------------------------------------------------------

    def threads(self) -> list[Thread]:
        """Return the program's threads."""
        return self.ask("threads", None, ThreadsResponseBody).threads

    def stack_trace(self, thread_id: int, start: int = 0, levels: int | None = None) -> StackTraceResponseBody:
        """Return frames of a stopped thread, innermost first, from ``start`` on."""
        arguments = StackTraceArguments(thread_id=thread_id, start_frame=start or None, levels=levels)
        return self.ask("stackTrace", arguments, StackTraceResponseBody)

    def scopes(self, frame_id: int) -> list[Scope]:
        """Return the groups of variables of a frame."""
        return self.ask("scopes", ScopesArguments(frame_id=frame_id), ScopesResponseBody).scopes

    def variables(
        self, reference: int, *, only: str | None = None, start: int | None = None, count: int | None = None
    ) -> list[Variable]:
        """Return the children behind ``reference``; ``only`` is ``"indexed"`` or ``"named"``."""
        arguments = VariablesArguments(variables_reference=reference, filter=only, start=start, count=count)
        return self.ask("variables", arguments, VariablesResponseBody).variables

    def evaluate(self, expression: str, frame_id: int | None, context: str) -> EvaluateResponseBody:
        """Evaluate ``expression``; ``context`` is DAP's: ``watch``, ``repl``, ``hover``, ``clipboard``."""
        arguments = EvaluateArguments(expression=expression, frame_id=frame_id, context=context)
        return self.ask("evaluate", arguments, EvaluateResponseBody)

    def completions(self, text: str, column: int, frame_id: int | None) -> list[CompletionItem]:
        """Return completions of ``text`` at the 1-based ``column``."""
        arguments = CompletionsArguments(text=text, column=column, frame_id=frame_id)
        return self.ask("completions", arguments, CompletionsResponseBody).targets

    def exception_info(self, thread_id: int) -> ExceptionInfoResponseBody:
        """Return the exception at which the thread stopped."""
        return self.ask("exceptionInfo", ExceptionInfoArguments(thread_id=thread_id), ExceptionInfoResponseBody)

    def source(self, reference: int) -> SourceResponseBody:
        """Return the text of a virtual source."""
        return self.ask("source", SourceArguments(source_reference=reference), SourceResponseBody)

    # -- resuming --------------------------------------------------------------------------------------------------

    def resume(self, command: str, thread_id: int, granularity: str | None = None) -> bool:
        """Send ``continue``, ``next``, ``stepIn``, ``stepOut`` or ``stepBack``; ``granularity`` is for steps.

        Return whether every thread resumes, not only this one.
        """
        arguments: dict[str, object] = {"threadId": thread_id}
        if granularity is not None:
            arguments["granularity"] = granularity
        if command != "continue":
            self.request(command, arguments)
            return False
        # DAP: "If omitted, the value true shall be assumed".
        return self.ask(command, arguments, ContinueResponseBody).all_threads_continued is not False

    def pause(self, thread_id: int) -> None:
        """Ask to stop a thread at its present place."""
        self.request("pause", PauseArguments(thread_id=thread_id))


class SourceText:
    """Lines of source files and of virtual sources."""

    def __init__(self) -> None:
        self._texts: dict[str | int, list[str]] = {}

    def forget(self) -> None:
        """Drop cached lines: a file may have been edited, and a virtual source may have grown."""
        self._texts.clear()

    def lines(self, client: Client, source: Source | None) -> list[str]:
        """Return the source's lines; empty when it has no text."""
        if source is None:
            return []
        key = source.source_reference or source.path
        if not key:
            return []
        if key not in self._texts:
            self._texts[key] = _read(client, key)
        return self._texts[key]


def _read(client: Client, key: str | int) -> list[str]:
    try:
        if isinstance(key, int):
            return client.source(key).content.splitlines()
        return with_visible_controls(read_regular(key).decode(errors="replace").replace("\r\n", "\n")).splitlines()
    except (OSError, RequestFailed):
        return []
