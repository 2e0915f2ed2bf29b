"""The instructions of a code object: offsets, arguments, jump targets, lines, and where each is in the source.

The standard library's ``dis`` decodes them; what it does not do is kept here: ``EXTENDED_ARG`` prefixes belong to the
instruction they extend, inline caches to the instruction before them, constants are never turned into text by their
own ``repr``. Pure; any thread. An ``InstructionTable`` keeps no reference to its code object, so that it can live in a
record about the code without keeping the code alive, but it holds the code's constants.
"""

from __future__ import annotations

import dis
import opcode
from collections.abc import Iterator
from dataclasses import dataclass
from types import CodeType

from dynamo_dap.debuggee.code_analysis.constants import constant_text

_EXTENDED_ARG = opcode.opmap["EXTENDED_ARG"]
_CACHE = opcode.opmap.get("CACHE")
_HAS_CONSTANT = frozenset(opcode.hasconst)
_HAS_ARGUMENT = opcode.HAVE_ARGUMENT
_JUMPS = frozenset((*opcode.hasjrel, *opcode.hasjabs))
_SETUP_BLOCKS = frozenset({"SETUP_FINALLY", "SETUP_WITH", "SETUP_ASYNC_WITH"})
_NEVER_FALL_THROUGH = frozenset(
    {
        "RETURN_VALUE",
        "RETURN_CONST",
        "RAISE_VARARGS",
        "RERAISE",
        "JUMP_FORWARD",
        "JUMP_ABSOLUTE",
        "JUMP_BACKWARD",
        "JUMP_BACKWARD_NO_INTERRUPT",
        "INTERPRETER_EXIT",
    }
)


@dataclass(frozen=True, slots=True)
class SourceRange:
    """Where an instruction comes from: 1-based lines, 0-based UTF-8 columns as ``co_positions`` gives them."""

    line: int
    end_line: int | None = None
    column: int | None = None
    end_column: int | None = None


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction with its ``EXTENDED_ARG`` prefixes and inline caches."""

    index: int
    """Its number in the code object, from 0."""
    start: int
    """Offset of its first byte: of its first ``EXTENDED_ARG``, if it has any."""
    offset: int
    """Offset of its opcode, in bytes, as ``f_lasti`` and monitoring events give it."""
    end: int
    """Offset behind its last inline cache."""
    opcode: int
    name: str
    argument: int | None
    value: object
    """The argument resolved: a name, a constant, an offset to jump to."""
    text: str
    """The argument for a person; empty when there is none."""
    target: int | None
    """Offset that it jumps to, or None."""
    place: SourceRange | None

    @property
    def line(self) -> int | None:
        """The source line, None for an instruction that belongs to none."""
        return self.place.line if self.place is not None else None

    @property
    def falls_through(self) -> bool:
        """Whether the next instruction can run after it."""
        return self.name not in _NEVER_FALL_THROUGH

    @property
    def is_block_setup(self) -> bool:
        """Whether its target is an exception handler rather than a place it jumps to (Python 3.10)."""
        return self.name in _SETUP_BLOCKS

    @property
    def is_return(self) -> bool:
        """Whether it ends the frame with a value."""
        return self.name in ("RETURN_VALUE", "RETURN_CONST")

    def __str__(self) -> str:
        return f"{self.name} {self.text}".rstrip()


class InstructionTable:
    """The instructions of one code object, by index and by offset."""

    def __init__(self, code: CodeType) -> None:
        """Decode ``code``; it is not kept."""
        self.instructions: tuple[Instruction, ...] = tuple(_decode(code))
        self.code_size = len(code.co_code)
        self.index_of_start: dict[int, int] = {one.start: one.index for one in self.instructions}
        """Index by the offset at which an instruction begins, prefixes included."""
        by_offset = [-1] * (self.code_size // 2)
        for instruction in self.instructions:
            count = (instruction.end - instruction.start) // 2
            by_offset[instruction.start // 2 : instruction.end // 2] = [instruction.index] * count
        self._by_offset = by_offset

    def __len__(self) -> int:
        return len(self.instructions)

    def __getitem__(self, index: int) -> Instruction:
        return self.instructions[index]

    def __iter__(self) -> Iterator[Instruction]:
        return iter(self.instructions)

    def index_at(self, offset: int) -> int | None:
        """Return the index of the instruction that holds the byte at ``offset``; None outside of the code."""
        if not 0 <= offset < self.code_size:
            return None
        return self._by_offset[offset // 2]

    def at(self, offset: int) -> Instruction | None:
        """Return the instruction that holds the byte at ``offset``; None outside of the code."""
        index = self.index_at(offset)
        return None if index is None else self.instructions[index]

    def next_of(self, instruction: Instruction) -> Instruction | None:
        """Return the instruction that stands behind ``instruction``."""
        following = instruction.index + 1
        return self.instructions[following] if following < len(self.instructions) else None


def _decode(code: CodeType) -> Iterator[Instruction]:
    # dis would make text of every constant by its repr; the numbers stand for the constants meanwhile.
    numbered = code.replace(co_consts=tuple(range(len(code.co_consts))))
    places = _places(code)
    ends = _ends(code.co_code)
    start: int | None = None
    index = 0
    for raw in dis.get_instructions(numbered):
        if raw.opcode == _EXTENDED_ARG:
            start = raw.offset if start is None else start
            continue
        if raw.opcode == _CACHE:
            continue
        value, text = raw.argval, raw.argrepr
        if raw.opcode in _HAS_CONSTANT and raw.arg is not None:
            value = code.co_consts[raw.arg]
            text = constant_text(value)
        yield Instruction(
            index=index,
            start=raw.offset if start is None else start,
            offset=raw.offset,
            end=ends[raw.offset],
            opcode=raw.opcode,
            name=raw.opname,
            argument=raw.arg,
            value=value,
            text=text if text or raw.arg is None else str(raw.arg),
            target=raw.argval if raw.opcode in _JUMPS else None,
            place=places[raw.offset // 2],
        )
        start = None
        index += 1


def _ends(instructions: bytes) -> dict[int, int]:
    """Return where each instruction ends, its inline caches included: ``co_code`` shows those as ``CACHE`` opcodes."""
    ends: dict[int, int] = {}
    begin = 0
    for offset in range(0, len(instructions), 2):
        if instructions[offset] != _CACHE:
            begin = offset
        ends[begin] = offset + 2
    return ends


def _places(code: CodeType) -> list[SourceRange | None]:
    """Return the source range of each two-byte unit of the code."""
    if hasattr(code, "co_positions"):
        return [
            None if not line else SourceRange(line, end_line, column, end_column)
            for line, end_line, column, end_column in code.co_positions()
        ]
    places: list[SourceRange | None] = [None] * (len(code.co_code) // 2)
    for begin, end, line in code.co_lines():
        for unit in range(begin // 2, end // 2):
            places[unit] = SourceRange(line) if line else None
    return places
