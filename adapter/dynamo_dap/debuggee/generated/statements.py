"""Writes generated code as a Python function: a listing with one statement per group of instructions.

Each statement has a comment with its purpose: the user's line that it executes, the compiled graph. Instructions that
no statement expresses are listed as comments. The module has no side effects, except that it reads the user's source
lines. Runs on any thread.
"""

from __future__ import annotations

import inspect
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from types import CodeType

from dynamo_dap.debuggee.bytecode.decompiling import decompiled
from dynamo_dap.debuggee.bytecode.instructions import InstructionTable
from dynamo_dap.debuggee.bytecode.stack_depth import StackDepths
from dynamo_dap.debuggee.bytecode.symbolic_execution import DecompiledStatement, Vocabulary
from dynamo_dap.debuggee.bytecode.written_values import ATTRIBUTES
from dynamo_dap.debuggee.generated.listing import Explanation, Group, Listing, shortened
from dynamo_dap.debuggee.generated.purpose import PROFILING, Kind
from dynamo_dap.debuggee.torch_api.code_objects.dynamo_names import (
    dynamos_locals,
    is_dynamos_global,
    shown_names,
    user_function_name,
)
from dynamo_dap.debuggee.torch_api.code_objects.generated_code import is_marker

_INDENT = "    "
_MAXIMUM_LINE = 200
_REMARK_COLUMN = 72
"""Maximum column of remarks, except those beside longer statements."""
_OUTPUT = re.compile(r"(?:\w+ = )?graph_out_\d+\[(\d+)\]$")
_EFFECTS = {
    "record_pregraph_bytecode_enter": frozenset[str](),
    "record_pregraph_bytecode_exit": frozenset[str](),
    "_is_profiler_enabled": frozenset[str](),
    "object_setattr_ignore_descriptor": frozenset({ATTRIBUTES}),
}
"""The program state that Dynamo's own helpers change."""


@dataclass(frozen=True, slots=True)
class Line:
    """One line of the document with its instructions; the heading has none."""

    text: str
    first: int | None = None
    last: int | None = None


class StatementListing:
    """The document of one code object; it keeps no reference to the code."""

    def __init__(self, code: CodeType, original: CodeType | None, depths: StackDepths, listing: Listing) -> None:
        """List ``code``, made from ``original``; ``listing`` is the same code in the other form."""
        self._listing = listing
        self._table = depths.table
        self.statements, self._names = decompiled(depths, listing.flow, _vocabulary(code, original))
        self.lines = [*_heading(code, original, self._table), *self._body()]
        self._line_of = [number for number, line in enumerate(self.lines, 1) for _ in _indices(line)]
        self._numbers = [
            number
            for number, statement in enumerate(self.statements)
            for _ in range(statement.first, statement.last + 1)
        ]

    def text(self) -> str:
        """Return the whole document."""
        return "".join(f"{line.text}\n" for line in self.lines)

    def line_of(self, index: int) -> int:
        """Return the 1-based line of the instruction ``index``."""
        return self._line_of[index]

    def entry_of(self, line: int) -> int | None:
        """Return the first instruction of the 1-based ``line`` or of a later line; None if there is none."""
        return next((shown.first for shown in self.lines[max(0, line - 1) :] if shown.first is not None), None)

    def is_same_statement(self, one: int, other: int) -> bool:
        """Return whether two instructions belong to one statement, or to one purpose without a statement."""
        number = self._numbers[one]
        if number != self._numbers[other]:
            return False
        return self.statements[number].text is not None or self._listing.group_of(one) == self._listing.group_of(other)

    def names_on_stack(self, index: int) -> dict[int, str]:
        """Return the name in statements of each slot's value before the instruction ``index``."""
        before = enumerate(self._listing.flow.stack_before(index))
        return {
            slot: self._names[expression.producer] for slot, expression in before if expression.producer in self._names
        }

    def names_of_globals(self) -> dict[str, str]:
        """Return the globals with short names in statements: short name -> real name."""
        names = {str(instruction.value) for instruction in self._table if instruction.name == "LOAD_GLOBAL"}
        return {shown: name for name in names if (shown := shown_names(name)) != name}

    def explanation(self, line: int) -> Explanation | None:
        """Return the explanation of a line: the whole statement, its instructions, its purpose."""
        shown = self.lines[line - 1] if 0 < line <= len(self.lines) else None
        if shown is None or shown.first is None:
            return None
        statement = self.statements[self._numbers[shown.first]]
        if statement.text is None:
            return self._listing.explanation(shown.first + 1)
        group = self._group_behind(statement) or self._listing.group_of(statement.last)
        instructions = tuple(self._listing.line(self._table[index]) for index in _indices(shown))
        return Explanation(statement.text, group.purpose, instructions)

    def _body(self) -> Iterator[Line]:
        indented = [f"{_INDENT * (statement.depth + 1)}{statement.text or ''}" for statement in self.statements]
        column = max((len(text) for text in indented if len(text) <= _REMARK_COLUMN), default=0)
        for statement, text in zip(self.statements, indented, strict=True):
            if statement.text is None:
                for index in range(statement.first, statement.last + 1):
                    yield Line(f"{text}# {self._listing.line(self._table[index])}", index, index)
            else:
                remark = self._remark(statement)
                line = f"{text:<{column}}  # {remark}" if remark else text
                yield Line(shortened(line, _MAXIMUM_LINE), statement.first, statement.last)

    def _remark(self, statement: DecompiledStatement) -> str:
        patches = self._listing.patches(range(statement.first, statement.last + 1))
        return "   ".join(part for part in (self._remark_of_statement(statement), patches) if part)

    def _remark_of_statement(self, statement: DecompiledStatement) -> str:
        output = _OUTPUT.match(statement.text or "")
        if output is not None:
            return self._listing.output(int(output[1]))
        group = self._group_behind(statement)
        return "" if group is None else _REMARKS[group.purpose.kind] or self._listing.users_lines(group)

    def _group_behind(self, statement: DecompiledStatement) -> Group | None:
        """Return the group of instructions of a statement, if it says more than the statement."""
        for index in range(statement.last, statement.first - 1, -1):
            group = self._listing.group_of(index)
            if group.purpose.kind in _REMARKS:
                return group
            if group.purpose.kind is Kind.GRAPH:
                break
        return None


