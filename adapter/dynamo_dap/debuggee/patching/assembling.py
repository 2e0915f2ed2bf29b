"""Replaces instructions of code: parses their text, assembles them with PyPI's package ``bytecode``, and checks them.

The interpreter trusts its bytecode: code that no compiler would write can end the process. So a patch is refused unless
the stack has the depth that each instruction needs, on every path. No instruction may read a local variable that may be
unset. Some instructions rely on the kind of their operands (a list to append to, an empty slot below a call): they must
still get such operands. Any thread may call the module's functions; they have no side effects.
"""

from __future__ import annotations

import ast
import dis
import inspect
import opcode
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import CodeType

from bytecode import Bytecode, Compare, Instr, Label
from bytecode.instr import BITFLAG_OPCODES, BinaryOp, CellVar, FreeVar, opcode_has_argument

from dynamo_dap.debuggee.bytecode.data_flow import MOVES, DataFlow, Expression, is_move, loads_method
from dynamo_dap.debuggee.bytecode.instructions import TAKES_ANY_OBJECT, Instruction, InstructionTable
from dynamo_dap.debuggee.bytecode.stack_depth import (
    InconsistentStack,
    StackDepths,
    UnknownInstruction,
    effect,
    taken,
)
from dynamo_dap.protocol.texts import NOT_PYTHON

EXCHANGE = "swap"
"""The text that exchanges an instruction with the next one."""

_CONTAINER = {
    "LIST_APPEND": "BUILD_LIST",
    "LIST_EXTEND": "BUILD_LIST",
    "SET_ADD": "BUILD_SET",
    "SET_UPDATE": "BUILD_SET",
    "MAP_ADD": "BUILD_MAP",
    "DICT_UPDATE": "BUILD_MAP",
    "DICT_MERGE": "BUILD_MAP",
}
"""Instructions that add to an earlier instruction's container, without checking its type."""
_CALLS = frozenset({"PRECALL", "CALL", "CALL_FUNCTION", "CALL_METHOD"})
_LOADS_AND_STORES = frozenset(
    {
        "NOP",
        "PUSH_NULL",
        "LOAD_CONST",
        "LOAD_SMALL_INT",
        "LOAD_GLOBAL",
        "LOAD_FAST",
        "LOAD_FAST_CHECK",
        "LOAD_FAST_LOAD_FAST",
        "LOAD_DEREF",
        "STORE_FAST_LOAD_FAST",
        "STORE_FAST_STORE_FAST",
        "DELETE_FAST",
        "DELETE_GLOBAL",
        "RETURN_CONST",
    }
)
_PLAIN_JUMP = re.compile(r"(POP_)?JUMP_")
_COMPARISONS = {"<": "LT", "<=": "LE", "==": "EQ", "!=": "NE", ">": "GT", ">=": "GE"}
_TESTS = {"is": 0, "is not": 1, "in": 0, "not in": 1}
_NULL = re.compile(r"(?:NULL(?:\|self)? \+ )?(?P<name>\w+)(?: \+ NULL(?:\|self)?)?")
_SEPARATOR = re.compile(r";(?=\s*[A-Z][A-Z_0-9]*\s*(?:\s\S|;|$))")
"""Separates instructions. A semicolon in a text constant is rarely followed by an instruction's name."""
_OFFSET = re.compile(r"(?:to )?(\d+)")
_LEAST_ARGUMENT = {"SWAP": 2, "COPY": 1, "ROT_N": 2, "BUILD_SLICE": 2, **dict.fromkeys(_CONTAINER, 1)}
"""The smallest arguments of instructions that count slots of the stack."""
_SLICE_PARTS = 3
_EMPTY_SLOT = 0 if sys.version_info < (3, 13) else 1
"""Which of a call's two lowest operands may be an empty slot."""
_NO_NAMED = 3
"""The operand of ``CALL_FUNCTION_EX`` that is an empty slot if no argument is named, from Python 3.14 on."""
_HAS_EMPTY_SLOT = frozenset({"CALL", "CALL_METHOD", "CALL_KW", *(["CALL_FUNCTION_EX"] * (sys.version_info >= (3, 11)))})
_HAS_INDEX = frozenset(
    {"FOR_ITER", "POP_ITER", "SEND", "END_SEND", "CLEANUP_THROW"} if sys.version_info >= (3, 15) else ()
)
"""Instructions with an index, or an empty slot, above their iterator."""


