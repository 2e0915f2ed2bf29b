"""Record files: an event a line, as JSON, written as it goes: a crash leaves all but the last.

The first line is ``Started``, with the version of the format. Each line is one ``write`` to a file that is opened for
appending; what is empty is left out.
Beyond ``DETAILS_BOUND`` bytes nodes and guards are left out, beyond ``BOUND`` nothing is written any more.
"""

from __future__ import annotations

import os
import threading
from pathlib import Path

import msgspec

from dynamo_dap.record.events import VERSION, Event, GraphMade, GuardsMade, Started, Truncated
from dynamo_dap.record.session import Session

DETAILS_BOUND = 32 * 1024 * 1024
BOUND = 48 * 1024 * 1024


class UnreadableRecord(Exception):
    """A record file cannot be read; the text is for a person."""


class RecordWriter:
    """Writes one file, on whichever threads have something to tell. The file is made with the first event."""

    def __init__(self, path: Path, *, details_bound: int = DETAILS_BOUND, bound: int = BOUND) -> None:
        """Raises ``OSError`` when the file cannot be made."""
        path.parent.mkdir(parents=True, exist_ok=True)
        # Only its owner may read what a program computes.
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
                event = _without_details(event)
            if self._size <= self._bound:
                self._append(event)

    def _append(self, event: Event) -> None:
        line = self._encoder.encode(event) + b"\n"
        self._size += len(line)
        os.write(self._descriptor, line)


def _without_details(event: Event) -> Event:
    if isinstance(event, GraphMade):
        return GraphMade(event.id, msgspec.structs.replace(event.graph, nodes=[]))
    if isinstance(event, GuardsMade):
        return GuardsMade(event.id, event.count, [])
    return event


def read_record(path: Path) -> Session:
    """Return what a record file tells. A last line that was cut off is left out.

    Raises:
        UnreadableRecord: it is no record, or one of a newer version of the format.
    """
    try:
        lines = path.read_bytes().split(b"\n")
    except OSError as error:
        raise UnreadableRecord(f"cannot read {path}: {error.strerror or error}") from None
    session = Session()
    session.apply(_first(path, lines[0]))
    decoder = msgspec.json.Decoder(Event)
    for number, line in enumerate(lines[1:], start=2):
        if not line:
            continue
        try:
            session.apply(decoder.decode(line))
        except msgspec.DecodeError as error:
            if number == len(lines):
                break
            raise UnreadableRecord(f"{path}, line {number}: {error}") from None
    return session


def _first(path: Path, line: bytes) -> Started:
    try:
        started = msgspec.json.decode(line, type=Started)
    except msgspec.DecodeError:
        raise UnreadableRecord(f"{path} is no record of dynamo-dap") from None
    if started.version > VERSION:
        raise UnreadableRecord(
            f"{path} has version {started.version} of the format, this dynamo-dap knows {VERSION}: upgrade it"
        )
    return started
