"""The base protocol: messages come out whole however the stream is cut, and invalid DAP is reported."""

from __future__ import annotations

import random

import pytest

from dynamo_dap.protocol.wire.framing import MAXIMUM_BODY_BYTES, FrameParser, FramingError, MessageTooLarge, frame

BODIES = [b"{}", b"", b'{"text": "\xc3\xa4"}', b"x" * 5000, b"Content-Length: 3\r\n\r\nabc"]


def test_messages_cut_anywhere_come_out_whole() -> None:
    stream = b"".join(frame(body) for body in BODIES)
    for size in (1, 2, 3, 7, 64, len(stream)):
        parser = FrameParser()
        bodies = [body for at in range(0, len(stream), size) for body in parser.feed(stream[at : at + size])]
        assert bodies == BODIES
        assert not parser.is_mid_message


def test_other_headers_and_any_case_are_accepted() -> None:
    parser = FrameParser()
    assert parser.feed(b"X-Trace: 1\r\ncontent-length:2\r\n\r\n{}") == [b"{}"]


@pytest.mark.parametrize(
    "cut", [b"C", b"Content-Length: 5", b"Content-Length: 5\r\n\r\n", b"Content-Length: 5\r\n\r\n{}"]
)
def test_a_stream_that_ends_here_is_truncated(cut: bytes) -> None:
    parser = FrameParser()
    assert parser.feed(cut) == []
    assert parser.is_mid_message


@pytest.mark.parametrize(
    "garbage",
    [
        b"GET / HTTP/1.1\r\n",
        b"\x00\x01",
        b'{"seq": 1}\n',
        b"Content-Length: -1\r\n\r\n",
        b"Content-Length: 1e3\r\n\r\n",
        b"Other: 1\r\n\r\n",
        b"a" * 10000,
        b"A: " + b"b" * 10000 + b"\r\n\r\n",
    ],
)
def test_what_is_no_header_is_refused_at_once(garbage: bytes) -> None:
    with pytest.raises(FramingError) as refused:
        FrameParser().feed(garbage)
    assert str(refused.value)


@pytest.mark.parametrize("length", [b"%d" % (MAXIMUM_BODY_BYTES + 1), b"1" * 5000])
def test_a_message_that_is_too_large_is_skipped(length: bytes) -> None:
    """Its size is reported, nothing of it is kept, and the next message is read, however the stream is cut."""
    body = b'{"text": "Content-Length: 2\\r\\n\\r\\n"}' * 100
    stream = b"Content-Length: " + length + b"\r\n\r\n" + body + frame(b"{}") + frame(b"[]")
    for size in (1, 3, 1000, len(stream)):
        parser = FrameParser()
        found = [one for at in range(0, len(stream), size) for one in parser.feed(stream[at : at + size])]
        assert [type(one) for one in found] == [MessageTooLarge, bytes, bytes]
        assert "accepted" in str(found[0])
        assert found[1:] == [b"{}", b"[]"]
        assert not parser.is_mid_message


def test_unauthenticated_connections_may_send_little() -> None:
    parser = FrameParser(100)
    assert isinstance(parser.feed(b"Content-Length: 101\r\n\r\n")[0], MessageTooLarge)
    parser.feed(b"x" * 1_000_000)
    assert len(parser._buffer) < 100
    parser.maximum_body_bytes = 200
    assert parser.feed(frame(b" " * 150)) == [b" " * 150]


def test_random_bytes_never_do_anything_else() -> None:
    """Ten thousand mutated streams: bodies, or a ``FramingError``, and nothing kept beyond its bounds."""
    dice = random.Random(20)
    stream = b"".join(frame(body) for body in BODIES)
    refusals = []
    for _ in range(10_000):
        mutated = bytearray(stream)
        for _ in range(dice.randrange(1, 6)):
            at = dice.randrange(len(mutated))
            mutated[at : at + dice.randrange(3)] = dice.randbytes(dice.randrange(3))
        parser = FrameParser()
        at = 0
        try:
            while at < len(mutated):
                size = dice.randrange(1, 400)
                parser.feed(bytes(mutated[at : at + size]))
                at += size
        except FramingError as error:
            refusals.append(str(error))
    assert 0 < len(refusals) < 10_000
    assert max(map(len, refusals)) < 300