class PatchRefused(Exception):
    """The patch is refused, and nothing was changed; the message says why."""


def patched(code: CodeType, index: int, text: str) -> CodeType:
    """Replace the instructions of ``code`` from ``index`` on by those that ``text`` names.

    ``text`` is an instruction as in listings (``LOAD_FAST x``), several separated by ``;``, or ``EXCHANGE``.

    Raises:
        PatchRefused: ``text`` does not name instructions, or the interpreter could not run the result.
    """
    table = InstructionTable(code)
    decoded = Bytecode.from_code(code, conserve_exception_block_stackdepth=True)
    old = [one for one in decoded if isinstance(one, Instr)]
    if len(old) != len(table):
        raise PatchRefused("this code cannot be disassembled and assembled again")
    labels: dict[int, Label] = {}
    edits = _edits(code, table, old, index, text, labels)
    for number, instruction in edits.items():
        instruction.location = old[number].location
    numbers = iter(range(len(old)))
    decoded[:] = [new for one in decoded for new in _replacement(one, numbers, edits, labels)]
    try:
        # Unused variables keep their place: torch fills them in by their number.
        decoded.argnames = list(code.co_varnames)
        made: CodeType = decoded.to_code(stacksize=code.co_stacksize, compute_exception_stack_depths=False)
    except (ValueError, TypeError, RuntimeError, OverflowError) as problem:
        raise PatchRefused(f"it cannot be assembled: {problem}") from None
    depths = _checked(code, table, made, frozenset(edits))
    deepest = max((depths.before(one.index) or 0) + max(0, effect(one, jump=False)) for one in depths.table)
    return made.replace(co_stacksize=max(code.co_stacksize, deepest))


# -- from text to instructions -----------------------------------------------------------------------------------------


def _edits(
    code: CodeType, table: InstructionTable, old: Sequence[Instr], index: int, text: str, labels: dict[int, Label]
) -> dict[int, Instr]:
    """Return the new instructions by index; ``labels`` gets their jump targets, by index."""
    if text.strip().lower() == EXCHANGE:
        if index + 1 >= len(table):
            raise PatchRefused("the last instruction has no next one to exchange it with")
        return {index: old[index + 1].copy(), index + 1: old[index].copy()}
    parts = _SEPARATOR.split(text)
    if index + len(parts) > len(table):
        raise PatchRefused(f"there are only {len(table) - index} instructions from here on")

    def label_at(argument: str) -> Label:
        match = _OFFSET.fullmatch(argument)
        target = table.index_of_start.get(int(match[1])) if match is not None else None
        if target is None:
            raise PatchRefused(f"'{argument}' is not where an instruction begins: jumps go to offsets of the listing")
        return labels.setdefault(target, Label())

    return {number: _instruction(code, part.strip(), label_at) for number, part in enumerate(parts, start=index)}


def _replacement(
    one: object, numbers: Iterator[int], edits: Mapping[int, Instr], labels: Mapping[int, Label]
) -> Iterator[object]:
    """Yield the patched code for ``one``: a mark, or the instruction whose index is the next of ``numbers``."""
    if not isinstance(one, Instr):
        yield one
        return
    number = next(numbers)
    if number in labels:
        yield labels[number]
    yield edits.get(number, one)


