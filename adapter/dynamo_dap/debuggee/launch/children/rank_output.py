"""Prefixes the output lines of a rank of a distributed job with its name, or sends them to its own session.

``sys.stdout`` and ``sys.stderr`` of a rank write through a stream of the debugger, line by line, from before its
program runs to its end. Output of C code bypasses this stream, and so does the output of a rank with a file (torchrun's
``--redirects``, ``--tee``). Runs on any thread of the program.
"""

from __future__ import annotations

import codecs
import io
import os
import re
import sys
from collections.abc import Callable

from dynamo_dap.protocol.requests.options import OWN_CONSOLE, OWN_TERMINAL, PLAIN
from dynamo_dap.protocol.requests.ranks import Rank

_PIECES = re.compile(rb"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+")

Show = Callable[[str, str], bool]
"""Shows a text of a DAP output category in the session's console; returns False without a console."""


def divert(rank: Rank, how: str, show: Show) -> None:
    """Divert this ``rank``'s output from now on according to ``how``, the option ``rankOutput``."""
    if how == PLAIN:
        return
    for name, descriptor in (("stdout", 1), ("stderr", 2)):
        stream = getattr(sys, name)
        if _writes_to(stream, descriptor) and _is_launchers(descriptor):
            prefix = f"[rank {rank.number}] ".encode()
            raw = _RankOutput(descriptor, prefix, name, show if how in (OWN_CONSOLE, OWN_TERMINAL) else None)
            stream.flush()
            setattr(sys, name, _WholeLines(io.BufferedWriter(raw), stream.encoding, stream.errors))


def _writes_to(stream: object, descriptor: int) -> bool:
    """Return whether an ordinary stream of Python writes to ``descriptor``."""
    try:
        return isinstance(stream, io.TextIOWrapper) and stream.fileno() == descriptor
    except (OSError, ValueError):
        return False


def _is_launchers(descriptor: int) -> bool:
    """Return whether this process inherited the descriptor from the launcher; True if unknown."""
    try:
        of_launcher = os.stat(f"/proc/{os.getppid()}/fd/{descriptor}")
    except OSError:
        return True
    return os.path.samestat(of_launcher, os.fstat(descriptor))


class _WholeLines(io.TextIOWrapper):
    """Writes text in whole lines, since other ranks write to the same console."""

    def write(self, text: str, /) -> int:
        count = super().write(text)
        if text.endswith("\n") or "\r" in text:
            self.flush()
        return count


class _RankOutput(io.RawIOBase):
    """Writes to a file descriptor, or shows it in the console."""

    def __init__(self, descriptor: int, prefix: bytes, category: str, show: Show | None) -> None:
        self._descriptor = descriptor
        self._prefix = prefix
        self._category = category
        self._show = show
        self._begins_line = True
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._descriptor

    def isatty(self) -> bool:
        return os.isatty(self._descriptor)

    def write(self, data: object, /) -> int:
        written = bytes(data)  # type: ignore[call-overload]  # any buffer
        if self._show is None or not self._show(self._decoder.decode(written), self._category):
            self._write_prefixed(written)
        return len(written)

    def _write_prefixed(self, written: bytes) -> None:
        out = bytearray()
        for piece in _PIECES.findall(written):
            out += self._prefix + piece if self._begins_line else piece
            self._begins_line = piece[-1:] in b"\r\n"
        left = memoryview(out)
        while left:
            left = left[os.write(self._descriptor, left) :]
