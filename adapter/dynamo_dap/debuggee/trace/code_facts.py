"""Finds where user lines begin in traced code, and where the function begins.

These facts are computed once per code object, from the instructions as Dynamo interprets them. Runs on the tracing
thread. Facts live as long as the process, and keep their code object alive.
"""

from __future__ import annotations

import types
from collections.abc import Sequence

from dynamo_dap.debuggee.bytecode.line_table import LineTableError, line_table
from dynamo_dap.debuggee.torch_api.traced.traced_frame import TracedFrame, TracedInstruction

_ENTRY_MARKS = frozenset({"RESUME", "COPY_FREE_VARS", "MAKE_CELL", "RETURN_GENERATOR", "GEN_START"})
_ENTRY_OPERATIONS = _ENTRY_MARKS | {"POP_TOP", "NOP"}
_LOOP_HEADS = frozenset({"FOR_ITER", "SEND", "END_FOR", "POP_ITER", "END_ASYNC_FOR"})


class CodeFacts:
    """Facts of one code object. Indices are those of ``TracedFrame.instructions``."""

    def __init__(self, code: types.CodeType, instructions: Sequence[TracedInstruction]) -> None:
        self.code = code
        starts = _line_starts(instructions)
        entries = [index for index in starts if _is_entry_only(instructions, index, starts)]
        self.line_starts = frozenset(starts) - frozenset(entries)
        """Indices where a user line begins, also after a backward jump; without CPython's hidden entry operations."""
        self.first_line_start = min(self.line_starts, default=-1)
        self._first_of_line: dict[int, int] = {}
        for index in sorted(self.line_starts, reverse=True):
            self._first_of_line[instructions[index].line or 0] = index
        self._depth_of_line: dict[int, int] = {}
        self._instructions = instructions
        self._resume_prologue_mark = _resume_prologue_mark(instructions)
        self._statement_starts = _statement_starts(code)

    def is_resume_prologue(self, index: int) -> bool:
        """Return whether an instruction is at the beginning of a resume function, before any user line."""
        return index <= self._resume_prologue_mark

    def begins_line(self, index: int, came_from: int) -> bool:
        """Return whether a user's line begins at ``index``, coming from instruction ``came_from`` (-1: none).

        As in CPython's line events, a line begins again only after a backward jump.
        """
        if index not in self.line_starts or self.is_resume_prologue(index):
            return False
        before, here = self._instructions[came_from], self._instructions[index]
        stays = 0 <= came_from < index and before.line == here.line
        return not (stays and index in (came_from + 1, before.target))

    def first_of_line(self, line: int) -> int | None:
        """Return the first index at which ``line`` begins; None if there is none."""
        return self._first_of_line.get(line)

    def begins_statement(self, line: int) -> bool:
        """Return whether a statement begins on ``line``; True if the source is unavailable."""
        return self._statement_starts is None or line in self._statement_starts

    def continues_statement(self, depth: int, index: int, line: int, depths: dict[int, int] | None = None) -> bool:
        """Return whether control only returns to the line at ``index`` within a statement.

        That happens at a call whose arguments have their own lines, and at the exit of a ``with``. The value stack is
        then deeper (``depth``) than when the line began. ``depths`` stores the depth of each line, so call this in
        execution order.
        """
        known = self._depth_of_line if depths is None else depths
        if index == self._first_of_line.get(line):
            known[line] = depth
            return False
        if self._instructions[index].name in _LOOP_HEADS:
            return False
        return depth > known.get(line, depth)


def _line_starts(instructions: Sequence[TracedInstruction]) -> list[int]:
    starts: set[int] = set()
    line: int | None = None
    for index, instruction in enumerate(instructions):
        if instruction.line is not None and instruction.line != line:
            starts.add(index)
        line = instruction.line
        if 0 <= instruction.target <= index and instructions[instruction.target].line is not None:
            starts.add(instruction.target)
    return sorted(starts)


def _resume_prologue_mark(instructions: Sequence[TracedInstruction]) -> int:
    """Return where a resume function begins to restore its state; -1 in any other function.

    There it sets a local variable, the mark (torch/_dynamo/resume_execution.py).
    """
    for index, instruction in enumerate(instructions):
        if instruction.value == "__is_tracing_resume_prologue":
            return index
    return -1


def _is_entry_only(instructions: Sequence[TracedInstruction], start: int, starts: Sequence[int]) -> bool:
    end = next((index for index in starts if index > start), len(instructions))
    names = {instructions[index].name for index in range(start, end)}
    return names <= _ENTRY_OPERATIONS and bool(names & _ENTRY_MARKS)


def _statement_starts(code: types.CodeType) -> frozenset[int] | None:
    try:
        return line_table(code.co_filename).statement_starts
    except LineTableError:
        return None


class CodeFactsCache:
    """Caches ``CodeFacts`` by identity: code objects of different functions may be equal."""

    def __init__(self) -> None:
        self._facts: dict[int, CodeFacts] = {}

    def of(self, frame: TracedFrame) -> CodeFacts:
        """Return the facts of the frame's code."""
        code = frame.code
        facts = self._facts.get(id(code))
        if facts is None or facts.code is not code:
            facts = self._facts[id(code)] = CodeFacts(code, frame.instructions)
        return facts
