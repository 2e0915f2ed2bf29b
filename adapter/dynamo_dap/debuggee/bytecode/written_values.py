"""Writes values on the stack as Python: trees of parts, made instruction by instruction.

Each value notes its dependencies, so that a later use knows whether the expression could have another value by then.
Lists and tuples that never leave the stack are computed, not written: Dynamo packs and unpacks frames in them. The
functions have no side effects; a value belongs to one pass of ``decompiling``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum

from dynamo_dap.debuggee.bytecode.exact_types import is_exactly
from dynamo_dap.debuggee.bytecode.instructions import BINARY_OPERATORS, Instruction

ATTRIBUTES, ITEMS, GLOBALS, CELLS = "attributes", "items", "globals", "cells"
"""Kinds of state, besides single variables, that a value may depend on and an effect may change."""
EVERYTHING = frozenset({ATTRIBUTES, ITEMS, GLOBALS, CELLS})
"""What unknown code may change."""
_STATE = frozenset({ATTRIBUTES, ITEMS})


def local(name: str) -> str:
    """Return the effect name of a local variable."""
    return f"local {name}"


class Form(Enum):
    """How a value is written."""

    VALUE = "value"
    CALL = "call"
    LIST = "list"
    TUPLE = "tuple"
    SLICE = "slice"
    ITERATOR = "iterator"
    STARRED = "starred"
    NULL = "null"
    UNKNOWN = "unknown"


@dataclass(eq=False, slots=True)
class Written:
    """One value. ``parts`` are pieces of text and other values, in parentheses if needed."""

    parts: tuple[str | Written, ...] = ()
    producer: int = -1
    """Index of the instruction that made it."""
    form: Form = Form.VALUE
    reads: frozenset[str] = frozenset()
    """Its dependencies, besides those of its parts."""
    is_atom: bool = True
    """Whether it needs no parentheses inside others."""
    is_new: bool = False
    """Whether each evaluation makes another object, or costs something."""
    is_fixed: bool = False
    """Whether it, and everything read from it, never changes."""
    is_method: bool = False
    """Whether it is a method that nothing replaces: only its object may change."""
    constant: object = None
    items: list[Written] = field(default_factory=list)
    """The items of a list, a tuple or a slice; the iterated values."""

    def text(self) -> str | None:
        """Return it as Python; None if that is impossible."""
        if self.form in (Form.UNKNOWN, Form.NULL):
            return None
        if self.form in _DISPLAYS:
            inside = [item.text() for item in self.items]
            return None if None in inside else _DISPLAYS[self.form]([str(text) for text in inside])
        texts = [part if isinstance(part, str) else part.text() for part in self.parts]
        return None if None in texts else "".join(str(text) for text in texts)

    def tree(self) -> Iterator[Written]:
        """Yield the values that its text evaluates: itself, its parts and theirs. A call's parts ran before."""
        yield self
        if self.form is not Form.CALL:
            for below in self.below():
                yield from below.tree()

    def below(self) -> list[Written]:
        """Return the values that it consists of."""
        return [*(part for part in self.parts if isinstance(part, Written)), *self.items]


def _tuple_text(texts: list[str]) -> str:
    return f"({texts[0]},)" if len(texts) == 1 else f"({', '.join(texts)})"


def _slice_text(texts: list[str]) -> str:
    return ":".join("" if text == "None" else text for text in texts)


_DISPLAYS: dict[Form, Callable[[list[str]], str]] = {
    Form.LIST: lambda texts: f"[{', '.join(texts)}]",
    Form.TUPLE: _tuple_text,
    Form.SLICE: _slice_text,
    Form.ITERATOR: lambda texts: f"iter({texts[0]})",
}

UNKNOWN = Written(form=Form.UNKNOWN)
NULL = Written(form=Form.NULL)


def plain(text: str, producer: int, *, reads: frozenset[str] = frozenset(), is_fixed: bool = False) -> Written:
    """Return a value that is one piece of text: a name."""
    return Written((text,), producer, reads=reads, is_fixed=is_fixed)


def atom(value: Written) -> tuple[str | Written, ...]:
    """Return a value as an operand, in parentheses if it needs them."""
    return (value,) if value.is_atom else ("(", value, ")")


def attribute(base: Written, name: str, producer: int, *, is_method: bool) -> Written:
    """Return an attribute; see ``Written.is_method``."""
    reads: frozenset[str] = frozenset() if is_method or base.is_fixed else frozenset({ATTRIBUTES})
    return Written((*atom(base), f".{name}"), producer, reads=reads, is_fixed=base.is_fixed, is_method=is_method)


def subscript(base: Written, key: Written, producer: int, *, is_fixed: bool) -> Written:
    """Return an item; for a list or tuple that never leaves the stack, its actual item."""
    if base.form in (Form.LIST, Form.TUPLE):
        return _item(base, key, producer)
    reads: frozenset[str] = frozenset() if is_fixed or base.is_fixed else frozenset({ITEMS})
    return Written((*atom(base), "[", key, "]"), producer, reads=reads, is_fixed=base.is_fixed)


def _item(base: Written, key: Written, producer: int) -> Written:
    place = _place(key)
    if place is None or any(item.form is Form.STARRED for item in base.items):
        return UNKNOWN
    if isinstance(place, slice):
        return Written(producer=producer, form=base.form, items=base.items[place], is_new=True)
    return base.items[place] if -len(base.items) <= place < len(base.items) else UNKNOWN


def _place(key: Written) -> int | slice | None:
    if key.form is Form.SLICE:
        bounds = [item.constant for item in key.items]
        is_known = all(is_exactly(bound, (int, type(None))) for bound in bounds)
        return slice(*bounds) if is_known and all(_is_constant(item) for item in key.items) else None
    return key.constant if type(key.constant) is int else None


