"""The depth of the value stack before every instruction, from the code alone.

All paths are followed: falling through, jumps taken, and the handlers of the exception table (on Python 3.10: of the
blocks that ``SETUP_FINALLY`` and ``SETUP_WITH`` open). Nothing depends on what was executed so far, so the answer is
right after an exception, after a jump, and for a frame first looked at in its middle. Pure; any thread.
"""

from __future__ import annotations

import sys
from inspect import CO_ASYNC_GENERATOR, CO_COROUTINE, CO_GENERATOR
from types import CodeType

from dynamo_dap.debuggee.code_analysis.instructions import Instruction, InstructionTable
from dynamo_dap.debuggee.code_analysis.operands import UnknownInstruction, effect, taken

_RESUMABLE = CO_GENERATOR | CO_COROUTINE | CO_ASYNC_GENERATOR
_VERSION = sys.version_info[:2]


class InconsistentStack(Exception):
    """Two paths reach an instruction with different depths: the code is broken, or our reading of it."""


class StackDepths:
    """Depths for one code object; it keeps no reference to the code."""

    def __init__(self, code: CodeType, table: InstructionTable | None = None) -> None:
        """``table`` saves decoding ``code`` again.

        Raises:
            InconsistentStack: the code cannot be right.
        """
        self.table = table if table is not None else InstructionTable(code)
        self._before: list[int | None] = [None] * len(self.table)
        self._work: list[tuple[Instruction, int]] = []
        self._follow_all_paths(_depth_at_entry(code))

    def before(self, index: int) -> int | None:
        """Return the depth before the instruction ``index``; None when no path leads there."""
        return self._before[index]

    def below_operands(self, index: int) -> int | None:
        """Return how many slots are the frame's own for certain while the instruction ``index`` is executed.

        An instruction in the middle of its work (a caller's ``CALL``, the one that raised) may have moved, emptied or
        released the values it takes, so reading their slots is not safe. None when no path leads there, or the
        instruction is unknown.
        """
        depth = self._before[index]
        if depth is None:
            return None
        try:
            return max(0, depth - taken(self.table[index]))
        except UnknownInstruction:
            return None

    def _follow_all_paths(self, entry_depth: int) -> None:
        if not len(self.table):
            return
        self._reach(self.table[0], entry_depth)
        while self._work:
            instruction, depth = self._work.pop()
            self._leave(instruction, depth)

    def _reach(self, instruction: Instruction, depth: int) -> None:
        known = self._before[instruction.index]
        if known is None:
            self._before[instruction.index] = depth
            self._work.append((instruction, depth))
        elif known != depth:
            raise InconsistentStack(f"{instruction} at offset {instruction.offset} is reached with {known} and {depth}")

    def _leave(self, instruction: Instruction, depth: int) -> None:
        for protected in self.table.protected:
            if protected.start <= instruction.offset < protected.end:
                self._reach_offset(protected.handler, protected.handler_depth)
                break
        if instruction.target is not None:
            self._reach_offset(instruction.target, depth + effect(instruction, jump=True))
        following = self.table.next_of(instruction) if instruction.falls_through else None
        if following is not None:
            self._reach(following, depth + effect(instruction, jump=False))

    def _reach_offset(self, offset: int, depth: int) -> None:
        instruction = self.table.at(offset)
        if instruction is not None:
            self._reach(instruction, depth)


def _depth_at_entry(code: CodeType) -> int:
    """Generators of Python 3.10 begin with the value sent to them on the stack, which ``GEN_START`` takes off."""
    return 1 if code.co_flags & _RESUMABLE and _VERSION < (3, 11) else 0
