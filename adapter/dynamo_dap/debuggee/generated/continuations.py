"""Finds the user's own instructions at the end of generated code, which run as ordinary Python.

Dynamo cannot resume after a graph break inside ``try`` or in a loop's body. The generated code then jumps to a copy of
the rest of the function. Any thread may call its functions; they have no side effects.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass

from dynamo_dap.debuggee.bytecode.instructions import InstructionTable

_JUMPS = ("JUMP_FORWARD", "JUMP_ABSOLUTE")
_HAS_COLUMNS = sys.version_info >= (3, 11)
_RESUME_FUNCTION = "__resume_at_"


@dataclass(frozen=True, slots=True)
class Continuation:
    """The rest of a function that runs as ordinary Python."""

    jump: int
    """Index of the instruction that jumps into it."""
    lines: Mapping[int, int]
    """Index -> line, where a user's line begins."""
    repeated: frozenset[int]
    """The indices of ``lines`` that Dynamo traced before it reached the graph break."""

    def line_of(self, index: int) -> int | None:
        """Return the line of the instruction ``index``; None before the continuation."""
        starts = [start for start in self.lines if start <= index]
        return self.lines[max(starts)] if starts and index > self.jump else None


def continuation_of(table: InstructionTable, break_line: int | None) -> Continuation | None:
    """Return a code object's continuation, or None.

    ``break_line`` is the line of the graph break in the compiled function, if known.
    """
    if not _HAS_COLUMNS:
        return _without_columns(table, break_line)
    for index, instruction in enumerate(table.instructions):
        if instruction.name in _JUMPS and _is_dynamos(table, index):
            target = table.index_at(instruction.target) if instruction.target is not None else None
            # In torch 2.15 Dynamo's code tests whether the profiler runs, with jumps among its own instructions.
            if target is not None and not _is_dynamos(table, target):
                return _made(table, index, target, break_line)
    return None


def _without_columns(table: InstructionTable, break_line: int | None) -> Continuation | None:
    """Find the continuation by lines, on Python 3.10: Dynamo's instructions inherit the line before them.

    After any other graph break Dynamo calls a resume function, and its own instructions come last.
    """
    if any(str(one.value).startswith(_RESUME_FUNCTION) for one in table if one.name == "LOAD_GLOBAL"):
        return None
    begin = next((index for index, one in enumerate(table) if one.line != table[0].line), None)
    if begin is None or break_line not in {one.line for one in table.instructions[begin:]}:
        return None
    before = table[begin - 1]
    jumped = table.index_at(before.target) if before.name in _JUMPS and before.target is not None else None
    return _made(table, begin - 1, begin if jumped is None else jumped, break_line)


def _is_dynamos(table: InstructionTable, index: int) -> bool:
    """Return whether Dynamo made an instruction: it has the code's first line, and no column."""
    place = table[index].place
    return place is None or (place.lineno in (None, table[0].line) and place.col_offset is None)


def _made(table: InstructionTable, jump: int, target: int, break_line: int | None) -> Continuation:
    lines: dict[int, int] = {}
    for index in range(jump + 1, len(table)):
        line = table[index].line
        if line is not None and (index in (jump + 1, target) or table[index - 1].line != line):
            lines[index] = line
    reached = [index for index in sorted(lines) if index >= target]
    end = next((number for number, index in enumerate(reached, 1) if lines[index] == break_line), 0)
    return Continuation(jump, lines, frozenset(reached[:end]))
