"""Follows the newest record of a workspace, while a program writes it.

A record without a finished compile has nothing to show, so it does not replace a record that has one. If the first
process of a run compiles nothing (a launcher), the record of another process of the run is followed.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from dynamo_dap.records.events import Record, Started
from dynamo_dap.records.file import RecordReader, RecordScan, UnfinishedRecord, UnreadableRecord, program_of
from dynamo_dap.records.folders import RUN_SUFFIX, SUFFIX, records_base
from dynamo_dap.records.model import TRACING

_log = logging.getLogger(__name__)

_RECENT_NS = 3 * 10**9
"""A folder whose last change is this recent is listed again. File systems round times, to 2 s at most."""


class RecordFollower:
    """Finds and reads records. Call ``poll`` again and again."""

    def __init__(self, roots: Callable[[], Sequence[Path]]) -> None:
        """Follow ``roots``: the workspace's folders, or single open files."""
        self._roots = roots
        self._reader: RecordReader | None = None
        self._programs: dict[Path, Started | None] = {}
        """Facts about the records' programs; None for unreadable records."""
        self._scans: dict[Path, RecordScan] = {}
        self._listed: dict[str, tuple[int, list[Path]]] = {}
        """The time of modification and the record files of each folder."""

    @property
    def record(self) -> Record | None:
        """The newest record's content; None while there is none."""
        return None if self._reader is None else self._reader.record

    @property
    def path(self) -> Path | None:
        """The newest record."""
        return None if self._reader is None else self._reader.path

    @property
    def is_of_several(self) -> bool:
        """Whether the record is of a child process: other processes of the run may have traced the same code."""
        return self.path is not None and self.path.parent.suffix == RUN_SUFFIX

    def poll(self) -> bool:
        """Read new events; return whether there were any."""
        newest = self._newest()
        if newest != self.path:
            self._reader = None if newest is None else RecordReader(newest)
            self._read()
            return True
        return self._read()

    def _read(self) -> bool:
        if self._reader is None:
            return False
        try:
            return self._reader.read()
        except UnreadableRecord as problem:
            _log.warning("%s", problem)
            self._programs[self._reader.path] = None
            self._reader = None
            return True

    def _newest(self) -> Path | None:
        """Return the newest record with a finished compile, or the newest if none has one."""
        roots = [os.path.realpath(root) for root in self._roots()]
        newest = None
        for path in _newest_run_first(self._records()):
            if path not in self._programs:
                self._identify(path)
            program = self._programs.get(path)
            if program is None or not any(self._belongs(path, program, root) for root in roots):
                continue
            if path == self.path and self._has_results():
                return path
            if self._scan(path).has_finished():
                return path
            newest = newest or path
        return newest

    def _has_results(self) -> bool:
        record = self.record
        return record is not None and any(one.state != TRACING for _, one in record.compiles())

    def _scan(self, path: Path) -> RecordScan:
        return self._scans.setdefault(path, RecordScan(path))

    def _belongs(self, path: Path, program: Started, root: str) -> bool:
        """Return whether a program ran in a folder, is stored there, or compiled code in it."""
        script = program.program[0] if program.program else ""
        places = [program.cwd, *([str(Path(program.cwd, script))] if script.endswith(".py") else [])]
        if any(_is_inside(os.path.realpath(place), root) for place in places):
            return True
        # Compiled files count only below the program's working directory, or if the root is a file: a library may be
        # inside any workspace.
        may_be_its = _is_inside(root, os.path.realpath(program.cwd)) or Path(root).is_file()
        return may_be_its and any(_is_inside(os.path.realpath(source), root) for source in self._scan(path).sources())

    def _identify(self, path: Path) -> None:
        try:
            self._programs[path] = program_of(path)
        except UnfinishedRecord:
            pass  # the next poll tries again
        except UnreadableRecord as problem:
            if path.is_file():
                self._programs[path] = None
                _log.warning("%s", problem)

    def _records(self) -> list[Path]:
        found: list[Path] = []
        listed: dict[str, tuple[int, list[Path]]] = {}
        try:
            with os.scandir(records_base()) as folders:
                for folder in folders:
                    for path in self._listing(folder.path, listed):
                        # A run's folder has the records of its processes except the first.
                        found += self._listing(str(path), listed) if path.suffix == RUN_SUFFIX else [path]
        except OSError:
            # No program has been recorded yet, or a folder was just removed.
            pass
        self._listed = listed
        return found

    def _listing(self, folder: str, listed: dict[str, tuple[int, list[Path]]]) -> list[Path]:
        """Return the records and runs in a folder and note them in ``listed``; list the folder only if it changed."""
        changed = os.stat(folder).st_mtime_ns  # noqa: PTH116 - asked for each folder, again and again
        known = self._listed.get(folder)
        # A file that is created right after the listing may not change the folder's rounded time of modification.
        if known is None or known[0] != changed or time.time_ns() - changed < _RECENT_NS:
            known = changed, [path for path in Path(folder).iterdir() if path.suffix in (SUFFIX, RUN_SUFFIX)]
        listed[folder] = known
        return known[1]


def _newest_run_first(records: list[Path]) -> list[Path]:
    """Return the records, the newest run first; in a run the first process, then the others by their start."""
    runs: dict[str, list[Path]] = {}
    for path in sorted(records, key=lambda path: path.name):
        runs.setdefault(_run_of(path), []).append(path)
    return [
        path
        for run in sorted(runs, reverse=True)
        for path in sorted(runs[run], key=lambda path: path.parent.suffix == RUN_SUFFIX)
    ]


def _run_of(path: Path) -> str:
    return path.parent.stem if path.parent.suffix == RUN_SUFFIX else path.stem


def _is_inside(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip(os.sep) + os.sep)
