"""Finds record files: each working directory has a folder in the user's cache, with its ``KEPT`` newest records.

``DYNAMO_DAP_RECORDS`` names another base folder. Runs in any process.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import time
from pathlib import Path

from dynamo_dap.protocol.requests.contract import RECORDS_VARIABLE

SUFFIX = ".jsonl"
TRACE_SUFFIX = ".trace"
TRACE_VARIABLE = "TORCH_TRACE"
"""The environment variable that names the folder of torch's own trace."""
RUN_SUFFIX = ".run"
"""The suffix of a folder with the records of child processes."""
KEPT = 20
"""The number of records that are kept for a working directory."""


def records_base() -> Path:
    """Return the folder of all records, which may not exist yet."""
    given = os.environ.get(RECORDS_VARIABLE)
    cache = os.environ.get("XDG_CACHE_HOME")
    return Path(given) if given else Path(cache or Path.home() / ".cache") / "dynamo-dap" / "records"


def records_folder(directory: Path) -> Path:
    """Return the folder of records of programs that ran in ``directory``; it may not exist yet."""
    real = os.path.realpath(directory)
    digest = hashlib.sha256(real.encode(errors="surrogateescape")).hexdigest()[:8]
    return records_base() / f"{Path(real).name or 'root'}-{digest}"


def new_name() -> str:
    """Return the name of a new record, without a suffix: the time and the process. Names sort by time."""
    seconds, fraction = divmod(time.time_ns(), 10**9)
    return f"{time.strftime('%Y%m%d-%H%M%S', time.localtime(seconds))}-{fraction:09d}-{os.getpid()}"


def records_in(folder: Path) -> list[Path]:
    """Return a folder's record files, oldest first; if a run's first process has none, those of its child processes."""
    if not folder.is_dir():
        return []
    others = [path for run in folder.glob(f"*{RUN_SUFFIX}") if not first_record(run).exists() for path in _files(run)]
    return sorted([*folder.glob(f"*{SUFFIX}"), *others], key=lambda path: path.name)


def first_record(run: Path) -> Path:
    """Return the record file of a run's first process; ``run`` is the folder of its child processes."""
    return run.with_name(run.name.removesuffix(RUN_SUFFIX) + SUFFIX)


def records_of_others(record: Path) -> list[Path]:
    """Return the record files of a run's child processes; ``record`` is the file of its first process."""
    return _files(record.with_name(record.name.removesuffix(SUFFIX) + RUN_SUFFIX))


def _files(run: Path) -> list[Path]:
    return sorted(run.glob(f"*{SUFFIX}")) if run.is_dir() else []


def remove_old_records(folder: Path) -> None:
    """Remove all records but the newest ``KEPT``; ignore files that cannot be removed."""
    for file in sorted(folder.glob(f"*{SUFFIX}"))[:-KEPT]:
        with contextlib.suppress(OSError):
            file.unlink()
            file.with_suffix(".html").unlink(missing_ok=True)
    for suffix in (TRACE_SUFFIX, RUN_SUFFIX):
        for old in sorted(folder.glob(f"*{suffix}"))[:-KEPT]:
            shutil.rmtree(old, ignore_errors=True)


def trace_folder(directory: Path) -> Path:
    """Return a new folder for torch's own trace of a program in ``directory``."""
    return records_folder(directory) / f"{new_name()}{TRACE_SUFFIX}"
