"""Reads what the program writes to a pipe, as text, in order and complete.

Used on the loop, one ``OutputPump`` per pipe of a child process. Reading waits while the IDE is slow to take events, so
a program that prints endlessly is slowed down instead of filling memory.
"""

from __future__ import annotations

import asyncio
import codecs
import os
from collections.abc import Callable

_CHUNK_BYTES = 64 * 1024
_DRAIN_CHUNKS = 32
"""More than a pipe holds: a descendant that goes on writing must not keep us at it for ever."""
_REMEMBERED_CHARACTERS = 4000


_GATHER_SECONDS = 0.003
"""Without a buffer, a program writes small pieces, each ``^`` of a traceback by itself: they are gathered."""


class OutputPump:
    """Reads one pipe and hands out its text, decoded as UTF-8 across the borders of chunks."""

    def __init__(self, descriptor: int, on_text: Callable[[str], None]) -> None:
        """Take ``descriptor`` over and begin to read it on the running loop."""
        self.descriptor = descriptor
        self.recent = ""
        """The last characters read."""
        self._on_text = on_text
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._beginning = ""
        """Of a line that waits for its end; handed out with what is read next."""
        self._loop = asyncio.get_running_loop()
        self._is_reading = True
        self._gathering: asyncio.TimerHandle | None = None
        os.set_blocking(descriptor, False)
        self._loop.add_reader(descriptor, self._gather)

    def flush(self, *, whole_lines: bool = False) -> None:
        """Hand out what has been written so far: it precedes what is said next by other ways.

        ``whole_lines``: what comes next is a line itself, so the beginning of a line waits for its end.
        """
        if self._is_reading:
            self._read_chunk(whole_lines=whole_lines)

    def drain(self) -> None:
        """Hand out all that is in the pipe and stop reading.

        When the process has ended, that is all it ever wrote, whoever else may still hold the pipe.
        """
        for _ in range(_DRAIN_CHUNKS):
            if not self._is_reading or not self._read_chunk():
                break
        self.stop()
        self._take(self._decoder.decode(b"", final=True))
        self._hand_out("")

    def stop(self) -> None:
        """Stop reading; what is in the pipe stays there."""
        if self._is_reading:
            self._is_reading = False
            self._loop.remove_reader(self.descriptor)
            if self._gathering is not None:
                self._gathering.cancel()

    def close(self) -> None:
        """Close the pipe."""
        self.stop()
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1

    def _gather(self) -> None:
        self._loop.remove_reader(self.descriptor)
        self._gathering = self._loop.call_later(_GATHER_SECONDS, self._read_gathered)

    def _read_gathered(self) -> None:
        self._gathering = None
        if self._is_reading:
            self._read_chunk()
        if self._is_reading:
            self._loop.add_reader(self.descriptor, self._gather)

    def _read_chunk(self, *, whole_lines: bool = False) -> bool:
        """Read once. False when nothing is there now, or ever again."""
        try:
            data = os.read(self.descriptor, _CHUNK_BYTES)
        except BlockingIOError:
            return False
        except OSError:
            data = b""
        if not data:
            self.stop()
            return False
        self._take(self._decoder.decode(data), whole_lines=whole_lines)
        return True

    def _take(self, text: str, *, whole_lines: bool = False) -> None:
        self.recent = (self.recent + text)[-_REMEMBERED_CHARACTERS:]
        lines, newline, beginning = text.rpartition("\n") if whole_lines else (text, "", "")
        if whole_lines and not newline:
            self._beginning += beginning
            return
        self._hand_out(lines + newline)
        self._beginning = beginning

    def _hand_out(self, text: str) -> None:
        text, self._beginning = self._beginning + text, ""
        if text:
            self._on_text(text)
