"""Decodes a code object's instructions: offsets, arguments, jump targets, source positions, exception handlers.

The package ``bytecode`` from PyPI decodes them. Arguments are written as by the standard library's ``dis``, except
constants, whose own ``repr`` is never called. ``EXTENDED_ARG`` prefixes belong to the instruction they extend, inline
caches to the instruction before them. An ``InstructionTable`` holds the code's constants, but not the code object
itself, so that a record about the code does not keep the code alive. Any thread may call its functions; they have no
side effects.
"""

from __future__ import annotations

import dis
import opcode
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from types import CodeType

from bytecode import ConcreteBytecode, ConcreteInstr
from bytecode.concrete import ExceptionTableEntry
from bytecode.instr import InstrLocation
from msgspec import Struct

from dynamo_dap.debuggee.bytecode.constants import constant_text

_CACHE = opcode.opmap.get("CACHE")
_NO_INSTRUCTIONS = frozenset({opcode.opmap["EXTENDED_ARG"], _CACHE})
LOADS_OF_CONSTANTS = frozenset(
    {"LOAD_CONST", "LOAD_SMALL_INT"} | ({"LOAD_COMMON_CONSTANT"} if sys.version_info >= (3, 15) else set())
)
"""Instructions that load constants; Python 3.15 has one for None, True, False, -1 and the empty string."""
_END_ASYNC_FOR = "END_ASYNC_FOR"
"""From Python 3.14 on its argument looks like a jump's, but it does not jump."""
_JUMPS = frozenset((*opcode.hasjrel, *opcode.hasjabs)) - {opcode.opmap[_END_ASYNC_FOR]}
_UNIT = 2
"""Size of an instruction, and of each of its prefixes and caches."""
_HAS_CONSTANT = frozenset(opcode.hasconst)
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


class Instruction(Struct, frozen=True):
    """One instruction with its ``EXTENDED_ARG`` prefixes and inline caches."""

    index: int
    """Its number in the code object, from 0."""
    start: int
    """Offset of its first byte, or of its first ``EXTENDED_ARG``."""
    offset: int
    """Offset of its opcode in bytes, as in ``f_lasti`` and monitoring events."""
    end: int
    """Offset after its last inline cache."""
    opcode: int
    name: str
    argument: int | None
    value: object
    """The argument resolved: a name, a constant, an offset to jump to."""
    text: str
    """The argument as readable text; empty if there is none."""
    target: int | None
    """Offset that it jumps to, or None."""
    place: InstrLocation | None
    """1-based lines, 0-based UTF-8 columns, as in ``co_positions``; None if it belongs to no line."""

    @property
    def line(self) -> int | None:
        """The source line, or None."""
        return self.place.lineno if self.place is not None else None

    @property
    def falls_through(self) -> bool:
        """Whether the next instruction can run after it."""
        return self.name not in _NEVER_FALL_THROUGH

    @property
    def sets_up_block(self) -> bool:
        """Whether its target is an exception handler, not a jump target (Python 3.10)."""
        return self.name in ("SETUP_FINALLY", "SETUP_WITH", "SETUP_ASYNC_WITH")

    @property
    def is_return(self) -> bool:
        """Whether it ends the frame with a value."""
        return self.name in ("RETURN_VALUE", "RETURN_CONST")

    def __str__(self) -> str:
        return f"{self.name} {self.text}".rstrip()


@dataclass(frozen=True, slots=True)
class ProtectedRange:
    """Instructions at offsets from ``start`` up to, not including, ``end`` go to ``handler`` when they raise."""

    start: int
    end: int
    handler: int
    depth: int
    """The value stack is cut to this depth before the handler runs."""
    pushes_offset: bool
    """Whether the raising instruction's offset is pushed below the exception."""

    @property
    def handler_depth(self) -> int:
        """The stack depth before the handler's first instruction: the exception is on top."""
        return self.depth + self.pushes_offset + 1


