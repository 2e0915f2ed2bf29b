"""Follows data over the value stack: which instruction made each value, from which operands, and which uses it.

One pass over all paths of a code object gives each instruction its operands as expression trees. Their text,
``d.update({'result': graph_out_0[0]})``, is for display and may be truncated; decisions use the tree. Where paths meet
with different values, one expression has these values as operands. Its text is ``(a or b)`` or ``(a and b)`` if the
paths belong to such an operator, else ``…``. This works for any code, but is meant for code that Dynamo generates,
which hardly branches. Any thread may call the functions; they have no side effects.
"""

from __future__ import annotations

import re
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import CodeType

from dynamo_dap.debuggee.bytecode.constants import constant_text
from dynamo_dap.debuggee.bytecode.instructions import BINARY_OPERATORS, LOADS_OF_CONSTANTS, Instruction
from dynamo_dap.debuggee.bytecode.stack_depth import StackDepths, UnknownInstruction, left, taken

MAXIMUM_TEXT = 120
_UNKNOWN = "…"


NO_CONSTANT = object()
"""The ``constant`` of an expression without one; None is a constant."""


@dataclass(eq=False)
class Expression:
    """One value on the stack."""

    text: str
    """For users, cut to ``MAXIMUM_TEXT``."""
    instruction: Instruction | None
    """The instruction that made it; None in an exception handler, and where paths meet with different values."""
    operands: tuple[Expression, ...] = ()
    """The operands of that instruction, or the values of the paths that meet."""
    role: str = "value"
    """``value``; ``null`` for an empty slot; ``self`` for the second slot of a method before its call."""
    consumers: list[int] = field(default_factory=list)
    """Indices of the instructions that used it up, without those that only moved or copied it."""

    @property
    def producer(self) -> int | None:
        """The index of the instruction that made it."""
        return None if self.instruction is None else self.instruction.index

    @property
    def name(self) -> str | None:
        """Return the variable or attribute name that it was read from, or None."""
        made = self.instruction
        is_named = made is not None and self.role == "value" and (made.name in _LOADS or made.name in _ATTRIBUTES)
        return str(made.value) if made is not None and is_named else None

    @property
    def variable(self) -> str | None:
        """Return its variable's name."""
        return self.name if self.instruction is not None and self.instruction.name in _LOADS else None

    @property
    def constant(self) -> object:
        """Return its constant, else ``NO_CONSTANT``."""
        made = self.instruction
        return made.value if made is not None and made.name in LOADS_OF_CONSTANTS else NO_CONSTANT

    @property
    def base(self) -> Expression | None:
        """Return its base: an attribute's owner, an item's container, a called object; None for others."""
        made = self.instruction
        if made is None or not self.operands:
            return None
        if made.name in _ATTRIBUTES or made.name in _UNPACKS or is_subscript(made) or made.name == "BINARY_SLICE":
            return self.operands[0]
        if made.name in _MAKE_FUNCTIONS:
            return _code_of_function(self.operands)
        call = call_of(made, self.operands)
        return None if call is None else call.callee

    def path(self) -> Iterator[Expression]:
        """Yield the expression, its base, the base of that, and so on."""
        each: Expression | None = self
        while each is not None:
            yield each
            each = each.base

    @property
    def root(self) -> Expression:
        """Return the end of its path: the variable or constant with which it begins in the source."""
        return list(self.path())[-1]


@dataclass(frozen=True, slots=True)
class Call:
    """A call by an instruction."""

    callee: Expression
    arguments: tuple[Expression, ...]


