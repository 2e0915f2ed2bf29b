"""Sends and receives DAP messages over a byte stream, and pairs responses with requests.

The same class serves every end: the server's connections to the IDE and to the backends, the agent, the terminal
client. One daemon thread per connection reads and calls the receiver in the order of arrival; any thread may send. A
single ``write`` sends a message. A connection lives until either side closes it; every pending request then gets a
``Disconnected`` failure, so that no caller waits forever.
"""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Callable
from typing import Protocol

import msgspec

from dynamo_dap.protocol.own_threads import own_thread
from dynamo_dap.protocol.requests.contract import ErrorId
from dynamo_dap.protocol.texts import LONGEST, shortened
from dynamo_dap.protocol.wire.framing import (
    MAXIMUM_BODY_BYTES,
    MAXIMUM_UNAUTHENTICATED_BYTES,
    FrameParser,
    FramingError,
    MessageTooLarge,
    frame,
)
from dynamo_dap.protocol.wire.messages import (
    EMPTY,
    Envelope,
    ErrorBody,
    ErrorMessage,
    Event,
    ProtocolError,
    Request,
    Response,
    decode,
    encode,
    encode_body,
    parse,
)
from dynamo_dap.protocol.wire.streams import ByteStream

OnResponse = Callable[[Response], None]


class RequestFailed(Exception):
    """A request was answered with ``success: false``; ``response`` has the details."""

    def __init__(self, response: Response) -> None:
        super().__init__(response.error_text)
        self.response = response


class Receiver(Protocol):
    """The callbacks of a connection's reader thread."""

    def on_request(self, request: Request) -> None:
        """Take a request, and answer it by ``Connection.respond`` or ``respond_error``, now or later."""

    def on_event(self, event: Event) -> None:
        """Take an event."""

    def on_invalid_message(self, problem: str) -> None:
        """Handle an unreadable message; the connection continues.

        If it was a request, it has been answered already.
        """

    def on_closed(self, problem: str | None) -> None:
        """Handle the connection's end. ``problem`` is the reason; None for a clean end."""