def _instruction(code: CodeType, text: str, label_at: Callable[[str], Label]) -> Instr:
    name, _, argument = text.partition(" ")
    number = dis.opmap.get(name)
    if number is None:
        raise PatchRefused(f"'{name}' is not an instruction of this Python")
    if not _can_be_inserted(name):
        raise PatchRefused(f"{name} cannot be inserted: not all of its requirements can be checked")
    try:
        if not opcode_has_argument(number):
            if argument:
                raise PatchRefused(f"{name} takes no argument")
            return Instr(name)
        return Instr(name, _argument(code, number, name, argument.strip(), label_at))
    except (ValueError, TypeError, OverflowError) as problem:
        raise PatchRefused(str(problem)) from None


def _can_be_inserted(name: str) -> bool:
    return (
        name in TAKES_ANY_OBJECT
        or (name in _CONTAINER and name != "DICT_MERGE")
        or name in _CALLS
        or name in _LOADS_AND_STORES
        or name in MOVES
        or _PLAIN_JUMP.match(name) is not None
    )


def _argument(code: CodeType, number: int, name: str, text: str, label_at: Callable[[str], Label]) -> object:  # noqa: C901, PLR0911  (one case per kind)
    if not text:
        raise PatchRefused(f"{name} needs an argument")
    if number in dis.hasjrel or number in dis.hasjabs:
        return label_at(text)
    if number in dis.hasconst:
        return _literal(text)
    if number in dis.haslocal:
        return _local(code, text)
    if number in dis.hasfree:
        return _cell(code, text)
    if number in dis.hasname:
        return _name(number, text)
    if number in dis.hascompare:
        return _comparison(text)
    if name == "BINARY_OP":
        operators: Sequence[tuple[str, str]] = getattr(opcode, "_nb_ops", ())
        found = next((at for at, (_, symbol) in enumerate(operators) if symbol == text), None)
        if found is None:
            raise PatchRefused(f"'{text}' is not an operator")
        return BinaryOp(found)
    if name in ("IS_OP", "CONTAINS_OP") and text in _TESTS:
        return _TESTS[text]
    if not text.isdecimal():
        raise PatchRefused(f"'{text}' is not a number, which {name} needs")
    least = _LEAST_ARGUMENT.get(name, 0)
    if int(text) < least or (name == "BUILD_SLICE" and int(text) > _SLICE_PARTS):
        raise PatchRefused(f"{name} {text} needs stack slots that do not exist")
    return int(text)


def _literal(text: str) -> object:
    try:
        return ast.literal_eval(text)
    except NOT_PYTHON:
        raise PatchRefused(
            f"'{text}' is not a literal: a constant is a number, a text, None, or a tuple of these"
        ) from None


def _local(code: CodeType, text: str) -> object:
    names = [name.strip() for name in text.split(",")]
    known = [name for name in code.co_varnames if name not in code.co_cellvars]
    unknown = next((name for name in names if name not in known), None)
    if unknown is not None:
        raise PatchRefused(f"'{unknown}' is not a local variable of this code: it has {', '.join(known)}")
    return names[0] if len(names) == 1 else tuple(names)


def _cell(code: CodeType, text: str) -> object:
    if text in code.co_cellvars:
        return CellVar(text)
    if text in code.co_freevars:
        return FreeVar(text)
    raise PatchRefused(f"'{text}' is not a variable that this code shares with a closure")


def _name(number: int, text: str) -> object:
    match = _NULL.fullmatch(text)
    if match is None:
        raise PatchRefused(f"'{text}' is not a name")
    return (text != match["name"], match["name"]) if number in BITFLAG_OPCODES else match["name"]


def _comparison(text: str) -> Compare:
    symbol = text.removeprefix("bool(").removesuffix(")")
    name = _COMPARISONS.get(symbol)
    if name is None:
        raise PatchRefused(f"'{text}' is not a comparison: it is one of {', '.join(_COMPARISONS)}")
    found: Compare = Compare[f"{name}_CAST" if text != symbol else name]
    return found


# -- whether the interpreter can run it --------------------------------------------------------------------------------