class DataFlow:
    """Expressions of one code object; it keeps no reference to the code."""

    def __init__(self, depths: StackDepths) -> None:
        """Follow the instructions and control flow of ``depths``."""
        self._depths = depths
        self._table = depths.table
        self._before: dict[int, tuple[Expression, ...]] = {}
        self._operands: dict[int, tuple[Expression, ...]] = {}
        self._results: dict[int, tuple[Expression, ...]] = {}
        self.has_uneven_paths = False
        """Whether a slot is empty on some paths only: no compiler writes such code."""
        if len(self._table):
            texts = self._run({})
            for _ in range(_MOST_RUNS):
                known, texts = texts, self._run(texts)
                if texts == known:
                    break
            else:
                self._run(dict.fromkeys(texts, _UNKNOWN))

    def stack_before(self, index: int) -> tuple[Expression, ...]:
        """Return the expressions on the stack before the instruction ``index``, bottom first; empty if unreachable."""
        return self._before.get(index, ())

    def operands(self, index: int) -> tuple[Expression, ...]:
        """Return the values that the instruction ``index`` takes, lowest slot first."""
        return self._operands.get(index, ())

    def results(self, index: int) -> tuple[Expression, ...]:
        """Return the values that the instruction ``index`` leaves."""
        return self._results.get(index, ())

    def call_at(self, index: int) -> Call | None:
        """Return the call by the instruction ``index``, or None."""
        return call_of(self._table[index], self.operands(index))

    def _run(self, known: Mapping[_Slot, str]) -> dict[_Slot, str]:
        """Follow all paths; ``known`` has texts for slots in which paths meet. Return these slots with their texts."""
        self._before.clear()
        self.has_uneven_paths = False
        first_depth = self._depths.before(0) or 0
        meetings: dict[_Slot, dict[int, Expression]] = defaultdict(dict)
        work: list[_Path] = [(-1, 0, (Expression("sent value", None),) * first_depth)]
        while work:
            source, index, stack = work.pop()
            before = self._before.get(index)
            for slot, value in enumerate(stack):
                if (index, slot) in known or (before is not None and _differ(before[slot], value)):
                    meetings[index, slot][source] = value
            if before is not None:
                self.has_uneven_paths |= [one.role for one in before] != [one.role for one in stack]
                for slot, value in enumerate(before):
                    value.operands += (stack[slot],) if (index, slot) in known else ()
                continue
            self._before[index] = stack = tuple(
                Expression(known[index, slot], None, (value,), value.role) if (index, slot) in known else value
                for slot, value in enumerate(stack)
            )
            instruction = self._table[index]
            work += self._successors(instruction, stack)
        for index, slot in sorted(known, reverse=True):
            for value in self._before[index][slot].operands:
                value.consumers += self._before[index][slot].consumers
        return {place: self._text_of_meeting(place[0], values) for place, values in meetings.items()}

    def _text_of_meeting(self, index: int, values: Mapping[int, Expression]) -> str:
        """Return ``(a or b)`` if the paths belong to such an operator: each jump leaves the value that it tested."""
        *jumps, last = sorted(values)
        kinds = {_SHORT_CIRCUITS.get(_plain_jump(self._table[jump])) for jump in jumps}
        if last != index - 1 or len(kinds) != 1 or None in kinds:
            return _UNKNOWN
        if any(values[jump] not in _with_tested(self._operands[jump][-1]) for jump in jumps):
            return _UNKNOWN
        inside = range(jumps[0] + 1, index)
        entered = [
            one.index for one in self._table if one.target is not None and self._table.index_at(one.target) in inside
        ]
        if any(source not in inside for source in entered):
            return _UNKNOWN
        return f"({f' {kinds.pop()} '.join(_atom(values[source]) for source in sorted(values))})"

    def _successors(self, instruction: Instruction, stack: tuple[Expression, ...]) -> list[_Path]:
        try:
            count, left_now, left_jumping = taken(instruction), left(instruction), left(instruction, jump=True)
        except UnknownInstruction:
            return []
        if count > len(stack):
            return []
        below, operands = stack[: len(stack) - count], stack[len(stack) - count :]
        results = _apply(instruction, operands, left_now)
        self._operands[instruction.index] = operands
        self._results[instruction.index] = results
        if not is_move(instruction):
            for operand in operands:
                operand.consumers.append(instruction.index)
        found: list[_Path] = []
        if instruction.target is not None:
            jumped = results if left_jumping == left_now else _apply(instruction, operands, left_jumping)
            found.append((instruction.index, self._table.index_at(instruction.target) or 0, (*below, *jumped)))
        for protected in self._depths.table.protected:
            if protected.start <= instruction.offset < protected.end:
                caught = tuple(Expression("exception", None) for _ in range(protected.handler_depth - protected.depth))
                handler = self._table.index_at(protected.handler) or 0
                found.append((instruction.index, handler, (*stack[: protected.depth], *caught)))
                break
        if instruction.falls_through and instruction.index + 1 < len(self._table):
            # Last in, first out: the straight path is followed first.
            found.append((instruction.index, instruction.index + 1, (*below, *results)))
        return found


_MOST_RUNS = 8
_Slot = tuple[int, int]
"""The index of an instruction, and a place on the stack before it."""
_Path = tuple[int, int, tuple[Expression, ...]]
"""An instruction, the one after it, and the stack between them."""
_SHORT_CIRCUITS = {"JUMP_IF_TRUE": "or", "JUMP_IF_FALSE": "and"}


