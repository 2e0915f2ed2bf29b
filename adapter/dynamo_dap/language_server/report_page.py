"""Writes the report that an editor opens: first a part of a large log, then the whole.

``begin`` and ``finish`` run on worker threads, never at the same time; ``stop`` runs on any thread.
"""

from __future__ import annotations

import logging
import threading
from pathlib import Path

from dynamo_dap.records.file import UnreadableRecord, read_record
from dynamo_dap.records.report.output import write_beginning, write_page, write_stopped
from dynamo_dap.trace_logs.logs import Mappings, TraceReader, is_trace

_log = logging.getLogger(__name__)

_FIRST_PAGE_SECONDS = 1.0
_PIECE_SECONDS = 1.0


class ReportPage:
    """Writes the page of one record, trace log or folder of trace logs. Lives as long as its log is read."""

    def __init__(self, path: Path, mappings: Mappings = ()) -> None:
        self._path = path
        self._mappings = mappings
        self._reader: TraceReader | None = None
        """Reads the rest of a log whose first part is on the page."""
        self._is_stopped = threading.Event()

    def begin(self) -> Path:
        """Write the page, for a large log only on its first part; return its path.

        Raises:
            UnreadableRecord: the record or log cannot be read, or the page cannot be written.
        """
        if not is_trace(self._path):
            return write_page(read_record(self._path), self._path)
        reader = TraceReader(self._path, self._mappings)
        if reader.read(_FIRST_PAGE_SECONDS):
            return write_page(reader.record, self._path)
        self._reader = reader
        return write_beginning(reader, self._path)

    def finish(self) -> None:
        """Replace the page of the first part by that of the whole log."""
        if self._reader is None:
            return
        try:
            if self._read_rest(self._reader):
                write_page(self._reader.record, self._path)
            else:
                write_stopped(self._reader, self._path)
        except UnreadableRecord as problem:
            _log.warning("%s", problem)

    def stop(self) -> None:
        """Let ``finish`` end soon."""
        self._is_stopped.set()

    def _read_rest(self, reader: TraceReader) -> bool:
        """Read the log to its end; return False if reading was stopped or failed."""
        try:
            while not self._is_stopped.is_set():
                if reader.read(_PIECE_SECONDS):
                    return True
        except UnreadableRecord as problem:
            _log.warning("%s", problem)
        return False
