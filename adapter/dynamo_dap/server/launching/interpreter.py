"""Which Python runs the debugged program. Looks at files; runs nothing."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

from dynamo_dap.protocol.contract import ErrorId
from dynamo_dap.server.errors import StartRefused


def find(python: str | list[str] | None, cwd: Path, environment: Mapping[str, str]) -> list[str]:
    """Return the command that starts Python; the server's own Python when ``python`` is None.

    Raises:
        StartRefused: there is no such program, or it cannot be executed.
    """
    if python is None:
        return [sys.executable]
    command = [python] if isinstance(python, str) else python
    if not command or not command[0]:
        raise StartRefused(ErrorId.INVALID_OPTION, '"python" is empty; give the path of an interpreter')
    return [_executable(command[0], cwd, environment), *command[1:]]


def _executable(name: str, cwd: Path, environment: Mapping[str, str]) -> str:
    if os.sep not in name:
        found = shutil.which(name, path=environment.get("PATH", os.defpath))
        if found is None:
            raise StartRefused(ErrorId.INVALID_OPTION, f'"python": no {name!r} on the PATH')
        return found
    path = cwd / name
    if not path.exists():
        raise StartRefused(ErrorId.INVALID_OPTION, f'"python": {path} does not exist')
    if path.is_dir():
        raise StartRefused(ErrorId.INVALID_OPTION, f'"python": {path} is a directory, not an interpreter')
    if not os.access(path, os.X_OK):
        raise StartRefused(ErrorId.INVALID_OPTION, f'"python": {path} is not executable')
    return str(path)
