"""Creates the recorder: its texts of guards, its record file, and its listeners.

``make_recorder`` is called once per process, when the program imports Dynamo. The file is made at the program's first
compile; events are written on their own threads. ``OwnRecording`` is for a program that inspects its own compiles.
"""

from __future__ import annotations

import atexit
import importlib.metadata
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

from dynamo_dap.debuggee.agent.log import log_exception
from dynamo_dap.debuggee.agent.own_rank import own_rank
from dynamo_dap.debuggee.inductor.stages import StageCollector
from dynamo_dap.debuggee.launch.children.recorded_run import own_record
from dynamo_dap.debuggee.launch.runs.profiling import is_profiling, profiled_functions
from dynamo_dap.debuggee.recording.recorder import Recorder
from dynamo_dap.debuggee.torch_api.cache.cache_lookups import CacheLookups
from dynamo_dap.debuggee.torch_api.cache.kernel_cache_lookups import KernelCacheLookups
from dynamo_dap.debuggee.torch_api.import_hooks import when_dynamo_is_imported
from dynamo_dap.debuggee.trace.guards_view import guard_texts
from dynamo_dap.debuggee.wrapping.locks import Level, reentrant_lock
from dynamo_dap.debuggee.wrapping.patches import reporters
from dynamo_dap.explore.file import SUFFIX as STAGES_SUFFIX
from dynamo_dap.explore.file import StagesWriter, remove_old_stages
from dynamo_dap.explore.model import Document, Explored
from dynamo_dap.protocol.requests.contract import CHECK_VARIABLE
from dynamo_dap.protocol.requests.ranks import job_in
from dynamo_dap.records.events import VERSION, Ended, Event, Record, Started
from dynamo_dap.records.file import RecordWriter
from dynamo_dap.records.folders import SUFFIX, new_name, records_folder, remove_old_records
from dynamo_dap.records.signed import signed


def make_recorder(
    on_change: Callable[[], None],
    is_wanted: Callable[[], bool],
    report: Callable[[str], None],
    clock: Callable[[], float] = time.perf_counter,
    notes_traces: Callable[[], bool] | None = None,
) -> Recorder:
    """Return a recorder.

    ``on_change`` is called after new facts. ``is_wanted``, called at the first event, returns whether to write a file.
    ``report`` gets problems with the file, as text for the user. ``clock`` returns seconds for compile times.
    ``notes_traces`` returns whether to note the variables of lines, by default whenever a file is wanted.
    """
    file = _File(is_wanted, report)

    def take(event: Event) -> None:
        file.write(event)
        if event.is_shown:
            on_change()

    recorder = Recorder(Record(), guard_texts, take, notes_traces or is_wanted, clock, _KEPT_WHOLE)

    def end() -> None:
        recorder.note_files()
        functions = profiled_functions()
        if functions:
            recorder.note_profile(functions)

    file.before_end = end
    return recorder


def make_explorer(
    on_change: Callable[[], None],
    is_wanted: Callable[[], bool],
    report: Callable[[str], None],
    path: Callable[[], Path] | None = None,
) -> StageCollector:
    """Return the explorer of stages, which writes them to a file.

    See ``make_recorder``; ``path`` names the file, by default beside the records.
    """
    folder = records_folder(Path.cwd())
    name_file = path or (lambda: folder / f"{new_name()}{STAGES_SUFFIX}")
    # By process: a fork has its own file.
    writers: dict[int, StagesWriter] = {}
    problems: list[str] = []

    def write(compiled: Explored, documents: list[Document]) -> None:
        process = os.getpid()
        try:
            if process not in writers and not problems:
                writers[process] = StagesWriter(name_file(), list(sys.argv))
                remove_old_stages(folder)
            if process in writers:
                writers[process].write(compiled, documents)
        except OSError as error:
            writers.pop(process, None)
            problems.append(str(error))
            report(f"dynamo-dap: cannot write the stages of compiles: {error.strerror or error}\n")

        on_change()

    return StageCollector(write, is_wanted, report)


def record_process(
    report: Callable[[str], None], *, with_cache_keys: bool = False, with_settings: bool = False
) -> None:
    """Record this process, which has imported Dynamo, to its end; ``report`` gets problems, as text for the user.

    A second call does nothing: a worker of pytest may be a recorded child already.
    """
    global _is_recorded
    if not _is_recorded:
        _is_recorded = True
        reporters.append(lambda line: report(f"{line}\n"))
        recorder = make_recorder(lambda: None, lambda: True, report, notes_traces=lambda: not is_profiling())
        recorder.update_hooks(notes_calls=True)
        if with_settings:
            recorder.note_settings_once()
        if with_cache_keys:
            CacheLookups(recorder.cache_answered).install()
            KernelCacheLookups(recorder.cache_answered).install()


