"""Notes the running instruction of generated code, where another process can read it after a crash.

Runs on the thread that runs the code. See ``protocol.crash_cell`` for the cell itself.
"""

from __future__ import annotations

import threading
from types import FrameType

from dynamo_dap.debuggee.agent.log import log_exception
from dynamo_dap.debuggee.generated.known_code import GeneratedCode, GeneratedCodes
from dynamo_dap.protocol.crash_cell import CellWriter, CodeDescription


class CrashRecorder:
    """Writes the crash cell, if the starting process asked for one."""

    def __init__(self, folder: str | None) -> None:
        """Write the cell to ``folder``; write nothing if it is None."""
        self._folder = folder
        self._writer: CellWriter | None = None
        self._described: set[int] = set()
        self._threads = threading.local()

    @property
    def is_on(self) -> bool:
        """Whether another process reads the notes."""
        return self._folder is not None

    def record(self, generated: GeneratedCode, index: int) -> None:
        """Record that this thread is about to execute the instruction ``index``."""
        slot = getattr(self._threads, "slot", None)
        if slot is None or generated.number not in self._described:
            slot = self._prepare(generated)
        if slot is not None and self._writer is not None:
            self._writer.write(slot, generated.number, index)

    def frame_ended(self, frame: FrameType, codes: GeneratedCodes) -> None:
        """Record the caller's instruction again when ``frame`` ends, if the caller is generated code."""
        slot = getattr(self._threads, "slot", None)
        if slot is None or self._writer is None:
            return
        caller = frame.f_back
        while caller is not None:
            generated = codes.get(caller.f_code)
            index = generated.table.index_at(caller.f_lasti) if generated is not None else None
            if generated is not None and index is not None and generated.number in self._described:
                self._writer.write(slot, generated.number, index)
                return
            caller = caller.f_back
        self._writer.clear(slot)

    def _prepare(self, generated: GeneratedCode) -> int | None:
        assert self._folder is not None
        try:
            if self._writer is None:
                self._writer = CellWriter(self._folder)
            if generated.number not in self._described:
                self._writer.describe(generated.number, _description(generated))
                self._described.add(generated.number)
            slot: int | None = getattr(self._threads, "slot", None)
            if slot is None:
                slot = self._threads.slot = self._writer.take_slot(threading.get_native_id())
            return slot
        except (OSError, ValueError):
            # Stepping continues without the cell.
            self._folder = None
            log_exception("preparing the crash cell")
            return None

    def pause(self) -> None:
        """Note that no generated code runs: no events arrive for now."""
        if self._writer is not None:
            self._writer.clear_all()


def _description(generated: GeneratedCode) -> CodeDescription:
    listing = generated.listing
    return CodeDescription(
        name=generated.name,
        path=generated.path,
        instructions=[str(instruction) for instruction in generated.table],
        user_lines=[listing.user_line(index) for index in range(len(generated.table))],
        listing=listing.text(),
    )
