"""A byte stream that records every message in a timeline and checks it by the schema, in both directions."""

from __future__ import annotations

import json

from dynamo_dap.protocol.wire.framing import FrameParser, FramingError, MessageTooLarge
from dynamo_dap.protocol.wire.streams import ByteStream
from tests.client.schema import problems_of
from tests.client.timeline import Timeline


class RecordedStream:
    """Wraps the stream of a session to record it."""

    def __init__(self, stream: ByteStream, timeline: Timeline) -> None:
        self._stream = stream
        self._timeline = timeline
        self._incoming = FrameParser()
        self._check_sent = True

    def read(self) -> bytes:
        """Read, record and check bytes of the server."""
        data = self._stream.read()
        try:
            bodies = self._incoming.feed(data)
        except FramingError as error:
            self._timeline.problems.append(f"the server sent no DAP: {error}")
            return data
        for body in bodies:
            self._take(body, sent=False)
        if not data and self._incoming.is_mid_message:
            self._timeline.problems.append("the server's last message is truncated")
        return data

    def write(self, data: bytes) -> None:
        """Record and check bytes of the test, then send them."""
        for body in FrameParser().feed(data):
            self._take(body, sent=True)
        self._stream.write(data)

    def write_unchecked(self, data: bytes) -> None:
        """Send bytes that need not be DAP, for a test of bad input."""
        self._stream.write(data)

    def close(self) -> None:
        """Close the stream."""
        self._stream.close()

    def abandon(self) -> None:
        """Release the stream in a forked process."""
        self._stream.abandon()

    def _take(self, body: bytes | MessageTooLarge, sent: bool) -> None:
        assert isinstance(body, bytes), "a message is too large"
        message = json.loads(body)
        self._timeline.record(sent, message)
        if not sent or self._check_sent:
            self._timeline.problems += problems_of(message)

    def allow_bad_requests(self) -> None:
        """Stop checking the test's messages: it will send some that DAP does not allow."""
        self._check_sent = False