def _checked(code: CodeType, before: InstructionTable, made: CodeType, edited: frozenset[int]) -> StackDepths:
    """Return the stack depths of ``made``.

    Raises:
        PatchRefused: the interpreter could not run ``made``.
    """
    table = InstructionTable(made)
    if len(table) != len(before) or made.co_cellvars != code.co_cellvars or made.co_freevars != code.co_freevars:
        raise PatchRefused("this code cannot be disassembled and assembled again")
    old = StackDepths(code, before)
    try:
        new = StackDepths(made, table)
    except InconsistentStack as problem:
        raise PatchRefused(f"the stack would have two depths: {problem}") from None
    for instruction in table:
        _check_depth(instruction, new, old)
    _check_names_of_call(table, edited)
    old_flow, new_flow = DataFlow(old), DataFlow(new)
    if new_flow.has_uneven_paths and not old_flow.has_uneven_paths:
        raise PatchRefused("whether a stack slot is empty would depend on the path")
    for instruction in table:
        _check_operands(instruction, before[instruction.index], old_flow, new_flow)
    may_be_unset = _may_be_unset(code, before)
    for index, name in _may_be_unset(made, table).items():
        if index not in may_be_unset:
            raise PatchRefused(
                f"{table[index]} at {index} would read the variable '{name}', which may not be set there"
            )
    return new


def _check_depth(instruction: Instruction, new: StackDepths, old: StackDepths) -> None:
    depth = new.before(instruction.index)
    if depth is None:
        return
    where = f"{instruction} at {instruction.index}"
    try:
        needed = taken(instruction)
    except UnknownInstruction as problem:
        raise PatchRefused(str(problem)) from None
    if depth < needed:
        raise PatchRefused(f"the stack would underflow: {where} takes {needed}, and there would be {depth}")
    if instruction.falls_through and new.table.next_of(instruction) is None:
        raise PatchRefused(f"the code would run past its end, after {where}")
    was = old.before(instruction.index)
    if instruction.name == "RETURN_VALUE" and depth > max(1, was or 0):
        raise PatchRefused(f"{depth - 1} more values would be left on the stack at {where}")
    for protected in new.table.protected:
        if protected.start <= instruction.offset < protected.end and depth < protected.depth:
            raise PatchRefused(f"the stack would underflow in the handler of exceptions that {where} raises")


def _check_names_of_call(table: InstructionTable, edited: frozenset[int]) -> None:
    """Check that argument names, and the halves of a call on Python 3.11, belong to the call after them."""
    for instruction in table:
        following = table.next_of(instruction)
        if instruction.name == "PRECALL" and (
            following is None or following.name != "CALL" or following.argument != instruction.argument
        ):
            raise PatchRefused(f"{instruction} at {instruction.index} would not be followed by its CALL")
        if instruction.name == "KW_NAMES":
            behind = table.instructions[instruction.index :]
            call = next((one.index for one in behind if one.name == "CALL"), len(table))
            if edited & set(range(instruction.index, call + 1)):
                raise PatchRefused("a call with named arguments cannot be changed, only its arguments")


def _check_operands(instruction: Instruction, was: Instruction, old: DataFlow, new: DataFlow) -> None:
    operands = new.operands(instruction.index)
    where = f"{instruction} at {instruction.index}"
    empty = [slot for slot, operand in enumerate(operands) if _may_be_empty(operand)]
    allowed: list[list[int]] = [[]]
    if instruction.name in _HAS_EMPTY_SLOT:
        allowed.append([_EMPTY_SLOT])
    if instruction.name == "CALL_FUNCTION_EX":
        allowed.append([_EMPTY_SLOT, _NO_NAMED])
    if instruction.name in _HAS_INDEX:
        allowed.append([1])
    if not is_move(instruction) and empty not in allowed:
        raise PatchRefused(f"{where} would get an empty slot, which only a call may have below it")
    if not operands or is_move(instruction) or _takes_values(instruction):
        return
    makers = [_maker(one) for one in operands]
    before = [_maker(one) for one in old.operands(was.index)] if was.name == instruction.name else []
    made_by = _CONTAINER.get(instruction.name)
    if made_by is None and makers != before:
        raise PatchRefused(f"{where} depends on its operands, and would get other operands")
    if made_by is not None and makers[0] not in (made_by, *before[:1]):
        raise PatchRefused(f"{where} adds to what {made_by} made, and would get another object")


