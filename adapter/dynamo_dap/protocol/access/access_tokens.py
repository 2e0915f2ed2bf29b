"""Passes a listening program's access token to a debugger of the same user through a file.

The listening program writes the token to a file that only its user can read. A server that attaches on the same machine
reads the file. Runs on any thread of either process. A file lives from ``listen`` to the end of the program. If the
program dies without removing the file, the next reader removes it.
"""

from __future__ import annotations

import contextlib
import ipaddress
import json
import os
import socket
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

from dynamo_dap.protocol.access.private_files import is_private
from dynamo_dap.protocol.wire.local_sockets import is_local_name

_DIRECTORY_NAME = "dynamo-dap"


def write_token_file(host: str, port: int, token: str) -> Path:
    """Write the token of the program that listens at ``host`` and ``port`` to a file; return its path.

    The caller removes the file when the program ends.

    Raises:
        OSError: none of the user's directories is writable.
    """
    directory = _writable_directory()
    _remove_stale_files(directory)
    path = directory / f"{port}-{os.getpid()}.json"
    content = {"host": host, "port": port, "token": token, "machine": socket.gethostname(), "pid": os.getpid()}
    with contextlib.suppress(FileNotFoundError):
        path.unlink()
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        json.dump(content, file)
    return path


def read_token_file(host: str, port: int) -> str | None:
    """Return the token of this user's program that listens at ``host`` and ``port``, or None.

    Ignore a file of another user, and a file that others can read.
    """
    for directory in token_folders():
        if not is_private(directory, stat.S_ISDIR):
            continue
        _remove_stale_files(directory)
        for path in directory.glob(f"{port}-*.json"):
            content = _read(path)
            if content is not None and _same_host(str(content.get("host")), host):
                return str(content["token"])
    return None


def searched_places(port: int) -> str:
    """Return where ``read_token_file`` searched, for a message that it found nothing."""
    return f"searched for its file {port}-*.json in {', '.join(map(str, token_folders()))}"


def token_folders() -> Iterator[Path]:
    """Yield the possible folders of token files, best first; a reader tries all."""
    if runtime := os.environ.get("XDG_RUNTIME_DIR"):
        yield Path(runtime) / _DIRECTORY_NAME
    if state := os.environ.get("XDG_STATE_HOME"):
        yield Path(state) / _DIRECTORY_NAME
    with contextlib.suppress(RuntimeError):
        yield Path.home() / ".local" / "state" / _DIRECTORY_NAME
    yield Path(tempfile.gettempdir()) / f"{_DIRECTORY_NAME}-{os.getuid()}"


def _writable_directory() -> Path:
    for directory in token_folders():
        with contextlib.suppress(OSError):
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            if is_private(directory, stat.S_ISDIR) and os.access(directory, os.W_OK):
                return directory
    raise OSError("cannot store the access token: no private directory is writable")


def _read(path: Path) -> dict[str, object] | None:
    if not is_private(path, stat.S_ISREG):
        return None
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return content if isinstance(content, dict) and isinstance(content.get("token"), str) else None


def _remove_stale_files(directory: Path) -> None:
    for path in directory.glob("*.json"):
        content = _read(path)
        if content is not None and content.get("machine") == socket.gethostname() and not _is_alive(content.get("pid")):
            with contextlib.suppress(OSError):
                path.unlink()


def _is_alive(pid: object) -> bool:
    if not isinstance(pid, int) or pid <= 0:
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        pass
    return True


def _same_host(listening: str, wanted: str) -> bool:
    """Return whether connecting to ``wanted`` reaches a program that listens at ``listening``.

    A token must never be sent to another machine, so a wildcard address (``0.0.0.0``) matches loopback only.
    """
    if listening == wanted:
        return True
    return is_loopback(wanted) and (is_loopback(listening) or listening in ("", "0.0.0.0", "::"))


def is_loopback(host: str) -> bool:
    """Return whether ``host`` can only be reached from this machine."""
    if host.lower() == "localhost" or is_local_name(host):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
