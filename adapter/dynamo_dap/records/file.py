"""Reads and writes record files, which have one event per line, as JSON.

The first line is ``Started``, with the version of the format. Each event is written at once, with one ``write`` to a
file opened for appending, so a crash loses at most the last one. Beyond ``DETAILS_BOUND`` bytes the writer leaves out
nodes and guards; beyond ``BOUND`` it writes nothing. A record may come from anywhere, so the reader skips unreadable
lines and replaces control characters.
"""

from __future__ import annotations

import contextlib
import gc
import os
import shlex
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import msgspec

from dynamo_dap.protocol.user_files import open_regular
from dynamo_dap.records.events import VERSION, Event, Record, SourceRead, Started, Truncated
from dynamo_dap.records.texts import may_have_controls, without_controls

DETAILS_BOUND = 32 * 1024 * 1024
BOUND = 48 * 1024 * 1024
_LONGEST = 64 * 1024 * 1024
"""The most bytes that are read of a file; our own records are smaller."""
_FIRST_LINE = 1024 * 1024


class UnreadableRecord(Exception):
    """A record file cannot be read; the message is for the user."""


class UnfinishedRecord(UnreadableRecord):
    """A record has no whole first line: it may just have been created."""


class RecordWriter:
    """Writes one file, on any thread."""

    def __init__(self, path: Path, *, details_bound: int = DETAILS_BOUND, bound: int = BOUND) -> None:
        """Create the file. Raises ``OSError`` if it cannot be created."""
        path.parent.mkdir(parents=True, exist_ok=True)
        # Only the owner may read facts about the program.
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._details_bound = details_bound
        self._bound = bound
        self._encoder = msgspec.json.Encoder()
        self._lock = threading.Lock()
        self._size = 0
        self._is_truncated = False

    def write(self, event: Event) -> None:
        """Append an event."""
        with self._lock:
            if self._size > self._details_bound:
                if not self._is_truncated:
                    self._is_truncated = True
                    self._append(Truncated())
                event = event.without_details()
            if self._size <= self._bound:
                self._append(event)

    def _append(self, event: Event) -> None:
        line = self._encoder.encode(event) + b"\n"
        self._size += len(line)
        os.write(self._descriptor, line)


class RecordReader:
    """Reads a record as it is written. Runs on one thread."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.record = Record()
        self._decoder = msgspec.json.Decoder(Event)
        self._offset = 0
        self._lines = 0

    def read(self) -> bool:
        """Read new lines; return whether there were any. The next call reads an incomplete last line.

        Raises:
            UnreadableRecord: the file is not a record, or has a newer version of the format.
        """
        try:
            with open_regular(self.path) as file:
                file.seek(self._offset)
                text = file.read(max(0, _LONGEST - self._offset))
        except OSError as error:
            raise UnreadableRecord(f"cannot read {self.path}: {error.strerror or error}") from None
        whole = text[: text.rfind(b"\n") + 1]
        self._offset += len(whole)
        is_suspicious = may_have_controls(whole)
        with _without_collections():
            for line in whole.split(b"\n")[:-1]:
                self._lines += 1
                self._take(without_controls(line) if is_suspicious else line)
        return bool(whole)

    def _take(self, line: bytes) -> None:
        if self._lines == 1:
            self.record.apply(_first(self.path, line))
        elif line:
            try:
                event = self._decoder.decode(line)
            except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
                self.record.unreadable_lines += 1
            else:
                self.record.apply(event)


@contextlib.contextmanager
def _without_collections() -> Iterator[None]:
    """Pause garbage collection, which would visit a million new objects again and again and double the time."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def read_record(path: Path) -> Record:
    """Return the record in a file, without an incomplete last line.

    Raises:
        UnreadableRecord: the file is not a record, or has a newer version of the format.
    """
    reader = RecordReader(path)
    if not reader.read():
        raise _not_a_record(path)
    return reader.record


def _not_a_record(path: Path) -> UnreadableRecord:
    text = f"{path} is not a record of dynamo-dap"
    if path.suffix in (".py", ".pyw"):
        text += f"; to make one of this program: dynamo-dap run {shlex.quote(str(path))}"
    return UnreadableRecord(text)


def program_of(path: Path) -> Started:
    """Return the first event of a record file, which describes the program.

    Raises:
        UnfinishedRecord: the program may still be writing it.
        UnreadableRecord: the file is not a record, or has a newer version of the format.
    """
    try:
        with open_regular(path) as file:
            line = file.readline(_FIRST_LINE)
    except OSError as error:
        raise UnreadableRecord(f"cannot read {path}: {error.strerror or error}") from None
    if not line.endswith(b"\n") and len(line) < _FIRST_LINE:
        raise UnfinishedRecord(str(_not_a_record(path)))
    return _first(path, line)


class RecordScan:
    """Finds facts about a record without decoding it.

    A record may have many megabytes, so only the parts that are needed are read. Runs on one thread.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._has_finished = False
        self._sources: list[str] = []
        self._offset = 0
        """The position up to which the file was searched for sources."""
        self._size = -1
        """The file's length at the last search for a finished compile."""

    def has_finished(self) -> bool:
        """Return whether the record has the end of a compile; False if it is unreadable."""
        if not self._has_finished:
            with contextlib.suppress(OSError), open_regular(self.path) as file:
                size = file.seek(0, os.SEEK_END)
                if size != self._size:
                    self._has_finished, self._size = _has_finished(file, size), size
        return self._has_finished

    def sources(self) -> list[str]:
        """Return the files of the user's compiled functions so far."""
        with contextlib.suppress(OSError), open_regular(self.path) as file:
            file.seek(self._offset)
            text = file.read(max(0, _LONGEST - self._offset))
            whole = text[: text.rfind(b"\n") + 1]
            self._offset += len(whole)
            at = whole.find(_SOURCE)
            while at >= 0:
                end = whole.find(b"\n", at)
                with contextlib.suppress(msgspec.DecodeError, RecursionError, UnicodeDecodeError):
                    self._sources.append(msgspec.json.decode(without_controls(whole[at:end]), type=SourceRead).path)
                at = whole.find(_SOURCE, end)
        return self._sources


def _has_finished(file: BinaryIO, size: int) -> bool:
    end = min(size, _LONGEST)
    while end > 0:
        start = max(0, end - _BLOCK)
        file.seek(start)
        # The mark may lie across the end of this block.
        if _ENDED in file.read(end - start + len(_ENDED)):
            return True
        end = start
    return False


_BLOCK = 1024 * 1024
_ENDED = b'{"event":"compileEnded",'
_SOURCE = b'{"event":"sourceRead",'


def _first(path: Path, line: bytes) -> Started:
    try:
        started = msgspec.json.decode(without_controls(line), type=Started)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        raise _not_a_record(path) from None
    if started.version > VERSION:
        raise UnreadableRecord(
            f"{path} has version {started.version} of the format, this dynamo-dap knows {VERSION}: upgrade it"
        )
    return started
