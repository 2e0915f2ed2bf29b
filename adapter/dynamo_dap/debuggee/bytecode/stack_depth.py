"""Computes the value stack's depth before every instruction, and what each instruction takes and leaves.

``dis.stack_effect`` gives only the difference. What an instruction takes matters while it is being executed: those
slots may be empty or dangling by then, and only the slots below them are valid. The numbers follow the descriptions of
the instructions in the documentation of ``dis``, Python 3.10 to 3.15; tests compare them with ``dis.stack_effect`` over
the whole standard library.

To compute the depth, this module follows all paths: to the next instruction, over jumps, and to the handlers of the
exception table (on Python 3.10: of the blocks that ``SETUP_FINALLY`` and ``SETUP_WITH`` open). Nothing depends on what
was executed so far, so the answer also holds after an exception, after a jump, and for a frame that is inspected
halfway through. Any thread may call its functions; they have no side effects.
"""

from __future__ import annotations

import dis
import sys
from collections.abc import Callable
from inspect import CO_ASYNC_GENERATOR, CO_COROUTINE, CO_GENERATOR
from types import CodeType

from dynamo_dap.debuggee.bytecode.instructions import Instruction, InstructionTable

_VERSION = sys.version_info[:2]


class UnknownInstruction(Exception):
    """This Python has an instruction that the table does not know."""


def taken(instruction: Instruction) -> int:
    """Return how many top values ``instruction`` reads, moves or removes.

    Raises:
        UnknownInstruction: no table entry.
    """
    count = _TAKEN.get(instruction.name)
    if count is None:
        raise UnknownInstruction(f"{instruction.name} is unknown to this debugger")
    return count if isinstance(count, int) else count(instruction.argument or 0)


def left(instruction: Instruction, *, jump: bool = False) -> int:
    """Return how many values ``instruction`` leaves instead of those taken; ``jump`` if it jumps.

    Raises:
        UnknownInstruction: no table entry.
    """
    return taken(instruction) + effect(instruction, jump=jump)


def effect(instruction: Instruction, *, jump: bool) -> int:
    """Return by how much ``instruction`` changes the stack's depth."""
    if _VERSION == (3, 11) and instruction.name in ("PRECALL", "CALL"):
        # The compiler of 3.11 accounts for the arguments at PRECALL; the interpreter takes them at CALL.
        return 0 if instruction.name == "PRECALL" else -1 - (instruction.argument or 0)
    if instruction.name == "RETURN_GENERATOR":
        # The resumed generator runs next, and finds the value sent to it; only 3.13 counts it here.
        return 1
    return dis.stack_effect(instruction.opcode, instruction.argument, jump=jump)


def _call(count: int) -> int:
    return count + 2


def _with_flag_at(bit: int, without: int, flagged: int) -> Callable[[int], int]:
    return lambda argument: flagged if argument >> bit & 1 else without


def _make_function(flags: int) -> int:
    extra = bin(flags & 0x0F).count("1")
    return extra + (2 if _VERSION < (3, 11) else 1)


def _call_function_ex(flags: int) -> int:
    if _VERSION >= (3, 14):
        return 4
    below = 1 if _VERSION < (3, 11) else 2
    return below + 1 + (flags & 1)


