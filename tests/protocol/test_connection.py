"""A connection pairs answers with requests, in any order and from any thread, and nobody waits for ever."""

from __future__ import annotations

import os
import queue
import socket
import threading
from collections.abc import Iterator

import pytest

from dynamo_dap.protocol.connection import Connection, RequestFailed
from dynamo_dap.protocol.wire.framing import frame
from dynamo_dap.protocol.wire.messages import (
    Envelope,
    ErrorBody,
    ErrorMessage,
    Event,
    Request,
    Response,
    decode,
    encode,
    encode_body,
    parse,
    to_builtins,
)
from dynamo_dap.protocol.wire.streams import PipeStream, SocketStream
from tests.client.timeline import DEADLINE


class Recorder:
    """Puts what is received into queues."""

    def __init__(self) -> None:
        self.requests: queue.SimpleQueue[Request] = queue.SimpleQueue()
        self.events: queue.SimpleQueue[Event] = queue.SimpleQueue()
        self.problems: queue.SimpleQueue[str] = queue.SimpleQueue()
        self.ends: queue.SimpleQueue[str | None] = queue.SimpleQueue()

    def on_request(self, request: Request) -> None:
        self.requests.put(request)

    def on_event(self, event: Event) -> None:
        self.events.put(event)

    def on_invalid_message(self, problem: str) -> None:
        self.problems.put(problem)

    def on_closed(self, problem: str | None) -> None:
        self.ends.put(problem)


class Pair:
    """Two connections that speak to each other."""

    def __init__(self) -> None:
        one, other = socket.socketpair()
        self.near, self.far = Connection(SocketStream(one), "far end"), Connection(SocketStream(other), "near end")
        self.near_side, self.far_side = Recorder(), Recorder()
        self.raw = one
        self.near.start(self.near_side)
        self.far.start(self.far_side)


@pytest.fixture
def pair(monkeypatch: pytest.MonkeyPatch) -> Iterator[Pair]:
    """Two connected ends, closed afterwards; a Unix socket has no Nagle's algorithm to turn off."""
    monkeypatch.setattr(socket.socket, "setsockopt", lambda *arguments: None)
    made = Pair()
    yield made
    made.near.close()
    made.far.close()


def test_answers_in_another_order_reach_their_requests(pair: Pair) -> None:
    answers: queue.SimpleQueue[tuple[str, object]] = queue.SimpleQueue()
    for name in ("first", "second", "third"):
        pair.near.send_request(name, {}, lambda response, name=name: answers.put((name, to_builtins(response.body))))
    received = [pair.far_side.requests.get(timeout=DEADLINE) for _ in range(3)]
    for request in reversed(received):
        pair.far.respond(request, {"was": request.command})
    assert [answers.get(timeout=DEADLINE) for _ in range(3)] == [
        (name, {"was": name}) for name in ("third", "second", "first")
    ]