class Connection:
    """One end of a DAP connection."""

    def __init__(self, stream: ByteStream, name: str, *, is_trusted: bool = True) -> None:
        """Use ``name`` in the reader thread's name and in error texts: ``"agent"``, ``"IDE"``.

        Until the other end ``is_trusted``, only small messages are accepted; see ``trust``.
        """
        self.name = name
        self._stream = stream
        self._write_lock = threading.Lock()
        self._next_seq = 1
        self._pending_lock = threading.Lock()
        self._pending: dict[int, tuple[str, OnResponse]] = {}
        self._closed = False
        self._reading_ended = False
        self.has_failed = False
        """Whether a write has failed."""
        self._reader: threading.Thread | None = None
        self._parser = FrameParser(MAXIMUM_BODY_BYTES if is_trusted else MAXIMUM_UNAUTHENTICATED_BYTES)

    def trust(self) -> None:
        """Accept large messages from now on: the other end has shown its token."""
        self._parser.maximum_body_bytes = MAXIMUM_BODY_BYTES

    def start(self, receiver: Receiver) -> threading.Thread:
        """Start reading; ``receiver`` is called on the returned daemon thread."""
        reader = own_thread(f"{self.name} reader", self._read, receiver)
        self._reader = reader
        reader.start()
        return reader

    @property
    def is_closed(self) -> bool:
        """Whether the connection has ended, from either side."""
        return self._closed or self._reading_ended

    @property
    def is_closed_by_program(self) -> bool:
        """Whether the program has closed the socket, not one of the two ends; see ``SocketStream``."""
        return getattr(self._stream, "is_closed_by_program", False)

    # -- sending ---------------------------------------------------------------------------------------------------

    def send_event(self, event: str, body: object = None) -> None:
        """Send an event; drop it silently if the other end has closed (``on_closed`` reports that)."""
        self._send(Envelope("event", event=event, body=_unless_empty(encode_body(body))))

    def send_request(
        self,
        command: str,
        arguments: object = None,
        on_response: OnResponse | None = None,
    ) -> int:
        """Send a request and return its ``seq``; ``on_response`` is called once, on the reader thread.

        If the connection ends before the answer, ``on_response`` gets a failure that says so.
        """
        envelope = Envelope("request", command=command, arguments=encode_body(arguments))
        return self._send(envelope, on_response or (lambda response: None))

    def request(self, command: str, arguments: object = None, *, timeout: float) -> msgspec.Raw:
        """Send a request, wait for the answer and return its body.

        Not for the reader thread, which would wait for itself.

        Raises:
            RequestFailed: the answer was ``success: false``.
            TimeoutError: no answer within ``timeout`` seconds.
        """
        assert threading.current_thread() is not self._reader, (
            "a blocking request on the reader thread cannot be answered"
        )
        answers: queue.SimpleQueue[Response] = queue.SimpleQueue()
        self.send_request(command, arguments, answers.put)
        try:
            response = answers.get(timeout=timeout)
        except queue.Empty:
            raise TimeoutError(f"{self.name} did not answer '{command}' within {timeout:g} s") from None
        if not response.success:
            raise RequestFailed(response)
        return response.body

    def respond(self, request: Request, body: object = None) -> None:
        """Answer ``request`` with success; an empty ``body`` is left out, as in DAP's plain acknowledgements."""
        self._respond(request, success=True, body=encode_body(body), message=None)

    def respond_error(
        self,
        request: Request,
        text: str,
        *,
        error_id: int = ErrorId.UNNAMED,
        message: str = "",
        show_user: bool = False,
    ) -> None:
        """Answer ``request`` with a failure.

        ``text`` is for the user. ``message`` is DAP's short machine-readable form (``cancelled``, ``notStopped``), or
        the text. ``error_id`` is stable per kind of error.
        """
        text = text if text.strip() else f"'{request.command}' failed, for a reason that has no text"
        error = ErrorMessage(id=error_id, format="{text}", variables={"text": text}, show_user=show_user)
        body = encode_body(ErrorBody(error=error))
        self._respond(request, success=False, body=body, message=message or text)

    def forward_response(self, request: Request, response: Response) -> None:
        """Answer ``request`` with another connection's answer."""
        self._respond(request, response.success, response.body, response.message)

    def close(self) -> None:
        """Close the stream; the reader then ends, and pending requests fail."""
        self._closed = True
        self._stream.close()

    def abandon(self) -> None:
        """Release the stream in a forked process, which has no reader thread."""
        self._closed = True
        self._stream.abandon()

    def _respond(self, request: Request, success: bool, body: msgspec.Raw, message: str | None) -> None:
        if not success:
            # The reason of a failure may quote a refused value of any length.
            body, message = _readable(body), message and shortened(message)
        self._send(
            Envelope(
                "response",
                request_seq=request.seq,
                command=request.command,
                success=success,
                message=message,
                body=_unless_empty(body),
            )
        )

    def _send(self, envelope: Envelope, on_response: OnResponse | None = None) -> int:
        with self._write_lock:
            envelope.seq = seq = self._next_seq
            self._next_seq += 1
            if on_response is not None:
                with self._pending_lock:
                    self._pending[seq] = (envelope.command, on_response)
            try:
                if self._closed or (on_response is not None and self._reading_ended):
                    raise OSError("closed")
                self._stream.write(frame(encode(envelope)))
                return seq
            except OSError:
                self.has_failed = True
        self._fail_pending(only=seq)
        return seq

    # -- receiving -------------------------------------------------------------------------------------------------

    def _read(self, receiver: Receiver) -> None:
        problem: str | None = None
        try:
            while data := self._stream.read():
                for body in self._parser.feed(data):
                    if isinstance(body, MessageTooLarge):
                        receiver.on_invalid_message(str(body))
                    else:
                        self._dispatch(body, receiver)
            if self._parser.is_mid_message and not self._closed:
                problem = "the stream ended in the middle of a message"
        except FramingError as error:
            problem = str(error)
        finally:
            self._reading_ended = True  # this end can still write, for example the reason
            self._fail_pending()
            receiver.on_closed(problem)

    def _dispatch(self, body: bytes, receiver: Receiver) -> None:
        try:
            message = parse(body)
        except ProtocolError as error:
            if error.request is not None:
                self.respond_error(error.request, str(error), error_id=ErrorId.UNREADABLE_MESSAGE)
            receiver.on_invalid_message(str(error))
            return
        if isinstance(message, Request):
            receiver.on_request(message)
        elif isinstance(message, Event):
            receiver.on_event(message)
        else:
            self._settle(message)

    def _settle(self, response: Response) -> None:
        with self._pending_lock:
            entry = self._pending.pop(response.request_seq, None)
        if entry is not None:
            entry[1](response)

    def _fail_pending(self, only: int | None = None) -> None:
        with self._pending_lock:
            failed: dict[int, tuple[str, OnResponse]] = {}
            if only is not None and only in self._pending:
                failed[only] = self._pending.pop(only)
            elif only is None:
                failed, self._pending = self._pending, {}
        for seq, (command, on_response) in failed.items():
            text = f"{self.name} is gone, '{command}' was not answered"
            body = encode_body(ErrorBody(error=ErrorMessage(id=ErrorId.DISCONNECTED, format=text)))
            with contextlib.suppress(Exception):
                on_response(Response(seq, command, False, body, "disconnected"))


def _readable(body: msgspec.Raw) -> msgspec.Raw:
    """Return the body of a failure with a shortened reason."""
    if len(bytes(body)) <= LONGEST:
        return body
    try:
        error = decode(body, ErrorBody, "body of a failure").error
    except ProtocolError:
        return body
    if error is None or len(error.text) <= LONGEST:
        return body
    short = msgspec.structs.replace(error, format="{text}", variables={"text": shortened(error.text)})
    return encode_body(ErrorBody(error=short))


def _unless_empty(body: msgspec.Raw) -> msgspec.Raw:
    """Replace an empty body by no body: strict clients reject a body where DAP has none."""
    return encode_body(None) if bytes(body) == bytes(EMPTY) else body