_NOTHING = (
    "NOP CACHE EXTENDED_ARG RESUME PUSH_NULL MAKE_CELL COPY_FREE_VARS SETUP_ANNOTATIONS POP_BLOCK PRECALL KW_NAMES "
    "JUMP_FORWARD JUMP_ABSOLUTE JUMP_BACKWARD JUMP_BACKWARD_NO_INTERRUPT LOAD_CONST LOAD_NAME LOAD_GLOBAL LOAD_FAST "
    "LOAD_FAST_CHECK LOAD_FAST_AND_CLEAR LOAD_FAST_LOAD_FAST LOAD_FAST_BORROW LOAD_FAST_BORROW_LOAD_FAST_BORROW "
    "LOAD_CLOSURE LOAD_DEREF LOAD_CLASSDEREF LOAD_LOCALS LOAD_BUILD_CLASS LOAD_ASSERTION_ERROR LOAD_SMALL_INT "
    "LOAD_COMMON_CONSTANT DELETE_NAME DELETE_GLOBAL DELETE_FAST DELETE_DEREF RETURN_GENERATOR RETURN_CONST "
    "SETUP_FINALLY NOT_TAKEN"
)
_ONE = (
    "POP_TOP END_FOR POP_ITER UNARY_POSITIVE UNARY_NEGATIVE UNARY_NOT UNARY_INVERT TO_BOOL GET_LEN MATCH_MAPPING "
    "MATCH_SEQUENCE GET_AITER GET_ANEXT GET_ITER GET_YIELD_FROM_ITER GET_AWAITABLE BEFORE_WITH BEFORE_ASYNC_WITH "
    "SETUP_WITH SETUP_ASYNC_WITH PRINT_EXPR LIST_TO_TUPLE RETURN_VALUE IMPORT_STAR YIELD_VALUE ASYNC_GEN_WRAP "
    "PUSH_EXC_INFO STORE_NAME STORE_GLOBAL STORE_FAST STORE_DEREF STORE_FAST_LOAD_FAST STORE_FAST_MAYBE_NULL "
    "DELETE_ATTR LOAD_ATTR LOAD_METHOD IMPORT_FROM POP_JUMP_IF_FALSE POP_JUMP_IF_TRUE POP_JUMP_IF_NONE "
    "POP_JUMP_IF_NOT_NONE POP_JUMP_FORWARD_IF_FALSE POP_JUMP_FORWARD_IF_TRUE POP_JUMP_FORWARD_IF_NONE "
    "POP_JUMP_FORWARD_IF_NOT_NONE POP_JUMP_BACKWARD_IF_FALSE POP_JUMP_BACKWARD_IF_TRUE POP_JUMP_BACKWARD_IF_NONE "
    "POP_JUMP_BACKWARD_IF_NOT_NONE JUMP_IF_FALSE_OR_POP JUMP_IF_TRUE_OR_POP FOR_ITER CALL_INTRINSIC_1 CONVERT_VALUE "
    "FORMAT_SIMPLE LOAD_FROM_DICT_OR_GLOBALS LOAD_FROM_DICT_OR_DEREF DUP_TOP GEN_START UNPACK_SEQUENCE UNPACK_EX "
    "INTERPRETER_EXIT EXIT_INIT_CHECK LOAD_SPECIAL"
)
_TWO = (
    "ROT_TWO DUP_TOP_TWO BINARY_POWER BINARY_MULTIPLY BINARY_MATRIX_MULTIPLY BINARY_MODULO BINARY_ADD "
    "BINARY_SUBTRACT BINARY_SUBSCR BINARY_FLOOR_DIVIDE BINARY_TRUE_DIVIDE BINARY_LSHIFT BINARY_RSHIFT BINARY_AND "
    "BINARY_XOR BINARY_OR INPLACE_POWER INPLACE_MULTIPLY INPLACE_MATRIX_MULTIPLY INPLACE_MODULO INPLACE_ADD "
    "INPLACE_SUBTRACT INPLACE_FLOOR_DIVIDE INPLACE_TRUE_DIVIDE INPLACE_LSHIFT INPLACE_RSHIFT INPLACE_AND "
    "INPLACE_XOR INPLACE_OR BINARY_OP COMPARE_OP IS_OP CONTAINS_OP MATCH_KEYS COPY_DICT_WITHOUT_KEYS "
    "CHECK_EXC_MATCH CHECK_EG_MATCH JUMP_IF_NOT_EXC_MATCH PREP_RERAISE_STAR STORE_ATTR DELETE_SUBSCR IMPORT_NAME "
    "YIELD_FROM SEND END_SEND CALL_INTRINSIC_2 FORMAT_WITH_SPEC SET_FUNCTION_ATTRIBUTE STORE_FAST_STORE_FAST "
    "END_ASYNC_FOR BUILD_TEMPLATE"
)
_THREE = "ROT_THREE STORE_SUBSCR BINARY_SLICE MATCH_CLASS CLEANUP_THROW LOAD_SUPER_ATTR"
_FOUR = "ROT_FOUR STORE_SLICE"

_BELOW_ITEM = ("LIST_APPEND", "SET_ADD", "LIST_EXTEND", "SET_UPDATE", "DICT_UPDATE", "DICT_MERGE")
"""Instructions that add the top of the stack to a container below it, which stays."""

_TAKEN: dict[str, int | Callable[[int], int]] = {
    **dict.fromkeys(_NOTHING.split(), 0),
    **dict.fromkeys(_ONE.split(), 1),
    **dict.fromkeys(_TWO.split(), 2),
    **dict.fromkeys(_THREE.split(), 3),
    **dict.fromkeys(_FOUR.split(), 4),
    **dict.fromkeys(_BELOW_ITEM, lambda depth: 1 + depth),
    "MAP_ADD": lambda depth: 2 + depth,
    "ROT_N": lambda count: count,
    "SWAP": lambda depth: depth,
    "COPY": lambda depth: depth,
    "BUILD_TUPLE": lambda count: count,
    "BUILD_LIST": lambda count: count,
    "BUILD_SET": lambda count: count,
    "BUILD_STRING": lambda count: count,
    "BUILD_MAP": lambda count: 2 * count,
    "BUILD_CONST_KEY_MAP": lambda count: count + 1,
    "BUILD_SLICE": lambda count: 3 if count == 3 else 2,
    "BUILD_INTERPOLATION": _with_flag_at(0, 2, 3),
    "FORMAT_VALUE": lambda flags: 2 if flags & 0x04 else 1,
    "RAISE_VARARGS": lambda count: count,
    "RERAISE": 3 if _VERSION < (3, 11) else lambda depth: 1 + depth,
    "POP_EXCEPT": 3 if _VERSION < (3, 11) else 1,
    "WITH_EXCEPT_START": 5 if _VERSION >= (3, 14) else 7 if _VERSION == (3, 10) else 4,
    "CALL": _call,
    "CALL_FUNCTION": lambda count: count + 1,
    "CALL_FUNCTION_KW": lambda count: count + 2,
    "CALL_KW": lambda count: count + 3,
    "CALL_METHOD": lambda count: count + 2,
    "CALL_FUNCTION_EX": _call_function_ex,
    "MAKE_FUNCTION": _make_function if _VERSION < (3, 13) else 1,
}
if _VERSION == (3, 12):
    _TAKEN["END_FOR"] = 2