_is_recorded = False


class OwnRecording:
    """Records this process's compiles while it is on, without a file, independent of other records.

    It never imports Dynamo itself. Lines and values are not recorded.
    """

    def __init__(self) -> None:
        self.record = Record()
        self.problem: str | None = None
        """What cannot be recorded with this torch."""
        self._recorder: Recorder | None = None
        self._forget: Callable[[], None] = lambda: None
        self._is_begun = False
        # Another thread may import torch at the end of the session.
        self._lock = reentrant_lock("recording", Level.PROCESS)

    def begin(self) -> None:
        """Record from now on, or from the program's import of Dynamo."""
        with self._lock:
            self._is_begun = True
            self._forget = when_dynamo_is_imported(self._begin)

    def end(self) -> None:
        """Stop recording, and remove everything from the program."""
        with self._lock:
            self._is_begun = False
            self._forget()
            if self._recorder is not None:
                self._recorder.close()

    def _begin(self) -> None:
        with self._lock:
            if self._is_begun:
                self._record()

    def _record(self) -> None:
        try:
            if self._recorder is None:
                self._recorder = Recorder(
                    self.record, guard_texts, lambda event: None, lambda: False, time.perf_counter
                )
            self._recorder.update_hooks()
            self.problem = "; ".join(self._recorder.problems()) or None
        except Exception as error:  # noqa: BLE001  (this may run inside the program's own import of torch)
            log_exception("beginning a record")
            self.problem = f"cannot record this torch: {type(error).__name__}: {error}"


class _File:
    """The record file of this process, or of a forked child."""

    def __init__(self, is_wanted: Callable[[], bool], report: Callable[[str], None]) -> None:
        self._is_wanted = is_wanted
        self._report = report
        self.before_end: Callable[[], None] = lambda: None
        """Called when the process ends."""
        self._writer: RecordWriter | None = None
        self._process = -1
        # Relative paths and the folder's name refer to the folder in which the program started.
        self._cwd = Path.cwd()
        self._folder = records_folder(self._cwd)
        self._has_ended = False

    def write(self, event: Event) -> None:
        if self._process != os.getpid():
            self._process = os.getpid()
            self._writer = self._begin() if self._is_wanted() else None
        if self._writer is not None:
            try:
                self._writer.write(event)
            except OSError as error:
                self._stop_writing(error)

    def _begin(self) -> RecordWriter | None:
        try:
            path = own_record() or self._folder / f"{new_name()}{SUFFIX}"
            writer = RecordWriter(path)
            writer.write(_started(self._cwd))
            # A check has one record for each worker, which other workers must not delete.
            if path.parent == self._folder and CHECK_VARIABLE not in os.environ:
                remove_old_records(self._folder)
        except OSError as error:
            self._stop_writing(error)
            return None
        self._has_ended = False
        atexit.register(self._end, os.getpid())
        multiprocessing = sys.modules.get("multiprocessing.util")
        if multiprocessing is not None:
            # A forked worker ends without atexit functions.
            multiprocessing.Finalize(None, self._end, (os.getpid(),), exitpriority=_LAST)
        return writer

    def _end(self, process: int) -> None:
        if process == os.getpid() and not self._has_ended:
            self._has_ended = True
            self.before_end()
            self.write(Ended(time.time()))

    def _stop_writing(self, error: OSError) -> None:
        self._writer = None
        self._report(f"dynamo-dap: cannot write the record in {self._folder}: {error.strerror or error}\n")


_LAST = -100
_KEPT_WHOLE = 1000
"""How many compiles a session keeps with their nodes and guards: kilobytes each, and the file has all of them."""


def _started(cwd: Path) -> Started:
    try:
        torch_version: str | None = importlib.metadata.version("torch")
    except importlib.metadata.PackageNotFoundError:
        torch_version = None
    started = Started(
        version=VERSION,
        time=time.time(),
        process=os.getpid(),
        program=list(sys.argv),
        cwd=str(cwd),
        python=sys.version.split()[0],
        torch=torch_version,
        trace=os.environ.get("TORCH_TRACE"),
        # None if the program is a file.
        module=getattr(getattr(sys.modules["__main__"], "__spec__", None), "name", None),
        rank=own_rank(),
        job=job_in(os.environ, os.getppid()),
    )
    return signed(started)