def test_many_threads_send_at_once_and_no_message_is_torn(pair: Pair) -> None:
    def send(number: int) -> None:
        for count in range(200):
            pair.near.send_event(f"event {number}", {"count": count, "text": "x" * 500})

    threads = [threading.Thread(target=send, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    counts: dict[str, list[int]] = {}
    for _ in range(1600):
        event = pair.far_side.events.get(timeout=DEADLINE)
        counts.setdefault(event.event, []).append(to_builtins(event.body)["count"])
    assert counts == {f"event {number}": list(range(200)) for number in range(8)}
    for thread in threads:
        thread.join()


def test_a_failure_is_raised_with_its_text(pair: Pair) -> None:
    def refuse() -> None:
        request = pair.far_side.requests.get(timeout=DEADLINE)
        pair.far.respond_error(request, "cannot do {that}", error_id=7, message="no")

    threading.Thread(target=refuse).start()
    with pytest.raises(RequestFailed) as failed:
        pair.near.request("do", {}, timeout=DEADLINE)
    assert str(failed.value) == "cannot do {that}"
    assert failed.value.response.message == "no"


@pytest.mark.parametrize("is_forwarded", [False, True])
def test_a_reason_that_quotes_a_long_text_is_shortened(pair: Pair, is_forwarded: bool) -> None:
    reason = "no variable is called '" + "x" * 70_000 + "' here"
    error = ErrorMessage(7, "{reason}", show_user=True, variables={"reason": reason})

    def refuse() -> None:
        request = pair.far_side.requests.get(timeout=DEADLINE)
        if is_forwarded:
            body = encode_body(ErrorBody(error=error))
            pair.far.forward_response(request, Response(1, "do", success=False, body=body, message=reason))
        else:
            pair.far.respond_error(request, reason, error_id=7, show_user=True)

    threading.Thread(target=refuse).start()
    with pytest.raises(RequestFailed) as failed:
        pair.near.request("do", {}, timeout=DEADLINE)
    answer = failed.value.response
    assert answer.message == answer.error_text
    assert answer.error_text.startswith("no variable is called 'xxx")
    assert answer.error_text.endswith("xxx' here")
    assert len(answer.error_text) < 2_100
    sent = decode(answer.body, ErrorBody, "failure").error
    assert sent is not None
    assert (sent.id, sent.show_user) == (7, True)


def test_no_answer_is_a_timeout_that_says_what_was_asked(pair: Pair) -> None:
    with pytest.raises(TimeoutError, match="'think'"):
        pair.near.request("think", {}, timeout=0.05)


def test_the_end_answers_what_is_pending_and_what_comes_after(pair: Pair) -> None:
    answers: queue.SimpleQueue[tuple[bool, str | None]] = queue.SimpleQueue()
    pair.near.send_request("wait", {}, lambda response: answers.put((response.success, response.message)))
    pair.far_side.requests.get(timeout=DEADLINE)
    pair.far.close()
    assert answers.get(timeout=DEADLINE) == (False, "disconnected")
    assert pair.near_side.ends.get(timeout=DEADLINE) is None
    with pytest.raises(RequestFailed, match="is gone"):
        pair.near.request("again", {}, timeout=DEADLINE)


@pytest.mark.parametrize(
    "body",
    [b"", b"[]", b"null", b"\xff", b'{"seq": 1}', b'{"seq": 1, "type": "request"}', b'{"seq": 1, "type": "event"}'],
)
def test_a_message_that_is_not_one_is_reported_and_the_next_is_read(pair: Pair, body: bytes) -> None:
    pair.raw.sendall(frame(body) + frame(b'{"seq": 2, "type": "event", "event": "hello"}'))
    assert pair.far_side.problems.get(timeout=DEADLINE)
    assert pair.far_side.events.get(timeout=DEADLINE).event == "hello"


def test_a_truncated_end_is_reported(pair: Pair) -> None:
    pair.raw.sendall(b"Content-Length: 100\r\n\r\n{")
    pair.raw.shutdown(socket.SHUT_WR)
    assert "middle" in (pair.far_side.ends.get(timeout=DEADLINE) or "")


DEEP = b"[" * 2000 + b"]" * 2000


@pytest.mark.parametrize(
    "body",
    [
        b'{"seq": 7, "type": "request", "command": "evaluate", "arguments": ' + DEEP + b"}",
        b'{"arguments": {"seq": 1, "a": [' + DEEP + b']}, "type": "request", "command": "evaluate", "seq": 7}',
        b'{"seq": 7, "type": "request", "command": "evaluate", "arguments": {"expression": "a',
        b'{"seq": 7, "type": "request", "command": "evaluate", "arguments": {]}',
        b'{"seq": 7, "type": "request", "command": "evaluate", "success": "no"}',
        b'{"seq": 7, "type": "request", "command": 5}',
        b'{"seq": 7, "type": "request"}',
    ],
    ids=["deep", "deep, seq last", "cut", "brackets", "wrong type", "command", "no command"],
)
def test_a_request_that_cannot_be_read_is_answered(pair: Pair, body: bytes) -> None:
    answers: queue.SimpleQueue[Response] = queue.SimpleQueue()
    pair.near._next_seq = 7
    pair.near._pending[7] = ("evaluate", answers.put)
    pair.raw.sendall(frame(body))
    answer = answers.get(timeout=DEADLINE)
    assert not answer.success
    assert answer.error_text
    assert pair.far_side.problems.get(timeout=DEADLINE) == answer.error_text
    pair.near.send_event("next")
    assert pair.far_side.events.get(timeout=DEADLINE).event == "next"


def test_half_a_character_is_sent_escaped_and_refused_where_it_comes_in(pair: Pair) -> None:
    pair.near.send_event("output", {"output": "half \ud83d", "\udc80": ["\ud83d"]})
    assert to_builtins(pair.far_side.events.get(timeout=DEADLINE).body) == {
        "output": "half \\ud83d",
        "\\udc80": ["\\ud83d"],
    }
    pair.raw.sendall(frame(b'{"seq": 2, "type": "request", "command": "x", "arguments": {"a": "\\ud83d"}}'))
    assert "JSON" in pair.far_side.problems.get(timeout=DEADLINE)
    for text in (b"\xed\xa0\xbd", b"\xf3", b"\xff\xfe"):
        pair.raw.sendall(frame(b'{"seq": 3, "type": "request", "command": "x", "arguments": {"a": "%s"}}' % text))
        assert "JSON" in pair.far_side.problems.get(timeout=DEADLINE)


def test_numbers_may_be_zero_and_those_that_nobody_answers_may_be_left_out(pair: Pair) -> None:
    pair.raw.sendall(frame(b'{"seq": 0, "type": "request", "command": "next"}'))
    assert pair.far_side.requests.get(timeout=DEADLINE).seq == 0
    assert b'"request_seq":0' in encode(Envelope("response", request_seq=0, command="next", success=True))
    response = parse(b'{"type": "response", "request_seq": 0, "success": true, "command": "runInTerminal"}')
    assert isinstance(response, Response)
    assert response.request_seq == 0
    pair.raw.sendall(frame(b'{"type": "request", "command": "next"}'))
    assert "'seq'" in pair.far_side.problems.get(timeout=DEADLINE)


def test_a_pipe_that_has_ended_holds_no_descriptor() -> None:
    reading, others = os.pipe()
    their_reading, writing = os.pipe()
    stream = PipeStream(reading, writing)
    os.write(others, b"last words")
    os.close(others)
    assert stream.read() == b"last words"
    assert stream.read() == stream.read() == b""
    stream.close()
    stream.close()
    for descriptor in (reading, writing):
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(descriptor)
    os.close(their_reading)
