"""Opens files that a user names, or that lie where the debugger looks, without blocking.

Opening a pipe without a writer would block. Runs on any thread; stateless.
"""

from __future__ import annotations

import errno
import io
import os
import stat
import tokenize
from pathlib import Path
from typing import BinaryIO


def open_regular(path: Path | str) -> BinaryIO:
    """Open a file for reading.

    Raises:
        OSError: it cannot be opened, or it is a folder, a pipe or a device.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except ValueError as error:  # a null byte
        raise OSError(errno.EINVAL, str(error), str(path)) from None
    try:
        _check_regular(os.fstat(descriptor).st_mode, path)
        return os.fdopen(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


def read_regular(path: Path | str) -> bytes:
    """Return the content of a file.

    Raises:
        OSError: it cannot be read, or it is a folder, a pipe or a device.
    """
    with open_regular(path) as file:
        return file.read()


def read_source(path: Path | str) -> str:
    """Return the text of a Python file, as ``tokenize.open`` reads it.

    Raises:
        OSError: it cannot be read, or it is a folder, a pipe or a device.
        SyntaxError, UnicodeDecodeError, LookupError: it is not in the encoding that it declares.
    """
    content = io.BytesIO(read_regular(path))
    encoding, _ = tokenize.detect_encoding(content.readline)
    content.seek(0)
    return io.TextIOWrapper(content, encoding).read()


def why_not_a_program(path: Path | str) -> str | None:
    """Return why Python cannot run a path that exists; a folder can be a program."""
    try:
        mode = Path(path).stat().st_mode
        if not stat.S_ISDIR(mode):
            _check_regular(mode, path)
    except FileNotFoundError:
        # A name such as "pytest" is not a file: running it reports what is missing.
        return None
    except OSError as error:
        return error.strerror or str(error)
    except ValueError as error:  # a null byte
        return str(error)
    return None


def _check_regular(mode: int, path: Path | str) -> None:
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if not stat.S_ISREG(mode):
        raise OSError(errno.EINVAL, "It is a pipe or a device, not a file", str(path))
