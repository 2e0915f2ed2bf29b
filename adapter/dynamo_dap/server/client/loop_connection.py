"""Adapts a DAP connection to the asyncio loop: messages and answers arrive on the loop, in order.

The connection's reader thread only posts to the loop. Methods must be called on the loop's thread; those that send
assert this. A connection lives as long as its stream.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Coroutine
from typing import Any

import msgspec

from dynamo_dap.protocol.connection import Connection, OnResponse, Receiver, RequestFailed
from dynamo_dap.protocol.log_file import loggable
from dynamo_dap.protocol.wire.messages import Event, Request, Response
from dynamo_dap.protocol.wire.streams import ByteStream

_log = logging.getLogger(__name__)


class LoopConnection:
    """One end of a DAP connection, owned by the running loop."""

    def __init__(self, stream: ByteStream, name: str, receiver: Receiver, *, is_trusted: bool = True) -> None:
        """Start to read. ``receiver`` is called on the running loop, and may be replaced at any time.

        Until the other end ``is_trusted``, only small messages are accepted; see ``trust``.
        """
        self.receiver = receiver
        self._loop = asyncio.get_running_loop()
        self._connection = Connection(stream, name, is_trusted=is_trusted)
        self._connection.start(_Poster(self, self._loop))

    def trust(self) -> None:
        """Accept large messages: the other end has shown its token."""
        self._connection.trust()

    @property
    def name(self) -> str:
        """The name of the other end."""
        return self._connection.name

    @property
    def is_closed(self) -> bool:
        """Whether the connection has ended, from either side."""
        return self._connection.is_closed

    def send_event(self, event: str, body: object = None, *, is_private: bool = False) -> None:
        """Send an event; ``is_private`` keeps its body out of the log."""
        self._assert_on_loop()
        if _log.isEnabledFor(logging.DEBUG):
            _log.debug("to %s: event %s %s", self.name, event, "(not logged)" if is_private else loggable(body))
        self._connection.send_event(event, body)

    def send_request(self, command: str, arguments: object, on_response: OnResponse) -> int:
        """Send a request and return its ``seq``; ``on_response`` is called once, on the loop, before later events."""
        self._assert_on_loop()
        if _log.isEnabledFor(logging.DEBUG):
            _log.debug("to %s: request %s %s", self.name, command, loggable(arguments))
        return self._connection.send_request(command, arguments, lambda response: self._post(on_response, response))

    async def request(self, command: str, arguments: object = None, *, timeout: float) -> msgspec.Raw:
        """Send a request and return the body of its answer.

        Raises:
            RequestFailed: the answer was ``success: false``, or the other end is gone.
            TimeoutError: no answer within ``timeout`` seconds.
        """
        answer: asyncio.Future[Response] = self._loop.create_future()

        def settle(response: Response) -> None:
            if not answer.done():
                answer.set_result(response)

        self.send_request(command, arguments, settle)
        try:
            response = await asyncio.wait_for(answer, timeout)
        except asyncio.TimeoutError:
            raise TimeoutError(f"{self.name} did not answer '{command}' within {timeout:g} s") from None
        if not response.success:
            raise RequestFailed(response)
        return response.body

    def respond(self, request: Request, body: object = None) -> None:
        """Answer ``request`` with success."""
        self._assert_on_loop()
        if _log.isEnabledFor(logging.DEBUG):
            _log.debug("to %s: response to %d %s %s", self.name, request.seq, request.command, loggable(body))
        self._connection.respond(request, body)

    def respond_error(
        self, request: Request, text: str, *, error_id: int, message: str = "", show_user: bool = False
    ) -> None:
        """Answer ``request`` with a failure."""
        self._assert_on_loop()
        _log.debug("to %s: failure of %d %s: %d %s", self.name, request.seq, request.command, error_id, text)
        self._connection.respond_error(request, text, error_id=error_id, message=message, show_user=show_user)

    def forward_response(self, request: Request, response: Response) -> None:
        """Answer ``request`` with another connection's answer, whose body is not read."""
        self._assert_on_loop()
        if _log.isEnabledFor(logging.DEBUG):
            _log.debug("to %s: response to %d %s %s", self.name, request.seq, request.command, loggable(response.body))
        self._connection.forward_response(request, response)

    def close(self) -> None:
        """Close the stream."""
        self._connection.close()

    def _assert_on_loop(self) -> None:
        assert asyncio.get_running_loop() is self._loop, "a connection of the loop is used on another thread"

    def _post(self, function: Callable[..., None], *arguments: object) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: the server is ending
            self._loop.call_soon_threadsafe(function, *arguments)


class _Poster:
    """Posts what the reader thread receives to the loop, where it looks up the present receiver."""

    def __init__(self, owner: LoopConnection, loop: asyncio.AbstractEventLoop) -> None:
        self._owner = owner
        self._loop = loop

    def on_request(self, request: Request) -> None:
        self._owner._post(self._deliver_request, request)

    def on_event(self, event: Event) -> None:
        self._owner._post(self._deliver_event, event)

    def on_invalid_message(self, problem: str) -> None:
        self._owner._post(lambda: self._owner.receiver.on_invalid_message(problem))

    def on_closed(self, problem: str | None) -> None:
        self._owner._post(self._deliver_closed, problem)

    def _deliver_request(self, request: Request) -> None:
        if _log.isEnabledFor(logging.DEBUG):
            name, arguments = self._owner.name, loggable(request.arguments)
            _log.debug("from %s: request %d %s %s", name, request.seq, request.command, arguments)
        self._owner.receiver.on_request(request)

    def _deliver_event(self, event: Event) -> None:
        if _log.isEnabledFor(logging.DEBUG):
            _log.debug("from %s: event %s %s", self._owner.name, event.event, loggable(event.body))
        self._owner.receiver.on_event(event)

    def _deliver_closed(self, problem: str | None) -> None:
        _log.debug("%s closed the connection%s", self._owner.name, f": {problem}" if problem else "")
        self._owner.receiver.on_closed(problem)


class HandshakeReceiver:
    """Receives from a connection before the handshake: it only logs the messages of ``sender``."""

    def __init__(self, sender: str) -> None:
        self._sender = sender

    def on_request(self, request: Request) -> None:
        """Log the request."""
        _log.warning("%s asks '%s' before the handshake", self._sender, request.command)

    def on_event(self, event: Event) -> None:
        """Log the event."""
        _log.debug("%s says '%s' before the handshake", self._sender, event.event)

    def on_invalid_message(self, problem: str) -> None:
        """Log the problem, without a reply: nobody would read a reply."""
        _log.warning("%s sent an invalid message before the handshake: %s", self._sender, problem)

    def on_closed(self, problem: str | None) -> None:
        """Do nothing: the pending request fails with the reason."""


async def until_any(timeout: float, *waits: asyncio.Future[Any] | Coroutine[object, object, object]) -> bool:
    """Wait until one of ``waits`` is done, at most ``timeout`` seconds; return whether one is.

    Futures are left alone; unfinished coroutines are cancelled.
    """
    own = {asyncio.ensure_future(wait): asyncio.iscoroutine(wait) for wait in waits}
    try:
        done, _ = await asyncio.wait(own, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
        return bool(done)
    finally:
        for future, is_ours in own.items():
            if is_ours and not future.done():
                future.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await future
