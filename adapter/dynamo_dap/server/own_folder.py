"""Temporary folders of this server, for its user only. Used on the loop."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import tempfile
import time
from pathlib import Path

_PREFIX = "dynamo-dap-"
_NAME = re.compile(_PREFIX + r"(\d+)-\w+")
_STALE_SECONDS = 3600.0
"""What looks dead may live where its process has another number: in a container that shares the folder."""


def make_folder() -> Path:
    """Make a folder, to be removed by the caller; those of servers that could not are removed now."""
    _remove_stale_folders(Path(tempfile.gettempdir()))
    return Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-"))


def _remove_stale_folders(parent: Path) -> None:
    for path in parent.glob(_PREFIX + "*"):
        name = _NAME.fullmatch(path.name)
        if name is not None and _is_stale(path, int(name[1])):
            shutil.rmtree(path, ignore_errors=True)


def _is_stale(path: Path, process_id: int) -> bool:
    with contextlib.suppress(OSError):
        status = path.lstat()
        if status.st_uid != os.getuid() or time.time() - status.st_mtime < _STALE_SECONDS:
            return False
        try:
            os.kill(process_id, 0)
        except ProcessLookupError:
            return True
    return False