def _plain_jump(jump: Instruction) -> str:
    return jump.name.removeprefix("POP_").replace("JUMP_FORWARD_IF", "JUMP_IF").removesuffix("_OR_POP")


def _with_tested(operand: Expression) -> tuple[Expression, ...]:
    """Return a jump's operand, and the value that ``TO_BOOL`` made it from (Python 3.13 and newer)."""
    made = operand.instruction
    return (operand, *operand.operands) if made is not None and made.name == "TO_BOOL" else (operand,)


def _differ(one: Expression, other: Expression) -> bool:
    """Return whether two paths leave different values in a slot, by their texts."""
    return one is not other and one.role == other.role and one.text != other.text


MOVES = frozenset({"SWAP", "COPY", "ROT_TWO", "ROT_THREE", "ROT_FOUR", "ROT_N", "DUP_TOP", "DUP_TOP_TWO"})
"""Instructions that move or copy values on the stack."""
_PARTS_OF_CALLS = frozenset({"PRECALL", "KW_NAMES"})
_ATTRIBUTES = frozenset({"LOAD_ATTR", "LOAD_METHOD", "IMPORT_FROM"})
_UNPACKS = frozenset({"UNPACK_SEQUENCE", "UNPACK_EX"})
_MAKE_FUNCTIONS = frozenset({"MAKE_FUNCTION", "SET_FUNCTION_ATTRIBUTE"})
_CALLS = frozenset({"CALL", "CALL_FUNCTION", "CALL_FUNCTION_KW", "CALL_KW", "CALL_METHOD", "CALL_FUNCTION_EX"})


def is_move(instruction: Instruction) -> bool:
    """Return whether an instruction only moves or copies values, or prepares the call after it."""
    return instruction.name in MOVES or instruction.name in _PARTS_OF_CALLS


def loads_method(instruction: Instruction) -> bool:
    """Return whether an instruction leaves two slots for a call: method and self, or a value and an empty slot."""
    if instruction.name == "LOAD_ATTR":
        return sys.version_info >= (3, 12) and bool((instruction.argument or 0) & 1)
    return instruction.name == "LOAD_METHOD"


def is_subscript(instruction: Instruction) -> bool:
    """Return whether an instruction takes an item out of a container."""
    return instruction.name == "BINARY_SUBSCR" or (instruction.name == "BINARY_OP" and instruction.text.startswith("["))


def _code_of_function(operands: Sequence[Expression]) -> Expression:
    """Return the code of a new function; up to Python 3.10 the function's name lies above it."""
    return next((operand for operand in operands if isinstance(operand.constant, CodeType)), operands[-1])


def call_of(instruction: Instruction, operands: Sequence[Expression]) -> Call | None:
    """Return the call of ``instruction`` with ``operands``, or None."""
    if instruction.name not in _CALLS or not operands:
        return None
    values = list(operands)
    if instruction.name in ("CALL_FUNCTION_KW", "CALL_KW"):
        values.pop()
    # An empty slot is before the callee up to Python 3.12 and after it since; a method is before its self.
    present = [value for value in values[:2] if value.role != "null"]
    if not present:
        return None
    if instruction.name in ("CALL", "CALL_METHOD", "CALL_KW"):
        has_self = len(present) == 2 and present[1].role == "self"
        arguments = values[2:] if has_self or len(present) == 1 else [*present[1:], *values[2:]]
        return Call(present[0], tuple(arguments))
    rest = [value for value in values if value is not present[0] and value.role != "null"]
    return Call(present[0], tuple(rest))


def _apply(instruction: Instruction, operands: tuple[Expression, ...], count: int) -> tuple[Expression, ...]:
    """Return the ``count`` expressions that ``instruction`` leaves for ``operands``."""
    if instruction.name in _ADDED:
        operands[0].text = _bounded(_filled(instruction, operands))
    moved = _moved(instruction, operands)
    if moved is not None and len(moved) == count:
        return moved
    if count == 0:
        return ()
    if instruction.name == "FOR_ITER":
        return (*operands, *(Expression(_UNKNOWN, instruction, operands) for _ in range(count - len(operands))))
    texts = _texts(instruction, operands, count)
    roles = _roles(instruction, count)
    return tuple(
        Expression(_bounded(text), instruction, operands, role) for text, role in zip(texts, roles, strict=True)
    )


