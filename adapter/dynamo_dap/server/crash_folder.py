"""The folder where a launched program notes which generated code it is executing, so that a crash can be located.

Used on the loop; made when the program is started, removed when its ``Debuggee`` is closed.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from dynamo_dap.protocol.contract import CRASH_CELL_VARIABLE
from dynamo_dap.protocol.crash_cell import read_crash
from dynamo_dap.server.own_folder import make_folder


class CrashFolder:
    """See ``protocol.crash_cell``."""

    def __init__(self) -> None:
        self._path: Path | None = None

    def variables(self) -> dict[str, str]:
        """Make the folder and return the environment variable that tells the program of it."""
        if self._path is None:
            self._path = make_folder()
        return {CRASH_CELL_VARIABLE: str(self._path)}

    def last_words(self, process_id: int | None) -> tuple[str, str] | None:
        """Return where the dead process was in generated code, and the listing there; None when it was in none."""
        if self._path is None or process_id is None:
            return None
        site = read_crash(str(self._path), process_id)
        return None if site is None else (str(site), site.excerpt())

    def close(self) -> None:
        """Remove the folder."""
        if self._path is not None:
            shutil.rmtree(self._path, ignore_errors=True)
            self._path = None
