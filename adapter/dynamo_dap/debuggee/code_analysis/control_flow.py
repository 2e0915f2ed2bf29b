"""Where control goes in a code object: who jumps where, and which stretches are entered and left at their ends only.

Pure; a ``ControlFlow`` belongs to one walk over the code, which takes out the jumps that it has understood.
"""

from __future__ import annotations

from dynamo_dap.debuggee.code_analysis.instructions import Instruction
from dynamo_dap.debuggee.code_analysis.stack_depth import StackDepths

_BY_EXCEPTION = -1


def is_block_setup(instruction: Instruction) -> bool:
    """Whether an instruction's target is an exception handler rather than a place it jumps to (Python 3.10)."""
    return instruction.name in ("SETUP_FINALLY", "SETUP_WITH", "SETUP_ASYNC_WITH")


class ControlFlow:
    """The jumps of one code object, by indices of instructions."""

    def __init__(self, depths: StackDepths) -> None:
        self._table = depths.table
        self._sources: dict[int, set[int]] = {}
        for one in self._table:
            if one.target is not None:
                source = _BY_EXCEPTION if is_block_setup(one) else one.index
                self._sources.setdefault(self.index_at(one.target), set()).add(source)
        for protected in depths.table.protected:
            self._sources.setdefault(self.index_at(protected.handler), set()).add(_BY_EXCEPTION)

    def index_at(self, offset: int) -> int:
        """Return the index of the instruction at ``offset``; one behind the last for an offset behind all."""
        index = self._table.index_at(offset)
        return len(self._table) if index is None else index

    def is_entered(self, index: int) -> bool:
        """Whether an instruction is come to otherwise than from the one before it."""
        return bool(self._sources.get(index))

    def is_only_entered_from(self, index: int, source: int) -> bool:
        """Whether the one jump to ``index`` is that of ``source``."""
        return self._sources.get(index) == {source}

    def understood(self, *targets: int) -> None:
        """Take out the jumps to ``targets``."""
        for target in targets:
            self._sources.pop(target, None)

    def is_for_exceptions(self, inside: range) -> bool:
        """Whether nothing but an exception leads to these instructions."""
        return self._entries(inside) <= {_BY_EXCEPTION, *inside}

    def is_closed(self, inside: range) -> bool:
        """Whether these instructions are entered at the first, and left behind the last, alone."""
        return self._entries(inside) <= set(inside) and self._exits(inside) <= set(inside)

    def _entries(self, inside: range) -> set[int]:
        return {source for one in inside for source in self._sources.get(one, ())}

    def _exits(self, inside: range) -> set[int]:
        jumps: list[Instruction] = [self._table[one] for one in inside]
        return {self.index_at(jump.target) for jump in jumps if jump.target is not None}
