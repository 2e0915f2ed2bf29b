"""Keeps the running instruction of a process's generated code in a small file that is mapped into memory.

The debugged process writes it at every instruction while generated code is stepped or traced. A write costs well under
a microsecond, needs no system call, and survives the process. After a signal has killed the process, its parent reads
the position. The parent makes the folder of these files, names it in the environment variable
``DYNAMO_DAP_CRASH_CELL``, and removes it.

Child processes inherit the folder, so each process has a file named by its process id, with one entry per thread.
Written on the threads that run the code, read on any.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import struct
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import msgspec

_RECORD = struct.Struct("=QQii")
"""Native thread id, monotonic time in ns, number of the code, index of the instruction (-1: none is running)."""
_SLOTS = 128
_NONE = -1


class CodeDescription(msgspec.Struct):
    """A crash report's facts about one code object; lists run parallel to its instructions."""

    name: str
    path: str
    instructions: list[str]
    user_lines: list[int | None]
    listing: str


class CellWriter:
    """The debugged process's end."""

    def __init__(self, folder: str) -> None:
        """Map the cell in ``folder``.

        Raises:
            OSError: the file cannot be made.
        """
        self._folder = Path(folder)
        self._process_id = os.getpid()
        path = _cell_path(folder, self._process_id)
        with path.open("w+b") as file:
            file.truncate(_RECORD.size * _SLOTS)
            self._memory = mmap.mmap(file.fileno(), _RECORD.size * _SLOTS)
        self._idents: list[int] = []
        self._lock = threading.Lock()
        for slot in range(_SLOTS):
            _RECORD.pack_into(self._memory, slot * _RECORD.size, 0, 0, _NONE, _NONE)

    def take_slot(self, thread_id: int) -> int | None:
        """Return the number of the calling thread's record; None if all are in use. ``thread_id`` is its native id."""
        with self._lock:
            if thread_id in self._idents:
                return self._idents.index(thread_id)
            if len(self._idents) == _SLOTS:
                return None
            self._idents.append(thread_id)
            return len(self._idents) - 1

    def describe(self, number: int, description: CodeDescription) -> None:
        """Store a crash report's facts about the code ``number``."""
        path = _description_path(str(self._folder), self._process_id, number)
        path.write_bytes(msgspec.json.encode(description))

    def write(self, slot: int, number: int, index: int) -> None:
        """Note that the instruction ``index`` of the code ``number`` is about to run."""
        _RECORD.pack_into(self._memory, slot * _RECORD.size, self._idents[slot], time.monotonic_ns(), number, index)

    def clear(self, slot: int) -> None:
        """Note that the thread of ``slot`` runs no generated code now."""
        _RECORD.pack_into(self._memory, slot * _RECORD.size, self._idents[slot], time.monotonic_ns(), _NONE, _NONE)

    def clear_all(self) -> None:
        """Note that no thread runs generated code now."""
        for slot in range(len(self._idents)):
            self.clear(slot)


@dataclass(frozen=True, slots=True)
class CrashSite:
    """The position of a process when it died."""

    name: str
    """The generated code: ``fn (generated #0)``."""
    path: str
    """The user's file."""
    index: int
    instruction: str
    user_line: int | None
    listing: str
    thread_id: int
    """Native id of the thread."""

    def __str__(self) -> str:
        line = f", user line {self.user_line}" if self.user_line is not None else ""
        return f"in {self.name} at instruction {self.index} {self.instruction}{line}"

    def excerpt(self, around: int = 5) -> str:
        """Return the lines of the listing around the instruction, which is marked."""
        lines = self.listing.splitlines()
        first, last = max(0, self.index - around), min(len(lines), self.index + around + 1)
        return "\n".join(f"{'>' if number == self.index else ' '} {lines[number]}" for number in range(first, last))


def _cell_path(folder: str, process_id: int) -> Path:
    return Path(folder) / f"{process_id}.cell"


def _description_path(folder: str, process_id: int, number: int) -> Path:
    return Path(folder) / f"{process_id}.code-{number}.json"


def read_crash(folder: str, process_id: int) -> CrashSite | None:
    """Return the last position of process ``process_id`` in generated code; None if it ran none.

    Of several threads the last active one is chosen: the operating system does not report which one crashed.
    """
    try:
        data = _cell_path(folder, process_id).read_bytes()
    except OSError:
        return None
    records = [_RECORD.unpack_from(data, slot * _RECORD.size) for slot in range(len(data) // _RECORD.size)]
    executing = [record for record in records if record[2] != _NONE and record[1]]
    if not executing:
        return None
    thread_id, _, number, index = max(executing, key=lambda record: record[1])
    with contextlib.suppress(OSError, msgspec.DecodeError, msgspec.ValidationError):
        reported = _description_path(folder, process_id, number).read_bytes()
        description = msgspec.json.decode(reported, type=CodeDescription)
        return CrashSite(
            name=description.name,
            path=description.path,
            index=index,
            instruction=description.instructions[index],
            user_line=description.user_lines[index],
            listing=description.listing,
            thread_id=thread_id,
        )
    return None
