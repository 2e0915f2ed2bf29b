"""A client as strict as those of some editors: a message that DAP does not allow is an error and ends the test.

It counts its requests from 0, sends no optional field, waits for each response before the next request, leaves ``seq``
out of its responses, and knows only the events that every client knows. The test's thread sends; one thread reads. It
lives as long as its server, which ``end`` ends.
"""

from __future__ import annotations

import json
import queue
import subprocess
import threading
from collections.abc import Callable, Mapping
from typing import Any

from dynamo_dap.protocol.wire.framing import FrameParser, frame
from dynamo_dap.terminal.client import ServerProcess
from tests.client.schema import problems_of
from tests.client.timeline import DEADLINE

ACKNOWLEDGEMENTS = frozenset({"launch", "attach", "configurationDone", "next", "stepIn", "stepOut", "pause"})
ACKNOWLEDGEMENTS |= {"disconnect", "terminate", "restart", "cancel"}
"""Requests whose responses have no body in DAP."""

KNOWN_EVENTS = frozenset({"initialized", "stopped", "continued", "exited", "terminated", "thread", "output"})
KNOWN_EVENTS |= {"breakpoint", "module", "loadedSource", "process", "capabilities"}
"""The events for a client that announces no capability in ``initialize``."""

_END = object()


class StrictClient:
    """A client that checks every message. A broken one is an ``AssertionError`` in the next call."""

    def __init__(self, environment: Mapping[str, str], serve: Mapping[str, Callable[[Any], Any]] | None = None) -> None:
        """Start a server. ``serve`` has a function for each of its requests, which returns a body or None."""
        self._server = ServerProcess(environment=environment, standard_error=subprocess.DEVNULL)
        self._serve = serve or {}
        self._next_seq = 0
        self._received: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._events: list[dict[str, Any]] = []
        self.transcript: list[dict[str, Any]] = []
        self.known_events = KNOWN_EVENTS
        threading.Thread(target=self._read, daemon=True).start()

    def request(self, command: str, arguments: Any = None) -> Any:
        """Send a request and wait for its response; no other one may come. Return its body, or None."""
        seq, self._next_seq = self._next_seq, self._next_seq + 1
        message = {"seq": seq, "type": "request", "command": command}
        self._write(message if arguments is None else {**message, "arguments": arguments})
        while True:
            response = self._take()
            if response["type"] == "response":
                break
        assert (response["request_seq"], response["command"]) == (seq, command)
        assert response["success"] is True, response
        return response.get("body")

    def event(self, name: str) -> dict[str, Any]:
        """Wait for the next event ``name``, which may have arrived already, and return its body."""
        while True:
            for position, event in enumerate(self._events):
                if event["event"] == name:
                    del self._events[: position + 1]
                    return event.get("body", {})
                assert event["event"] != "terminated", f"the session has ended, and no '{name}' came"
            self._take()

    def end(self) -> None:
        """Close the connection, which ends the server."""
        self._server.end(DEADLINE)

    def _take(self) -> dict[str, Any]:
        """Receive the next message: keep an event, answer a request."""
        message = self._received.get(timeout=DEADLINE)
        assert message is not _END, "the server closed the connection"
        self.transcript.append(message)
        assert not problems_of(message), problems_of(message)
        assert type(message["seq"]) is int
        if message["type"] == "event":
            assert message["event"] in self.known_events, f"a plain client does not know the event: {message}"
            assert message.get("body") != {}, f"what has nothing to tell has no body: {message}"
            self._events.append(message)
        elif message["type"] == "request":
            self._answer(message)
        elif message["success"] and message["command"] in ACKNOWLEDGEMENTS:
            assert "body" not in message, f"an acknowledgement has no body: {message}"
        return message

    def _answer(self, request: dict[str, Any]) -> None:
        assert request["command"] in self._serve, f"this client announced nothing of the kind: {request}"
        body = self._serve[request["command"]](request["arguments"])
        answer = {"type": "response", "request_seq": request["seq"], "success": True, "command": request["command"]}
        self._write(answer if body is None else {**answer, "body": body})

    def _write(self, message: dict[str, Any]) -> None:
        self._server.stream.write(frame(json.dumps(message).encode()))

    def _read(self) -> None:
        parser = FrameParser()
        while data := self._server.stream.read():
            for body in parser.feed(data):
                assert isinstance(body, bytes), "a message is too large"
                self._received.put(json.loads(body))
        self._received.put(_END)