def _takes_values(instruction: Instruction) -> bool:
    name = instruction.name
    is_jump = _PLAIN_JUMP.match(name) is not None
    return name in TAKES_ANY_OBJECT or name in _CALLS or name in _LOADS_AND_STORES or is_jump


def _maker(expression: Expression) -> str | None:
    if expression.instruction is None:
        return " or ".join(str(_maker(operand)) for operand in expression.operands) or None
    return expression.instruction.name


def _may_be_empty(expression: Expression) -> bool:
    """Return whether a slot may be empty: below a call, or next to a callable attribute that is not a method."""
    made = expression.instruction
    if made is None and expression.operands:
        return any(map(_may_be_empty, expression.operands))
    if expression.role == "null" or made is None:
        return expression.role == "null"
    return loads_method(made) and expression.role == ("value" if _EMPTY_SLOT == 0 else "self")


def _may_be_unset(code: CodeType, table: InstructionTable) -> dict[int, str]:
    """Return the instructions that may read an unset local variable, each with the variable's name."""
    count = code.co_argcount + code.co_kwonlyargcount
    count += bool(code.co_flags & inspect.CO_VARARGS) + bool(code.co_flags & inspect.CO_VARKEYWORDS)
    at_entry = frozenset((*code.co_varnames[:count], *code.co_cellvars, *code.co_freevars))
    known: dict[int, frozenset[str]] = {}
    work: list[tuple[int, frozenset[str]]] = [(0, at_entry)]
    while work:
        index, names = work.pop()
        names = names & known.get(index, names)
        if known.get(index) == names:
            continue
        known[index] = names
        work += [(following, after) for following, after in _next(table, table[index], names)]
    found: dict[int, str] = {}
    for index, names in known.items():
        unset = [name for name in _read(table[index]) if name not in names]
        if unset:
            found[index] = unset[0]
    return found


def _next(
    table: InstructionTable, instruction: Instruction, names: frozenset[str]
) -> Iterator[tuple[int, frozenset[str]]]:
    after = (names - _unset(instruction)) | _stored(instruction)
    if instruction.target is not None:
        yield table.index_at(instruction.target) or 0, after
    for protected in table.protected:
        if protected.start <= instruction.offset < protected.end:
            yield table.index_at(protected.handler) or 0, names & after
            break
    if instruction.falls_through and instruction.index + 1 < len(table):
        yield instruction.index + 1, after


def _variables(instruction: Instruction) -> tuple[str, ...]:
    value = instruction.value
    return tuple(map(str, value)) if isinstance(value, tuple) else (str(value),)


def _read(instruction: Instruction) -> tuple[str, ...]:
    if instruction.name == "STORE_FAST_LOAD_FAST":
        stored, read = _variables(instruction)
        return () if stored == read else (read,)
    # LOAD_FAST_CHECK checks the variable itself, and LOAD_FAST_AND_CLEAR accepts an unset one.
    is_read = instruction.name.startswith("LOAD_FAST") and not instruction.name.endswith(("_CHECK", "_CLEAR"))
    return _variables(instruction) if is_read else ()


def _stored(instruction: Instruction) -> frozenset[str]:
    if instruction.name == "STORE_FAST_LOAD_FAST":
        return frozenset(_variables(instruction)[:1])
    return frozenset(_variables(instruction) if instruction.name.startswith("STORE_FAST") else ())


def _unset(instruction: Instruction) -> frozenset[str]:
    return frozenset(_variables(instruction) if instruction.name in ("DELETE_FAST", "LOAD_FAST_AND_CLEAR") else ())
