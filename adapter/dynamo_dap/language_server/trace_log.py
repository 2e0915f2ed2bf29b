"""Reads the trace log that the user's settings name, piece by piece, so that the editor never waits for a large one.

Runs on pygls's event loop.
"""

from __future__ import annotations

import logging
from pathlib import Path

import msgspec

from dynamo_dap.records.events import Record
from dynamo_dap.records.file import UnreadableRecord
from dynamo_dap.trace_logs.logs import Mappings, TraceReader, chosen_log

_log = logging.getLogger(__name__)

_PIECE_SECONDS = 0.1
_SETTLED_POLLS = 5
"""Polls in which a changed log must stay the same before it is read again: a program may still be writing it."""
_FOLDER = "${workspaceFolder}"


class PathMapping(msgspec.Struct, rename="camel"):
    """A folder of the machine that wrote the log, and the local folder with the same files."""

    local_root: str
    remote_root: str


class _Settings(msgspec.Struct, rename="camel", frozen=True):
    trace_log: str = ""
    path_mappings: list[PathMapping] = []


class TraceLogFollower:
    """Reads the log in the settings, and reads it again when it changes. Call ``poll`` again and again."""

    def __init__(self) -> None:
        self._settings = _Settings()
        self._reader: TraceReader | None = None
        self._read: tuple[object, ...] | None = None
        """The state of the log that was read, or is being read."""
        self._seen: tuple[object, ...] | None = None
        self._times_seen = 0
        self.problem: str | None = None
        """Why nothing is shown, for the user."""
        self.record: Record | None = None
        """The content read so far; None if no log is set."""
        self.path: Path | None = None
        """The log in the settings, or its folder."""
        self.mappings: Mappings = ()

    @property
    def is_reading(self) -> bool:
        """Whether there is more to read at once."""
        return self._reader is not None

    def take(self, given: dict[str, object]) -> None:
        """Take the settings ``traceLog`` and ``pathMappings``; missing ones keep their value."""
        known = msgspec.to_builtins(self._settings) | {
            name: given[name] for name in ("traceLog", "pathMappings") if given.get(name) is not None
        }
        try:
            settings = msgspec.convert(known, _Settings)
        except msgspec.ValidationError as error:
            self.problem = f"dynamo.traceLog or dynamo.pathMappings: {error}"
            return
        if settings != self._settings:
            self._settings = settings
            self._reader, self._read, self.record, self.problem = None, None, None, None

    def poll(self, root: Path | None) -> bool:
        """Read the next piece; return whether there is something new to show. Relative paths start at ``root``."""
        if not self._settings.trace_log:
            return False
        if self._reader is None and not self._begins(root):
            return False
        assert self._reader is not None
        reader = self._reader
        try:
            is_read = reader.read(_PIECE_SECONDS)
        except UnreadableRecord as problem:
            return self._stop_reading(problem)
        if is_read:
            self._reader, self.problem = None, None
        if not is_read and self.record is not None:
            return False
        # Show the first piece at once, later all of it.
        self.record = reader.record
        return True

    def _begins(self, root: Path | None) -> bool:
        """Begin to read the log if it has changed since it was read; return whether it has."""
        try:
            self.path = _resolved(self._settings.trace_log, root)
            log = chosen_log(self.path)
            facts = log.stat()
        except OSError as error:
            return self._stop_reading(f"cannot read {self.path}: {error.strerror or error}")
        except UnreadableRecord as problem:
            return self._stop_reading(problem)
        state = (log, facts.st_size, facts.st_mtime_ns)
        self._times_seen = self._times_seen + 1 if state == self._seen else 0
        self._seen = state
        if state == self._read or (self._read is not None and self._times_seen < _SETTLED_POLLS):
            return False
        self._read = state
        pairs = [(one.remote_root, one.local_root) for one in self._settings.path_mappings]
        self.mappings = [(remote, str(_resolved(local, root))) for remote, local in pairs]
        try:
            self._reader = TraceReader(log, self.mappings)
        except UnreadableRecord as problem:
            return self._stop_reading(problem)
        return True

    def _stop_reading(self, problem: object) -> bool:
        if self.problem is None:
            self.problem = f"dynamo.traceLog: {problem}"
            _log.warning("%s", self.problem)
        self._reader = None
        return False


def _resolved(given: str, root: Path | None) -> Path:
    folder = root or Path.cwd()
    path = Path(given.replace(_FOLDER, str(folder)))
    try:
        return folder / path.expanduser()
    except RuntimeError:
        # the user of ``~user`` does not exist
        return folder / path