_ADDED = {
    **dict.fromkeys(("LIST_APPEND", "SET_ADD"), "{}"),
    "MAP_ADD": "{}: {}",
    **dict.fromkeys(("LIST_EXTEND", "SET_UPDATE"), "*{}"),
    **dict.fromkeys(("DICT_UPDATE", "DICT_MERGE"), "**{}"),
}
"""The form of an added item in its container's text, by instruction. The container stays on the stack."""


def _filled(instruction: Instruction, operands: tuple[Expression, ...]) -> str:
    """Return the text of the container that ``instruction`` adds to."""
    text, count = operands[0].text, 2 if instruction.name == "MAP_ADD" else 1
    if not text.startswith(("[", "{")) or not text.endswith(("]", "}")):
        return text
    last = operands[-1]
    if len(operands) > 1 + count:  # in a comprehension, the iterator lies between the container and the item
        added = _UNKNOWN
    elif _ADDED[instruction.name] == "*{}" and isinstance(last.constant, tuple):
        added = last.text[1:-1].rstrip(",")
    else:
        added = _ADDED[instruction.name].format(*map(_atom, operands[-count:]))
    return text[0] + ", ".join(part for part in (text[1:-1], added) if part) + text[-1]


def _moved(instruction: Instruction, operands: tuple[Expression, ...]) -> tuple[Expression, ...] | None:
    name = instruction.name
    if name in ("PRECALL", "KW_NAMES") or name.endswith("_OR_POP"):
        return operands
    if name == "SWAP":
        return (operands[-1], *operands[1:-1], operands[0])
    if name == "COPY":
        return (*operands, operands[0])
    if name in ("ROT_TWO", "ROT_THREE", "ROT_FOUR", "ROT_N"):
        return (operands[-1], *operands[:-1])
    if name in ("DUP_TOP", "DUP_TOP_TWO"):
        return (*operands, *operands)
    if name in _ADDED:
        return operands[: len(operands) - (2 if name == "MAP_ADD" else 1)]
    return None


def _roles(instruction: Instruction, count: int) -> tuple[str, ...]:
    if instruction.name == "PUSH_NULL":
        return ("null",)
    if count == 2:
        if loads_method(instruction):
            return ("value", "self")
        if instruction.name == "LOAD_GLOBAL":
            return ("value", "null") if instruction.text.endswith("+ NULL") else ("null", "value")
    return ("value",) * count


def _texts(instruction: Instruction, operands: tuple[Expression, ...], count: int) -> list[str]:
    if instruction.name in _UNPACKS:
        # The first element ends on top.
        return [f"{_atom(operands[0])}[{place}]" for place in reversed(range(count))]
    if instruction.name.startswith(("LOAD_FAST", "STORE_FAST")) and isinstance(instruction.value, tuple):
        # Python 3.13 and newer load, or store and load, two variables by one instruction.
        return [str(name) for name in instruction.value[-count:]]
    if count == 2 and "null" in _roles(instruction, count):
        return [str(instruction.value) if role == "value" else "NULL" for role in _roles(instruction, count)]
    text = _text(instruction, [operand.text for operand in operands], operands)
    if count == 2 and instruction.name in ("LOAD_METHOD", "LOAD_ATTR"):
        return [text, operands[0].text]
    return [text, *[_UNKNOWN] * (count - 1)]


