"""Where record files are: a folder for each working directory, in the user's cache; the newest ones are kept.

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
    """Return the record files of a folder, oldest first."""
    return sorted(folder.glob(f"*{SUFFIX}")) if folder.is_dir() else []


def remove_old_records(folder: Path) -> None:
    """Remove what is beyond the number that is kept. What cannot be removed stays."""
    for folder_or_file in records_in(folder)[:-KEPT]:
        with contextlib.suppress(OSError):
            folder_or_file.unlink()
            folder_or_file.with_suffix(".html").unlink(missing_ok=True)
    for trace in sorted(folder.glob(f"*{TRACE_SUFFIX}"))[:-KEPT]:
        shutil.rmtree(trace, ignore_errors=True)
