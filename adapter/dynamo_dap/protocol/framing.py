"""Base protocol framing: ``Content-Length`` headers around JSON bodies (DAP overview, "Base Protocol").

Pure functions and one incremental parser. Runs in whichever thread reads or writes a connection; a ``FrameParser``
belongs to one reader and lives as long as its connection.
"""

from __future__ import annotations

MAXIMUM_HEADER_BYTES = 8 * 1024
MAXIMUM_BODY_BYTES = 256 * 1024 * 1024

_SEPARATOR = b"\r\n\r\n"


class FramingError(Exception):
    """The byte stream is not the DAP base protocol; it cannot be resynchronised and has to be closed."""


def frame(body: bytes) -> bytes:
    """Return ``body`` with its header, as one byte string, to be written by one ``send``."""
    return b"Content-Length: %d\r\n\r\n%b" % (len(body), body)


class FrameParser:
    """Cuts a stream of bytes into message bodies.

    Bytes go in by ``feed`` in pieces of any size; complete bodies come out in order.
    """

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._expected: int | None = None

    @property
    def is_mid_message(self) -> bool:
        """Whether bytes of an unfinished message are waiting: a stream that ends now was truncated."""
        return self._expected is not None or bool(self._buffer)

    def feed(self, data: bytes) -> list[bytes]:
        """Take in ``data`` and return the bodies that are complete now.

        Raises:
            FramingError: a header is not of the base protocol, is too long, or announces too large a body.
        """
        self._buffer += data
        bodies: list[bytes] = []
        while True:
            if self._expected is None:
                self._expected = self._take_header()
                if self._expected is None:
                    return bodies
            if len(self._buffer) < self._expected:
                return bodies
            bodies.append(bytes(self._buffer[: self._expected]))
            del self._buffer[: self._expected]
            self._expected = None

    def _take_header(self) -> int | None:
        end = self._buffer.find(_SEPARATOR)
        if end < 0:
            self._check_partial_header()
            return None
        if end > MAXIMUM_HEADER_BYTES:
            raise FramingError(f"header longer than {MAXIMUM_HEADER_BYTES} bytes")
        header = bytes(self._buffer[:end])
        del self._buffer[: end + len(_SEPARATOR)]
        return _content_length(header)

    def _check_partial_header(self) -> None:
        if len(self._buffer) > MAXIMUM_HEADER_BYTES:
            raise FramingError(f"no end of header within {MAXIMUM_HEADER_BYTES} bytes")
        first_line, found, _ = bytes(self._buffer).partition(b"\r\n")
        if found:
            _split_field(first_line)
        elif b"\n" in first_line or (first_line and not 0x20 < first_line[0] < 0x7F):
            raise FramingError(f"expected a header such as 'Content-Length: 119', got {_preview(first_line)}")


def _content_length(header: bytes) -> int:
    length: int | None = None
    for line in header.split(b"\r\n"):
        name, value = _split_field(line)
        if name.lower() != b"content-length":
            continue
        if not value.isdigit():
            raise FramingError(f"Content-Length is not a number: {_preview(value)}")
        length = int(value)
    if length is None:
        raise FramingError(f"header without Content-Length: {_preview(header)}")
    if length > MAXIMUM_BODY_BYTES:
        raise FramingError(f"Content-Length {length} is more than the {MAXIMUM_BODY_BYTES} bytes accepted")
    return length


def _split_field(line: bytes) -> tuple[bytes, bytes]:
    name, colon, value = line.partition(b":")
    if not colon or not name.strip() or b" " in name.strip():
        raise FramingError(f"expected a header such as 'Content-Length: 119', got {_preview(line)}")
    return name.strip(), value.strip()


def _preview(data: bytes) -> str:
    shown = data[:60].decode("latin-1")
    return repr(shown + ("..." if len(data) > 60 else ""))
