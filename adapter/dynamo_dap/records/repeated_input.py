"""Gives each run of a program the command's standard input from its beginning.

A run that needs more input than the runs before waits for it; later runs get the same input again. A terminal is not
read: a run whose output is shown reads the terminal itself, and in other runs the user would not see a prompt. Each run
has one feeder thread, which ends with the run.
"""

from __future__ import annotations

import contextlib
import os
import select
import subprocess
import threading
from collections.abc import Iterator

_READ = 65536
_WRITE = 4096


class RepeatedInput:
    """The input of one command, for one run at a time."""

    def __init__(self, source: int = 0) -> None:
        is_open = _is_open(source)
        self._terminal = source if is_open and os.isatty(source) else None
        self._source = source if is_open and self._terminal is None else None
        self._known = bytearray()
        self._is_over = False

    @contextlib.contextmanager
    def for_a_run(self, *, is_shown: bool = False) -> Iterator[int]:
        """Provide a run's ``stdin``, until the run ends; ``is_shown``: the user sees the run's output."""
        if self._source is None:
            yield self._terminal if is_shown and self._terminal is not None else subprocess.DEVNULL
            return
        reader, writer = os.pipe()
        stopped, stop = os.pipe()
        feeder = threading.Thread(target=self._feed, args=(self._source, writer, stopped), daemon=True)
        feeder.start()
        try:
            yield reader
        finally:
            os.close(stop)
            os.close(reader)
            feeder.join()
            os.close(stopped)

    def _feed(self, source: int, writer: int, stopped: int) -> None:
        os.set_blocking(writer, False)
        at = 0
        # The program may close its input at any time, and the process at the other end of ours may end.
        with contextlib.suppress(OSError):
            while at < len(self._known) or not self._is_over:
                has_more = at < len(self._known)
                readers = [stopped] if has_more else [stopped, source]
                readable, _, _ = select.select(readers, [writer] if has_more else [], [])
                if stopped in readable:
                    break
                if has_more:
                    at += os.write(writer, self._known[at : at + _WRITE])
                else:
                    read = os.read(source, _READ)
                    self._known += read
                    self._is_over = not read
        os.close(writer)


def _is_open(descriptor: int) -> bool:
    try:
        os.fstat(descriptor)
    except OSError:
        return False
    return True
