"""Reads the entries of one torch log as a stream, in bounded memory. Runs on one thread.

An entry is a line with glog's prefix (``V1124 18:58:20.614000 7084 torch/_dynamo/utils.py:2350] ``) and JSON; an entry
with ``has_payload`` continues in lines that begin with a tab. A log may be cut off, or have torn lines: what is not an
entry is counted and skipped.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import msgspec

from dynamo_dap.protocol.user_files import open_regular
from dynamo_dap.records.texts import may_have_controls, without_controls

_BLOCK = 4 * 1024 * 1024
_LONGEST = 64 * 1024 * 1024
"""Bytes of the longest entry that is read."""
_PREFIX = re.compile(
    rb"[VIWEC](?P<month>\d\d)(?P<day>\d\d) (?P<time>\d\d:\d\d:\d\d\.\d+) (?P<process>\d+) [^\]\n]*\] (?=\{)"
)
_START = re.compile(rb"\n(?=[VIWEC]\d{4} \d\d:)")
_KIND = re.compile(rb'\{"(?P<kind>\w+)": ')
_ARTIFACT = re.compile(rb'\{"artifact": \{"name": "(?P<name>[^"\\]*)"')
_HEADER = 4096
_TORN = re.compile(rb"\n(?!\t)")
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
"""Characters that a terminal or an editor would obey, except tab and line feed."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry, not decoded yet."""

    kind: str
    """Its first key: ``dynamo_start``, ``artifact`` ..."""
    name: str
    """An artifact's name, ``recompile_reasons``; else empty."""
    process: int
    time: str
    """``1124 18:58:20.614000``: month, day and time of that machine."""
    metadata: bytes
    """JSON, without control characters."""
    content: bytes
    """The payload's lines, as in the log."""

    @property
    def payload(self) -> str:
        """Return the payload, without control characters."""
        return harmless(self.content.replace(b"\n\t", b"\n")[1:].decode(errors="replace")) if self.content else ""

    def is_whole(self, digest: str | None) -> bool:
        """Return whether the payload matches torch's MD5."""
        if digest is None:
            return not self.content
        text = self.content.replace(b"\n\t", b"\n")[1:]
        return hashlib.md5(text, usedforsecurity=False).hexdigest() == digest


def harmless(text: str) -> str:
    """Return a text with U+FFFD for each control character of a terminal or an editor."""
    return _CONTROLS.sub("\N{REPLACEMENT CHARACTER}", text)


class LogReader:
    """Reads a log to its end. Entries of ``unwanted`` kinds are skipped undecoded."""

    def __init__(self, path: Path, unwanted: frozenset[str] = frozenset()) -> None:
        self._path = path
        self._unwanted = unwanted
        self.entries = 0
        """The number of entries so far, unwanted ones included."""
        self.unreadable = 0
        """The number of pieces that are not entries, or are too long."""
        self.position = 0
        """The number of bytes that were read."""

    def __iter__(self) -> Iterator[Entry]:
        """Yield the entries. Raises ``OSError`` if the log cannot be read."""
        with open_regular(self._path) as file:
            for piece in self._pieces(file):
                found = self._entry(piece)
                if found is not None:
                    yield found

    def _pieces(self, file: BinaryIO) -> Iterator[bytes]:
        """Yield the text from each start of an entry to the next."""
        rest = b""
        while block := self._block(file):
            # The end of the previous block may have cut the start of an entry in two.
            searched = max(0, len(rest) - 16)
            rest += block
            begin = 0
            for match in _START.finditer(rest, searched):
                yield rest[begin : match.start()]
                begin = match.end()
            rest = rest[begin:]
            if len(rest) > _LONGEST:
                self.unreadable += 1
                rest = self._skip_long(file)
        if rest:
            yield rest.removesuffix(b"\n")

    def _block(self, file: BinaryIO) -> bytes:
        block = file.read(_BLOCK)
        self.position += len(block)
        return block

    def _skip_long(self, file: BinaryIO) -> bytes:
        tail = b""
        while block := self._block(file):
            tail = tail[-16:] + block
            match = _START.search(tail)
            if match is not None:
                return tail[match.end() :]
        return b""

    def _entry(self, piece: bytes) -> Entry | None:
        prefix = _PREFIX.match(piece, 0, _HEADER)
        kind = _KIND.match(piece, prefix.end()) if prefix is not None else None
        if prefix is None or kind is None:
            self.unreadable += bool(piece.strip())
            return None
        self.entries += 1
        known = kind["kind"].decode()
        if known in self._unwanted:
            return None
        end = piece.find(b"\n", prefix.end())
        metadata, content = (piece[prefix.end() :], b"") if end < 0 else (piece[prefix.end() : end], piece[end:])
        artifact = _ARTIFACT.match(metadata)
        if may_have_controls(metadata):
            metadata = without_controls(metadata)
        when = f"{prefix['month'].decode()}{prefix['day'].decode()} {prefix['time'].decode()}"
        name = artifact["name"].decode(errors="replace") if artifact else ""
        return Entry(known, harmless(name), int(prefix["process"]), when, metadata, _indented(content))


def _indented(content: bytes) -> bytes:
    """Return the payload's lines, without torn lines of another entry after them."""
    torn = _TORN.search(content)
    return content if torn is None else content[: torn.start()]


class Frame(msgspec.Struct, gc=False):
    """A frame of a stack in a log."""

    line: int = 0
    name: str = ""
    filename: int | str = -1
    loc: str | None = None


class Context(msgspec.Struct, gc=False):
    """The common part of every entry about a compile."""

    frame_id: int | None = None
    frame_compile_id: int | None = None
    compiled_autograd_id: int | None = None
    attempt: int = 0
    rank: int | None = None
    has_payload: str | None = None

    @property
    def compile_id(self) -> str | None:
        """Return ``0/1``; ``!2/0/1`` in a compile of compiled autograd; None outside of compiles."""
        if self.frame_id is None:
            return None if self.compiled_autograd_id is None else f"!{self.compiled_autograd_id}"
        number = f"{self.frame_id}/{self.frame_compile_id or 0}"
        return number if self.compiled_autograd_id is None else f"!{self.compiled_autograd_id}/{number}"
