"""Creates the recorder: how it writes nodes of graphs, its record file, and whom it notifies of changes.

``make_recorder`` is called once per process, when the program imports Dynamo. The file is made when the program first
compiles something; events are written on the thread on which they happen.
"""

from __future__ import annotations

import atexit
import importlib.metadata
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from dynamo_dap.debuggee.compile_time.graph_view import call_text, result_text
from dynamo_dap.debuggee.compile_time.guards_view import guard_texts
from dynamo_dap.debuggee.recording.facts import Texts
from dynamo_dap.debuggee.recording.recorder import Recorder
from dynamo_dap.record.events import VERSION, Ended, Event, Record, Started
from dynamo_dap.record.file import RecordWriter
from dynamo_dap.record.folders import SUFFIX, new_name, records_folder, remove_old_records


def make_recorder(
    on_change: Callable[[], None],
    is_wanted: Callable[[], bool],
    tell: Callable[[str], None],
    clock: Callable[[], float] = time.perf_counter,
) -> Recorder:
    """Return a recorder.

    ``on_change`` hears that something is known that was not; ``is_wanted`` tells whether a file is to be written, once
    there is something to write; ``tell`` gets problems with the file, as text for the user; ``clock`` gives the seconds
    that compiles are measured by.
    """
    file = _File(is_wanted, tell)

    def take(event: Event) -> None:
        file.write(event)
        if event.is_shown:
            on_change()

    recorder = Recorder(Record(), Texts(_node_texts, guard_texts), take, is_wanted, clock)
    file.before_end = recorder.note_files
    return recorder


def _node_texts(node: Any) -> tuple[str, str]:
    return call_text(node), result_text(node)


class _File:
    """The record file of this process, or of a child that was forked from it."""

    def __init__(self, is_wanted: Callable[[], bool], tell: Callable[[str], None]) -> None:
        self._is_wanted = is_wanted
        self._tell = tell
        self.before_end: Callable[[], None] = lambda: None
        """Is called when the process ends."""
        self._writer: RecordWriter | None = None
        self._process = -1
        # Relative paths and the folder's name are those of where the program began.
        self._cwd = Path.cwd()
        self._folder = records_folder(self._cwd)

    def write(self, event: Event) -> None:
        if self._process != os.getpid():
            self._process = os.getpid()
            self._writer = self._begin() if self._is_wanted() else None
        if self._writer is not None:
            try:
                self._writer.write(event)
            except OSError as error:
                self._give_up(error)

    def _begin(self) -> RecordWriter | None:
        try:
            writer = RecordWriter(self._folder / f"{new_name()}{SUFFIX}")
            writer.write(_started(self._cwd))
            remove_old_records(self._folder)
        except OSError as error:
            self._give_up(error)
            return None
        atexit.register(self._end, os.getpid())
        return writer

    def _end(self, process: int) -> None:
        if process == os.getpid():
            self.before_end()
            self.write(Ended(time.time()))

    def _give_up(self, error: OSError) -> None:
        self._writer = None
        self._tell(f"dynamo-dap: cannot write the record in {self._folder}: {error.strerror or error}\n")


def _started(cwd: Path) -> Started:
    try:
        torch_version: str | None = importlib.metadata.version("torch")
    except importlib.metadata.PackageNotFoundError:
        torch_version = None
    return Started(
        version=VERSION,
        time=time.time(),
        process=os.getpid(),
        program=list(sys.argv),
        cwd=str(cwd),
        python=sys.version.split()[0],
        torch=torch_version,
        trace=os.environ.get("TORCH_TRACE"),
        # Of a file it is None.
        module=getattr(getattr(sys.modules["__main__"], "__spec__", None), "name", None),
    )