_REMARKS = {
    Kind.USER: None,
    Kind.SIDE_EFFECT: None,
    Kind.BOOKKEEPING: PROFILING.title,
    Kind.RESUME: "the rest of the function",
}
"""The remark beside a statement; None for the user's lines that it carries out."""


def _indices(line: Line) -> range:
    return range(0) if line.first is None or line.last is None else range(line.first, line.last + 1)


def _heading(code: CodeType, original: CodeType | None, table: InstructionTable) -> Iterator[Line]:
    user = original or code
    yield Line(f"# Generated by Dynamo from {user_function_name(user)}, {os.path.basename(user.co_filename)}")
    name = code.co_name if code.co_name.isidentifier() else "generated"
    yield Line(f"def {name}({', '.join(_parameters(code))}):")
    stored = dict.fromkeys(
        str(instruction.value) for instruction in table if instruction.name in ("STORE_GLOBAL", "DELETE_GLOBAL")
    )
    if stored:
        yield Line(f"{_INDENT}global {', '.join(stored)}")
    cells = dict.fromkeys(
        str(instruction.value) for instruction in table if instruction.name in ("STORE_DEREF", "DELETE_DEREF")
    )
    outer = [name for name in cells if name in code.co_freevars]
    if outer:
        yield Line(f"{_INDENT}nonlocal {', '.join(outer)}")


def _parameters(code: CodeType) -> list[str]:
    names = iter(code.co_varnames)
    positional = [next(names) for _ in range(code.co_argcount)]
    by_name = [next(names) for _ in range(code.co_kwonlyargcount)]
    rest = [f"*{next(names)}"] if code.co_flags & inspect.CO_VARARGS else ["*"] if by_name else []
    rest_by_name = [f"**{next(names)}"] if code.co_flags & inspect.CO_VARKEYWORDS else []
    return [*positional, *rest, *by_name, *rest_by_name]


def _vocabulary(code: CodeType, original: CodeType | None) -> Vocabulary:
    is_dynamos = dynamos_locals(code, original)
    parameters = set(code.co_varnames[: code.co_argcount + code.co_kwonlyargcount])
    return Vocabulary(
        shown=shown_names,
        is_fixed=is_dynamos_global,
        is_temporary=lambda name: is_dynamos(name) and name not in parameters,
        is_private=lambda name: name.startswith("graph_out_") and is_dynamos(name),
        effects_of=lambda text: _EFFECTS.get(text.rpartition(".")[2]),
        statement_of=lambda value: "torch._dynamo.bytecode_debugger.breakpoint()" if is_marker(value) else None,
        used=frozenset((*code.co_names, *code.co_varnames, *code.co_cellvars, *code.co_freevars)),
    )
