"""Makes temporary folders that only the server's user can read. Runs on the event loop.

In a ``CrashFolder`` a launched program notes which generated code it executes, so that a crash can be located. That
folder is made when the program starts, and removed when its ``Debuggee`` is closed.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import tempfile
import time
from pathlib import Path

from dynamo_dap.protocol.crash_cell import read_crash
from dynamo_dap.protocol.requests.contract import CRASH_CELL_VARIABLE

_PREFIX = "dynamo-dap-"
_NAME = re.compile(_PREFIX + r"(\d+)-\w+")
_LONGEST = 60
_STALE_SECONDS = 3600.0
"""A younger folder is kept: its server may run in a container, whose process ids are different outside."""


def make_folder() -> Path:
    """Make a folder that the caller removes; also remove folders that dead servers left."""
    _remove_stale_folders(Path(_parent()))
    return Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-"))


def make_folder_for_sockets() -> Path:
    """Make a folder with a short path, since the system limits a socket's path to about a hundred characters."""
    parent = _parent()
    return Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-", dir=parent if len(parent) < _LONGEST else "/tmp"))


def _parent() -> str:
    try:
        return tempfile.gettempdir()
    except FileNotFoundError:
        # Python also reports FileNotFoundError if no descriptor is free. Open a file to raise the real error.
        os.close(os.open(os.devnull, os.O_RDONLY))
        raise


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


class CrashFolder:
    """Makes the folder of the crash cell (``protocol.crash_cell``) and reads it after the program's end."""

    def __init__(self) -> None:
        self._path: Path | None = None

    def variables(self) -> dict[str, str]:
        """Make the folder and return the environment variable by which the program finds it."""
        if self._path is None:
            self._path = make_folder()
        return {CRASH_CELL_VARIABLE: str(self._path)}

    def crash_site(self, process_id: int | None) -> tuple[str, str] | None:
        """Return where in generated code the process died, with the listing; None if it died elsewhere."""
        if self._path is None or process_id is None:
            return None
        site = read_crash(str(self._path), process_id)
        return None if site is None else (str(site), site.excerpt())

    def close(self) -> None:
        """Remove the folder."""
        if self._path is not None:
            shutil.rmtree(self._path, ignore_errors=True)
            self._path = None
