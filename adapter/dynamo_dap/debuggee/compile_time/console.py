"""What an evaluated expression prints goes to the debug console; other threads print where they always did.

Runs on the held thread, for the length of one evaluation.
"""

from __future__ import annotations

import contextlib
import io
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any


class _OfThisThread(io.TextIOBase):
    """A text stream that takes one thread's output, and passes everything else on to the stream it stands for."""

    def __init__(self, original: Any, write: Callable[[str], None]) -> None:
        self._original = original
        self._write = write
        self._thread = threading.get_ident()
        self._passing_on = False

    def write(self, text: str) -> int:
        if threading.get_ident() != self._thread or self._passing_on:
            return int(self._original.write(text))
        self._passing_on = True
        try:
            self._write(text)
        finally:
            self._passing_on = False
        return len(text)

    def flush(self) -> None:
        if self._original is not None:
            self._original.flush()

    def writable(self) -> bool:
        return True

    def __getattr__(self, name: str) -> Any:
        return getattr(self._original, name)


@contextlib.contextmanager
def printing_to(console: Callable[[str], None]) -> Iterator[None]:
    """Send what this thread prints, to stdout or stderr, to ``console``."""
    before = sys.stdout, sys.stderr
    sys.stdout = _OfThisThread(before[0], console)
    sys.stderr = _OfThisThread(before[1], console)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before
