"""Implements the base protocol's framing: ``Content-Length`` headers around JSON bodies.

Pure functions and one incremental parser. Runs in whichever thread reads or writes a connection; a ``FrameParser``
belongs to one reader and lives as long as its connection.
"""

from __future__ import annotations

import re

MAXIMUM_HEADER_BYTES = 8 * 1024
MAXIMUM_BODY_BYTES = 256 * 1024 * 1024
MAXIMUM_UNAUTHENTICATED_BYTES = 64 * 1024
"""Maximum size of a message from an unauthenticated sender."""

_SEPARATOR = b"\r\n\r\n"
_MAXIMUM_DIGITS = 18
_HEADER = re.compile(rb"Content-Length: *\d{1,%d}\r\n\r\n" % _MAXIMUM_DIGITS, re.IGNORECASE)
_HEADER_BYTES = 64
"""The most bytes of a header that ``_HEADER`` matches."""


class FramingError(Exception):
    """The byte stream violates the base protocol; it cannot be resynchronised and must be closed."""


class MessageTooLarge(FramingError):
    """A message announces too many bytes; the text is for the user. Later messages can be read."""


def frame(body: bytes) -> bytes:
    """Return ``body`` with its header as one byte string, for a single ``send``."""
    return b"Content-Length: %d\r\n\r\n%b" % (len(body), body)


class FrameParser:
    """Cuts a byte stream into message bodies.

    ``feed`` takes bytes in pieces of any size; complete bodies come out in order. A message that announces too large a
    body is skipped: the next header is found, since no JSON can look like one.
    """

    def __init__(self, maximum_body_bytes: int = MAXIMUM_BODY_BYTES) -> None:
        """Keep at most ``maximum_body_bytes`` in memory; the limit may change between calls of ``feed``."""
        self.maximum_body_bytes = maximum_body_bytes
        self._buffer = bytearray()
        self._expected: int | None = None
        self._is_skipping = False

    @property
    def is_mid_message(self) -> bool:
        """Whether bytes of an unfinished message are waiting: a stream that ends now was truncated."""
        return self._expected is not None or self._is_skipping or bool(self._buffer)

    @property
    def wanted(self) -> int:
        """How many bytes can be read without reading into the next message."""
        return 1 if self._expected is None else self._expected - len(self._buffer)

    def feed(self, data: bytes) -> list[bytes | MessageTooLarge]:
        """Take ``data``; return the complete bodies, and markers for skipped ones.

        Raises:
            FramingError: a header is not of the base protocol, or is too long.
        """
        self._buffer += data
        bodies: list[bytes | MessageTooLarge] = []
        while True:
            if self._is_skipping and not self._skip():
                return bodies
            if self._expected is None:
                try:
                    self._expected = self._take_header()
                except MessageTooLarge as error:
                    self._is_skipping = True
                    bodies.append(error)
                    continue
                if self._expected is None:
                    return bodies
            if len(self._buffer) < self._expected:
                return bodies
            bodies.append(bytes(self._buffer[: self._expected]))
            del self._buffer[: self._expected]
            self._expected = None

    def _skip(self) -> bool:
        """Drop bytes up to the next header; return False if it has not arrived yet."""
        found = _HEADER.search(self._buffer)
        self._is_skipping = found is None
        del self._buffer[: found.start() if found is not None else max(0, len(self._buffer) - _HEADER_BYTES)]
        return found is not None

    def _take_header(self) -> int | None:
        end = self._buffer.find(_SEPARATOR)
        if end < 0:
            self._check_partial_header()
            return None
        if end > MAXIMUM_HEADER_BYTES:
            raise FramingError(f"header longer than {MAXIMUM_HEADER_BYTES} bytes")
        header = bytes(self._buffer[:end])
        del self._buffer[: end + len(_SEPARATOR)]
        return _content_length(header, self.maximum_body_bytes)

    def _check_partial_header(self) -> None:
        if len(self._buffer) > MAXIMUM_HEADER_BYTES:
            raise FramingError(f"no end of header within {MAXIMUM_HEADER_BYTES} bytes")
        first_line, found, _ = bytes(self._buffer).partition(b"\r\n")
        if found:
            _split_field(first_line)
        elif b"\n" in first_line or (first_line and not 0x20 < first_line[0] < 0x7F):
            raise FramingError(f"expected a header such as 'Content-Length: 119', got {_preview(first_line)}")


def _content_length(header: bytes, maximum: int) -> int:
    length: int | None = None
    for line in header.split(b"\r\n"):
        name, value = _split_field(line)
        if name.lower() != b"content-length":
            continue
        if not value.isdigit():
            raise FramingError(f"Content-Length is not a number: {_preview(value)}")
        # Python refuses to parse numbers of several thousand digits.
        significant = value.lstrip(b"0") or b"0"
        length = int(significant) if len(significant) <= _MAXIMUM_DIGITS else maximum + 1
        if length > maximum:
            raise MessageTooLarge(f"Content-Length {_preview(value)} is more than the {maximum} bytes accepted")
    if length is None:
        raise FramingError(f"header without Content-Length: {_preview(header)}")
    return length


def _split_field(line: bytes) -> tuple[bytes, bytes]:
    name, colon, value = line.partition(b":")
    if not colon or not name.strip() or b" " in name.strip():
        raise FramingError(f"expected a header such as 'Content-Length: 119', got {_preview(line)}")
    return name.strip(), value.strip()


def _preview(data: bytes) -> str:
    shown = data[:60].decode("latin-1")
    return repr(shown + ("..." if len(data) > 60 else ""))