def _is_constant(value: Written) -> bool:
    return value.form is Form.VALUE and value.is_fixed


def set_item(container: Written, key: Written, value: Written) -> bool:
    """Set an item of a list that never leaves the stack; return whether that is possible."""
    place = _place(key)
    if place is None or any(item.form is Form.STARRED for item in container.items):
        return False
    if isinstance(place, slice):
        if value.form not in (Form.LIST, Form.TUPLE) or place.step not in (None, 1):
            return False
        container.items[place] = value.items
        return True
    if not -len(container.items) <= place < len(container.items):
        return False
    container.items[place] = value
    return True


def delete_item(container: Written, key: Written) -> bool:
    """Delete an item of a list that never leaves the stack; return whether that is possible."""
    place = _place(key)
    if not isinstance(place, int) or any(item.form is Form.STARRED for item in container.items):
        return False
    if not -len(container.items) <= place < len(container.items):
        return False
    del container.items[place]
    return True


def extend(container: Written, added: Written) -> None:
    """Extend a list that never leaves the stack."""
    if added.form in (Form.LIST, Form.TUPLE):
        container.items += added.items
    else:
        container.items.append(starred(added))


def starred(value: Written) -> Written:
    """Return ``*value``."""
    return Written(("*", *atom(value)), value.producer, Form.STARRED)


def call(producer: int, callee: Written, arguments: Sequence[Written], names: tuple[str, ...]) -> Written:
    """Return a call; ``names`` belong to the last arguments."""
    parts: list[str | Written] = [*atom(callee), "("]
    first_named = len(arguments) - len(names)
    for number, argument in enumerate(arguments):
        parts += [", "] if number else []
        parts += [f"{names[number - first_named]}="] if number >= first_named else []
        parts.append(argument)
    return Written((*parts, ")"), producer, Form.CALL, is_new=True)


def call_unpacking(producer: int, callee: Written, arguments: Sequence[Written]) -> Written:
    """Return a call with its arguments in a list or tuple, and those with names in a dictionary."""
    given = arguments[0]
    positional = given.items if given.form in (Form.LIST, Form.TUPLE) else [starred(given)]
    named = [Written(("**", *atom(argument)), producer, Form.STARRED) for argument in arguments[1:]]
    return call(producer, callee, [*positional, *named], ())


_UNARY = {"UNARY_NEGATIVE": "-", "UNARY_NOT": "not ", "UNARY_INVERT": "~", "UNARY_POSITIVE": "+"}
_COMPARISON = re.compile(r"(?:bool\()?([<>=!]=?)\)?$")


def made_by(instruction: Instruction, operands: Sequence[Written]) -> Written | None:
    """Return the value that an instruction makes from others; None for an unknown instruction."""
    name, producer = instruction.name, instruction.index
    if name in ("BUILD_LIST", "BUILD_TUPLE"):
        form = Form.LIST if name == "BUILD_LIST" else Form.TUPLE
        return Written(producer=producer, form=form, items=list(operands), is_new=True)
    if name == "BUILD_SLICE":
        return Written(producer=producer, form=Form.SLICE, items=list(operands))
    if name == "LIST_TO_TUPLE" or (name == "CALL_INTRINSIC_1" and "LIST_TO_TUPLE" in instruction.text):
        items = operands[0].items if operands[0].form is Form.LIST else [starred(operands[0])]
        return Written(producer=producer, form=Form.TUPLE, items=list(items), is_new=True)
    if name == "GET_ITER":
        return Written(producer=producer, form=Form.ITERATOR, items=list(operands), is_new=True)
    if name == "TO_BOOL":
        return operands[0]
    if name in ("BUILD_SET", "BUILD_MAP", "BUILD_CONST_KEY_MAP"):
        return _built(instruction, operands)
    parts = _operation(instruction, operands)
    return None if parts is None else Written(parts, producer, reads=_STATE, is_atom=False, is_new=True)


def _built(instruction: Instruction, operands: Sequence[Written]) -> Written | None:
    if instruction.name == "BUILD_SET":
        entries: list[tuple[str | Written, ...]] = [(operand,) for operand in operands]
    elif instruction.name == "BUILD_MAP":
        entries = [(key, ": ", value) for key, value in zip(operands[::2], operands[1::2], strict=True)]
    else:
        keys = operands[-1].constant
        if not isinstance(keys, tuple) or not all(is_exactly(key, (str, int)) for key in keys):
            return None
        entries = [(f"{key!r}: ", value) for key, value in zip(keys, operands, strict=False)]
    parts: list[str | Written] = ["{"]
    for number, entry in enumerate(entries):
        parts += [", ", *entry] if number else entry
    return (
        Written((*parts, "}"), instruction.index, is_new=True) if entries or instruction.name != "BUILD_SET" else None
    )


def _operation(instruction: Instruction, operands: Sequence[Written]) -> tuple[str | Written, ...] | None:
    name = instruction.name
    if name in _UNARY:
        return (_UNARY[name], *atom(operands[0]))
    symbol = BINARY_OPERATORS.get(name)
    if name == "BINARY_OP" and not instruction.text.startswith("[") and not instruction.text.endswith("="):
        symbol = instruction.text
    elif name == "COMPARE_OP" and (match := _COMPARISON.match(instruction.text)):
        symbol = match[1]
    elif name == "IS_OP":
        symbol = "is not" if instruction.argument else "is"
    elif name == "CONTAINS_OP":
        symbol = "not in" if instruction.argument else "in"
    if symbol is None:
        return None
    return (*atom(operands[0]), f" {symbol} ", *atom(operands[1]))
