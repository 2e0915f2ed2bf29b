"""Finds record files: a folder for each working directory, in the user's cache; the newest ones are kept.

``DYNAMO_DAP_RECORDS`` names another folder for all of them. Any process.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import time
from pathlib import Path

from dynamo_dap.protocol.contract import RECORDS_VARIABLE

SUFFIX = ".jsonl"
TRACE_SUFFIX = ".trace"
TRACE_VARIABLE = "TORCH_TRACE"
"""Names the folder of torch's own trace."""
RUN_SUFFIX = ".run"
"""Of a folder: the records of the processes that a program started."""
KEPT = 20
"""Record files kept for a working directory, this many."""


def records_base() -> Path:
    """Return the folder of all records, which has one for each working directory; it may not exist yet."""
    given = os.environ.get(RECORDS_VARIABLE)
    cache = os.environ.get("XDG_CACHE_HOME")
    return Path(given) if given else Path(cache or Path.home() / ".cache") / "dynamo-dap" / "records"


def records_folder(directory: Path) -> Path:
    """Return the folder of the records of programs that ran in ``directory``; it may not exist yet."""
    real = os.path.realpath(directory)
    digest = hashlib.sha256(real.encode(errors="surrogateescape")).hexdigest()[:8]
    return records_base() / f"{Path(real).name or 'root'}-{digest}"


def new_name() -> str:
    """Return the name of a new record, without a suffix: the time and the process. Names sort by time."""
    return f"{time.strftime('%Y%m%d-%H%M%S')}-{time.time_ns() % 10**9:09d}-{os.getpid()}"


def records_in(folder: Path) -> list[Path]:
    """Return the record files of a folder, oldest first; if a program's first process has none, those of its others."""
    if not folder.is_dir():
        return []
    others = [path for run in folder.glob(f"*{RUN_SUFFIX}") if not first_record(run).exists() for path in _files(run)]
    return sorted([*folder.glob(f"*{SUFFIX}"), *others], key=lambda path: path.name)


def first_record(run: Path) -> Path:
    """Return the record file of the first process of a run; ``run`` is the folder of its other processes."""
    return run.with_name(run.name.removesuffix(RUN_SUFFIX) + SUFFIX)


def records_of_others(record: Path) -> list[Path]:
    """Return the record files of the processes that a program started; ``record`` is that of its first process."""
    return _files(record.with_name(record.name.removesuffix(SUFFIX) + RUN_SUFFIX))


def _files(run: Path) -> list[Path]:
    return sorted(run.glob(f"*{SUFFIX}")) if run.is_dir() else []


def remove_old_records(folder: Path) -> None:
    """Remove what is beyond the number that is kept. What cannot be removed stays."""
    for file in sorted(folder.glob(f"*{SUFFIX}"))[:-KEPT]:
        with contextlib.suppress(OSError):
            file.unlink()
            file.with_suffix(".html").unlink(missing_ok=True)
    for suffix in (TRACE_SUFFIX, RUN_SUFFIX):
        for old in sorted(folder.glob(f"*{suffix}"))[:-KEPT]:
            shutil.rmtree(old, ignore_errors=True)


def trace_folder(directory: Path) -> Path:
    """Return a new folder for torch's own trace of a program that will run in ``directory``."""
    return records_folder(directory) / f"{new_name()}{TRACE_SUFFIX}"
