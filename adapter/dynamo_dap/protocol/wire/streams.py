"""Implements the byte streams that carry DAP: a socket, or a pair of pipes.

One thread reads a ``ByteStream``; any thread writes (the connection serialises writes). It lives as long as its
connection.
"""

from __future__ import annotations

import contextlib
import os
import socket
from typing import Protocol

_CHUNK_BYTES = 64 * 1024
_CLOSED = -1
"""Replaces a closed descriptor."""
_QUICK_ACKNOWLEDGEMENT: int | None = getattr(socket, "TCP_QUICKACK", None)


class ByteStream(Protocol):
    """The stream of a connection; ``read`` returns ``b""`` at its end."""

    def read(self) -> bytes:
        """Block until some bytes arrive, and return them; ``b""`` if the other end has closed."""

    def write(self, data: bytes) -> None:
        """Write all of ``data``. Raises ``OSError`` if the other end is gone."""

    def abandon(self) -> None:
        """Release the stream in a forked process, without closing the connection."""

    def close(self) -> None:
        """Close both directions and wake a blocked ``read``; harmless if closed already."""


class SocketStream:
    """A connected socket. Over TCP, Nagle's algorithm is off, because every message is one ``send``.

    A program that closes all descriptors also closes this one, and may reuse its number: from then on nothing is read,
    written or closed.
    """

    def __init__(self, connected: socket.socket) -> None:
        self._is_tcp = connected.family != getattr(socket, "AF_UNIX", None)
        if self._is_tcp:
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connected.settimeout(None)
        self._socket = connected
        self._identity = _identity_of(connected)

    @property
    def is_closed_by_program(self) -> bool:
        """Whether the program has closed the descriptor."""
        return self._socket.fileno() != _CLOSED and _identity_of(self._socket) != self._identity

    def read(self) -> bytes:
        """Return the next bytes; ``b""`` also when the socket was reset or closed under the reader."""
        if self.is_closed_by_program:
            return b""
        try:
            if self._is_tcp and _QUICK_ACKNOWLEDGEMENT is not None:
                # Linux clears this option after every read. Without it, a peer that writes a message in two pieces and
                # uses Nagle's algorithm, as pydevd does, would wait 40 ms for the acknowledgement of the first piece.
                self._socket.setsockopt(socket.IPPROTO_TCP, _QUICK_ACKNOWLEDGEMENT, 1)
            return self._socket.recv(_CHUNK_BYTES)
        except OSError:
            return b""

    def write(self, data: bytes) -> None:
        """Send all of ``data``."""
        if self.is_closed_by_program:
            raise OSError("the program has closed the socket")
        self._socket.sendall(data)

    def abandon(self) -> None:
        """Close this process's descriptor, but leave the connection to the parent process."""
        if self.is_closed_by_program:
            self._socket.detach()
        self._socket.close()

    def close(self) -> None:
        """Shut the socket down, which wakes its reader, then close it."""
        if self.is_closed_by_program:
            self._socket.detach()
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()


def _identity_of(connected: socket.socket) -> tuple[int, int] | None:
    """Return the identity of a descriptor's socket; None if it is closed."""
    try:
        found = os.fstat(connected.fileno())
    except OSError:
        return None
    return found.st_dev, found.st_ino


class PipeStream:
    """Two file descriptors, read from and written to without buffering."""

    def __init__(self, read_descriptor: int, write_descriptor: int) -> None:
        self._read_descriptor = read_descriptor
        self._write_descriptor = write_descriptor
        self._closed = False

    def read(self) -> bytes:
        """Return the next bytes; ``b""`` also after the pipe broke."""
        try:
            data = os.read(self._read_descriptor, _CHUNK_BYTES)
        except OSError:
            data = b""
        if not data:
            self._close_reading()
        return data

    def write(self, data: bytes) -> None:
        """Write all of ``data``."""
        view = memoryview(data)
        while view:
            written = os.write(self._write_descriptor, view)
            view = view[written:]

    def abandon(self) -> None:
        """Close this process's descriptors. The reader exists only in the parent process."""
        self._close_reading()
        self.close()

    def _close_reading(self) -> None:
        descriptor, self._read_descriptor = self._read_descriptor, _CLOSED
        if descriptor != _CLOSED:
            with contextlib.suppress(OSError):
                os.close(descriptor)

    def close(self) -> None:
        """Close the writing end. The blocked reader thread closes the reading end once the other side has closed."""
        if not self._closed:
            self._closed = True
            with contextlib.suppress(OSError):
                os.close(self._write_descriptor)


def take_standard_streams() -> PipeStream:
    """Reserve stdin and stdout for the protocol, so that no stray print or child process can corrupt it.

    The protocol gets private duplicates; descriptor 0 then reads nothing and descriptor 1 writes to stderr.
    """
    read_descriptor = os.dup(0)
    write_descriptor = os.dup(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    return PipeStream(read_descriptor, write_descriptor)
