"""Reads and writes files in this user's private folder. Runs on any thread; stateless."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Callable
from pathlib import Path

_NAME = "dynamo-dap"


def state_folder() -> Path:
    """Return the user's folder for state; it may not exist yet.

    Raises:
        OSError: the user has no home.
    """
    if state := os.environ.get("XDG_STATE_HOME"):
        return Path(state) / _NAME
    try:
        return Path.home() / ".local" / "state" / _NAME
    except RuntimeError as error:
        raise OSError(str(error)) from None


def is_private(path: Path, has_type: Callable[[int], bool]) -> bool:
    """Return whether ``path`` has the right type, is not a link, and only this user has rights to it."""
    try:
        status = path.lstat()
    except OSError:
        return False
    return has_type(status.st_mode) and status.st_uid == os.getuid() and not status.st_mode & 0o077


def read_private(path: Path) -> bytes | None:
    """Return the content of a file that only this user can read and write; None if it is not private."""
    with contextlib.suppress(OSError):
        if is_private(path.parent, stat.S_ISDIR) and is_private(path, stat.S_ISREG):
            return path.read_bytes()
    return None


def write_private(path: Path, content: bytes, *, replaces: bool) -> None:
    """Write a file that only this user can read, atomically; without ``replaces`` an existing one stays.

    Raises:
        OSError: it cannot be written, or others can write into its folder.
    """
    _make_private(path.parent)
    own = path.with_name(f".{path.name}-{os.getpid()}-{os.urandom(4).hex()}")
    descriptor = os.open(own, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
        if replaces:
            own.replace(path)
        else:
            with contextlib.suppress(FileExistsError):
                path.hardlink_to(own)
    finally:
        own.unlink(missing_ok=True)


def _make_private(folder: Path) -> None:
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    status = folder.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid():
        raise PermissionError(f"{folder} is not a folder of this user")
    if status.st_mode & 0o077:
        folder.chmod(0o700)