def _text(instruction: Instruction, texts: list[str], operands: tuple[Expression, ...]) -> str:  # noqa: C901, PLR0911, PLR0912  (one case per instruction)
    name = instruction.name
    if name == "PUSH_NULL":
        return "NULL"
    if name in LOADS_OF_CONSTANTS:
        return _constant_text(instruction)
    if name in _LOADS:
        return str(instruction.value)
    if name in _ATTRIBUTES:
        return f"{_atom(operands[0])}.{instruction.value}"
    if is_subscript(instruction):
        return f"{_atom(operands[0])}[{texts[1]}]"
    if name == "BINARY_SLICE":
        return f"{_atom(operands[0])}[{_slice_part(texts[1])}:{_slice_part(texts[2])}]"
    if name == "BINARY_OP":
        return f"{_atom(operands[0])} {instruction.text.rstrip('=')} {_atom(operands[1])}"
    if name in BINARY_OPERATORS:
        return f"{_atom(operands[0])} {BINARY_OPERATORS[name]} {_atom(operands[1])}"
    if name in ("COMPARE_OP", "IS_OP", "CONTAINS_OP"):
        return f"{_atom(operands[0])} {_comparison(instruction)} {_atom(operands[1])}"
    if name in ("BUILD_TUPLE", "BUILD_LIST", "BUILD_SET"):
        return _display(name, texts)
    if name == "BUILD_MAP":
        return "{" + ", ".join(f"{key}: {value}" for key, value in zip(texts[::2], texts[1::2], strict=True)) + "}"
    if name == "BUILD_SLICE":
        return ":".join(_slice_part(text) for text in texts)
    if name == "LIST_TO_TUPLE" or (name == "CALL_INTRINSIC_1" and "LIST_TO_TUPLE" in instruction.text):
        items = _items(operands[0])
        if items is None:
            return f"(*{texts[0]},)"
        return f"({items})" if _has_parts(items, ",") else f"({items},)"
    if name in _MAKE_FUNCTIONS:
        return _code_of_function(operands).text
    if name in ("TO_BOOL", "NOP", "GET_ITER"):
        return texts[0] if name != "GET_ITER" else f"iter({texts[0]})"
    call = call_of(instruction, operands)
    if call is not None:
        arguments = [argument.text for argument in call.arguments]
        if name == "CALL_FUNCTION_EX":
            positional, *named = call.arguments
            items = _items(positional)
            arguments = [f"*{positional.text}" if items is None else items]
            arguments += [f"**{_unpacked(each.text)}" for each in named]
            arguments = [argument for argument in arguments if argument]
        return f"{_atom(call.callee)}({', '.join(arguments)})"
    return _UNKNOWN


def _items(value: Expression) -> str | None:
    """Return the items of a list or tuple that its text shows in full, as they are written between its brackets."""
    made, text = value.instruction, value.text
    if made is None or not text.endswith(("]", ")")):
        return None
    is_display = made.name in ("BUILD_LIST", "BUILD_TUPLE", "LIST_TO_TUPLE") or "LIST_TO_TUPLE" in made.text
    if not is_display and not isinstance(value.constant, tuple):
        return None
    return text[1:-1].rstrip(",")


def _unpacked(text: str) -> str:
    """Return ``d`` for ``{**d}``: a call unpacks it anyway."""
    return text[3:-1] if text.startswith("{**") and text.endswith("}") and "," not in text else text


_LOADS = frozenset(
    {
        "LOAD_FAST",
        "LOAD_FAST_CHECK",
        "LOAD_FAST_BORROW",
        "LOAD_FAST_AND_CLEAR",
        "LOAD_GLOBAL",
        "LOAD_NAME",
        "LOAD_DEREF",
        "LOAD_CLOSURE",
        "LOAD_CLASSDEREF",
    }
)


def _display(name: str, texts: list[str]) -> str:
    inside = ", ".join(texts)
    if name == "BUILD_TUPLE":
        return f"({inside},)" if len(texts) == 1 else f"({inside})"
    return f"[{inside}]" if name == "BUILD_LIST" else f"{{{inside}}}"


def _comparison(instruction: Instruction) -> str:
    if instruction.name == "IS_OP":
        return "is not" if instruction.argument else "is"
    if instruction.name == "CONTAINS_OP":
        return "not in" if instruction.argument else "in"
    return instruction.text


def _constant_text(instruction: Instruction) -> str:
    value = instruction.value
    if type(value) is not slice:
        return instruction.text
    # From Python 3.14 on the compiler makes slices of constants.
    parts = [value.start, value.stop] if value.step is None else [value.start, value.stop, value.step]
    return ":".join(_slice_part(constant_text(part)) for part in parts)


def _slice_part(text: str) -> str:
    return "" if text == "None" else text


_STRING = re.compile(r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*\"""")


def _atom(expression: Expression) -> str:
    """Return the text of an operand: in parentheses if it has an operator outside of brackets and strings."""
    return f"({expression.text})" if _has_parts(expression.text) else expression.text


def _has_parts(text: str, separator: str = " ") -> bool:
    """Return whether a space, or another ``separator``, outside of brackets and strings separates parts of a text."""
    depth = 0
    for character in _STRING.sub("", text):
        depth += (character in "([{") - (character in ")]}")
        if character == separator and depth == 0:
            return True
    return False


def _bounded(text: str) -> str:
    return text if len(text) <= MAXIMUM_TEXT else text[: MAXIMUM_TEXT - 1] + _UNKNOWN