if _VERSION == (3, 10):
    _TAKEN["END_ASYNC_FOR"] = 7
if _VERSION >= (3, 15):
    # Above an iterator lies its index, or an empty slot.
    _TAKEN |= {"FOR_ITER": 2, "POP_ITER": 2, "SEND": 3, "END_SEND": 3, "CLEANUP_THROW": 4}


_RESUMABLE = CO_GENERATOR | CO_COROUTINE | CO_ASYNC_GENERATOR
_HAS_BARE_NUMBERS = _VERSION >= (3, 14)


class InconsistentStack(Exception):
    """Two paths reach an instruction with different depths: the code is broken, or this table."""


class StackDepths:
    """Depths for one code object; it keeps no reference to the code."""

    def __init__(self, code: CodeType, table: InstructionTable | None = None) -> None:
        """Use ``table`` to avoid decoding ``code`` again.

        Raises:
            InconsistentStack: two paths reach an instruction with different depths.
        """
        self.table = table if table is not None else InstructionTable(code)
        self._before: list[int | None] = [None] * len(self.table)
        self._objects: list[int] = [0] * len(self.table)
        self._work: list[Instruction] = []
        self._follow_all_paths(_depth_at_entry(code))

    def before(self, index: int) -> int | None:
        """Return the depth before the instruction ``index``; None if no path leads there."""
        return self._before[index]

    def below_operands(self, index: int) -> int | None:
        """Return how many slots are valid while the instruction ``index`` is executed.

        An instruction in the middle of its work (a caller's ``CALL``, the one that raised) may have moved, emptied or
        released the values it takes, so reading their slots is not safe. None if no path leads there, or the
        instruction is unknown.
        """
        depth = self._before[index]
        if depth is None:
            return None
        try:
            return max(0, depth - taken(self.table[index]))
        except UnknownInstruction:
            return None

    def objects(self, index: int) -> int:
        """Return how many slots at the bottom hold objects before the instruction ``index``.

        A slot can also hold a bare number: from Python 3.14 on, the offset of the raising instruction in a handler;
        from 3.15 on, the index of a loop. Reading such a slot as an object crashes.
        """
        return self._objects[index]

    def _follow_all_paths(self, entry_depth: int) -> None:
        if not len(self.table):
            return
        self._reach(self.table[0], entry_depth, entry_depth)
        while self._work:
            self._leave(self._work.pop())

    def _reach(self, instruction: Instruction, depth: int, objects: int) -> None:
        """Note a path to ``instruction``; ``objects`` counts the slots below the lowest bare number."""
        index, objects = instruction.index, min(objects, depth)
        known = self._before[index]
        if known is not None and known != depth:
            raise InconsistentStack(f"{instruction} at offset {instruction.offset} is reached with {known} and {depth}")
        if known is None or objects < self._objects[index]:
            self._before[index], self._objects[index] = depth, objects
            self._work.append(instruction)

    def _leave(self, instruction: Instruction) -> None:
        depth, objects = self._before[instruction.index] or 0, self._objects[instruction.index]
        # Pushed slots hold objects, unless there is a bare number below.
        pushed = objects if objects < depth else self.table.code_size
        for protected in self.table.protected:
            if protected.start <= instruction.offset < protected.end:
                number = protected.depth if protected.pushes_offset and _HAS_BARE_NUMBERS else self.table.code_size
                self._reach_offset(protected.handler, protected.handler_depth, min(pushed, number))
                break
        if instruction.target is not None:
            self._reach_offset(instruction.target, depth + effect(instruction, jump=True), pushed)
        following = self.table.next_of(instruction) if instruction.falls_through else None
        if following is not None:
            after = depth + effect(instruction, jump=False)
            if instruction.name == "GET_ITER" and after > depth:
                pushed = min(pushed, depth)
            self._reach(following, after, pushed)

    def _reach_offset(self, offset: int, depth: int, objects: int) -> None:
        instruction = self.table.at(offset)
        if instruction is not None:
            self._reach(instruction, depth, objects)


def _depth_at_entry(code: CodeType) -> int:
    """Return how many values are on the stack when ``code`` starts.

    Generators of Python 3.10 begin with the value sent to them, which ``GEN_START`` takes off.
    """
    return 1 if code.co_flags & _RESUMABLE and _VERSION < (3, 11) else 0
