"""Writes the files that a user asks for, but never over a file that dynamo-dap did not write.

Our files are recognized by their beginning or end: each format names its generator there. Runs on any thread;
stateless.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable
from pathlib import Path

GENERATOR = "dynamo-dap"
HTML_MARK = f"<meta name='generator' content='{GENERATOR}'>"
"""The tag after the character set in each of our HTML pages."""
BINARY_MARK = GENERATOR.encode()
"""The last bytes of each of our files that is not text."""
_READ = 4096
_BEGINNINGS = re.compile(
    rb"""
    \{\s*"generator":\s*"dynamo-dap"                                             # our own JSON
    | \{\s*"\$schema":\s*"[^"]*",\s*"exporter":\s*"dynamo-dap"                   # speedscope
    | \{\s*"\$schema":[^{}]*"runs":\s*\[\s*\{\s*"tool":\s*\{\s*"driver":\s*\{\s*"name":\s*"dynamo-dap"  # SARIF
    | <\?xml[^>]*>\s*<testsuites>\s*<testsuite\ name="dynamo-dap"                # JUnit
    | <!doctype\ html><html\ lang='en'><head><meta\ charset='utf-8'>\s*<meta\ name='generator'\ content='dynamo-dap'>
    | \d{4}-\d\d-\d\d\ \d\d:\d\d:\d\d,\d{3}\ (agent\ \d+\ |[A-Z]+\ server\ )      # the log
    """,
    re.VERBOSE,
)


class NotOurs(FileExistsError):
    """The file exists, and dynamo-dap did not write it."""

    def __init__(self, path: Path) -> None:
        super().__init__(f"{path} exists and was not written by dynamo-dap: choose another name, or remove it")
        self.strerror = str(self)


def check_output(path: Path) -> None:
    """Refuse an existing file that is not ours.

    Check before a long run.

    Raises:
        NotOurs: its content is not ours.
        OSError: it cannot be read.
    """
    try:
        file = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except FileNotFoundError:
        return
    try:
        status = os.fstat(file)
        if not stat.S_ISREG(status.st_mode) or status.st_size == 0:
            # A terminal, a pipe; or an empty file from mktemp.
            return
        begin = os.pread(file, _READ, 0)
        end = os.pread(file, len(BINARY_MARK), max(0, status.st_size - len(BINARY_MARK)))
    finally:
        os.close(file)
    if _BEGINNINGS.match(begin) is None and end != BINARY_MARK:
        raise NotOurs(path)


def write_output(path: Path, content: bytes | Iterable[str], *, is_private: bool = False) -> None:
    """Write a file that the user has named; ``is_private`` makes it unreadable for other users.

    ``content`` may be the parts of a text: a large one need not be in memory.

    Raises:
        NotOurs: there is another file by that name.
        OSError: it cannot be written.
    """
    check_output(path)
    # With O_NONBLOCK, opening a pipe without a reader fails at once instead of waiting.
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NONBLOCK | os.O_CLOEXEC
    descriptor = os.open(path, flags, 0o600 if is_private else 0o666)
    with os.fdopen(descriptor, "wb") as file:
        os.set_blocking(descriptor, True)
        status = os.fstat(descriptor)
        if is_private and stat.S_ISREG(status.st_mode) and status.st_uid == os.getuid():
            os.fchmod(descriptor, 0o600)
        parts = (content,) if isinstance(content, bytes) else (part.encode(errors="replace") for part in content)
        file.writelines(parts)