class InstructionTable:
    """The instructions of one code object, by index and by offset, and its exception table."""

    def __init__(self, code: CodeType) -> None:
        """Decode ``code``, without keeping it."""
        decoded = ConcreteBytecode.from_code(code)
        self.instructions: tuple[Instruction, ...] = tuple(_instructions(code, decoded))
        self.protected: tuple[ProtectedRange, ...] = tuple(_protected(entry) for entry in decoded.exception_table)
        """Innermost first where they overlap, as CPython looks them up; Python 3.10 has blocks instead."""
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
        """Return the index of the instruction that contains the byte at ``offset``, or None."""
        if not 0 <= offset < self.code_size:
            return None
        return self._by_offset[offset // 2]

    def at(self, offset: int) -> Instruction | None:
        """Return the instruction that contains the byte at ``offset``, or None."""
        index = self.index_at(offset)
        return None if index is None else self.instructions[index]

    def comparable(self, index: int) -> tuple[str, object]:
        """Return an instruction's text without its position: name and argument, or the jump's target instruction."""
        instruction = self.instructions[index]
        if instruction.target is not None:
            return instruction.name, self.index_at(instruction.target)
        # The text of an empty name is its number.
        return instruction.name, instruction.text if instruction.value != "" else ""

    def next_of(self, instruction: Instruction) -> Instruction | None:
        """Return the instruction after ``instruction``."""
        following = instruction.index + 1
        return self.instructions[following] if following < len(self.instructions) else None


def _instructions(code: CodeType, decoded: ConcreteBytecode) -> Iterator[Instruction]:
    # dis would call every constant's repr; numbers replace the constants meanwhile.
    numbered = code.replace(co_consts=tuple(range(len(code.co_consts))))
    arguments = (one for one in dis.get_instructions(numbered) if one.opcode not in _NO_INSTRUCTIONS)
    placed = list(_placed(decoded))
    ends = [start for start, _ in placed[1:]] + [len(code.co_code)]
    for index, ((start, one), end, argument) in enumerate(zip(placed, ends, arguments, strict=True)):
        opcode, location = one.opcode, one.location
        value, text = argument.argval, argument.argrepr
        if opcode in _HAS_CONSTANT:
            value = decoded.consts[one.arg]
            text = constant_text(value)
        target = (one.get_jump_target(start // _UNIT) or 0) * _UNIT if opcode in _JUMPS else None
        if target is not None:
            # dis of Python 3.13 writes labels, which a listing with offsets does not have.
            text = f"to {target}"
        elif one.name == _END_ASYNC_FOR and argument.arg is not None:
            text = f"from {value}"
        yield Instruction(
            index,
            start,
            start + one.size - _UNIT,
            end,
            opcode,
            one.name,
            argument.arg,
            value,
            text if text or argument.arg is None else str(argument.arg),
            target,
            location if location is not None and location.lineno else None,
        )


def _placed(decoded: ConcreteBytecode) -> Iterator[tuple[int, ConcreteInstr]]:
    """Yield each instruction with the offset of its first byte."""
    offset = 0
    for one in decoded:
        assert isinstance(one, ConcreteInstr)
        if one.opcode != _CACHE:
            yield offset, one
        offset += one.size


def _protected(entry: ExceptionTableEntry) -> ProtectedRange:
    end = (entry.stop_offset + 1) * _UNIT
    return ProtectedRange(entry.start_offset * _UNIT, end, entry.target * _UNIT, entry.stack_depth, entry.push_lasti)


BINARY_OPERATORS = {
    "BINARY_ADD": "+",
    "BINARY_SUBTRACT": "-",
    "BINARY_MULTIPLY": "*",
    "BINARY_TRUE_DIVIDE": "/",
    "BINARY_FLOOR_DIVIDE": "//",
    "BINARY_MODULO": "%",
    "BINARY_POWER": "**",
    "BINARY_MATRIX_MULTIPLY": "@",
    "BINARY_AND": "&",
    "BINARY_OR": "|",
    "BINARY_XOR": "^",
    "BINARY_LSHIFT": "<<",
    "BINARY_RSHIFT": ">>",
}
"""Binary instructions up to Python 3.10; newer versions have ``BINARY_OP``."""
TAKES_ANY_OBJECT = frozenset(
    {
        "POP_TOP",
        "RETURN_VALUE",
        "BINARY_OP",
        "BINARY_SUBSCR",
        "BINARY_SLICE",
        "STORE_FAST",
        "STORE_GLOBAL",
        "STORE_NAME",
        "STORE_DEREF",
        "STORE_ATTR",
        "STORE_SUBSCR",
        "STORE_SLICE",
        "DELETE_SUBSCR",
        "DELETE_ATTR",
        "COMPARE_OP",
        "IS_OP",
        "CONTAINS_OP",
        "UNARY_NOT",
        "UNARY_NEGATIVE",
        "UNARY_INVERT",
        "TO_BOOL",
        "GET_ITER",
        "LOAD_ATTR",
        "LOAD_METHOD",
        "UNPACK_SEQUENCE",
        "BUILD_TUPLE",
        "BUILD_LIST",
        "BUILD_SLICE",
        "BUILD_SET",
        "BUILD_MAP",
        *BINARY_OPERATORS,
        *(name.replace("BINARY_", "INPLACE_") for name in BINARY_OPERATORS),
    }
)
"""Instructions that check their operands, or accept any object."""


def names_deleted(code: CodeType) -> frozenset[str]:
    """Return the local variables that a function deletes, including those of ``except ... as name``."""
    names = (each.argval for each in dis.get_instructions(code) if each.opname in ("DELETE_FAST", "DELETE_DEREF"))
    return frozenset(names)
