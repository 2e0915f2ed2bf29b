"""Writes the annotated listing of generated code, which its frames show as their source.

The instruction with index ``i`` is on line ``i + 1``. The left side has index, offset, name and argument; the right
side has the purpose, once per group, and details of single instructions. This module has no side effects. Runs on any
thread.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from types import CodeType

from dynamo_dap.debuggee.bytecode.data_flow import DataFlow
from dynamo_dap.debuggee.bytecode.instructions import Instruction
from dynamo_dap.debuggee.bytecode.stack_depth import StackDepths
from dynamo_dap.debuggee.generated.continuations import Continuation
from dynamo_dap.debuggee.generated.purpose import Kind, Purpose, without_comment
from dynamo_dap.debuggee.generated.purposes import Purposes
from dynamo_dap.debuggee.torch_api.code_objects.dynamo_names import shown_names
from dynamo_dap.debuggee.torch_api.compiles.compile_records import CompileRecord, Statement, outputs_of

_NAME_WIDTH = 18
_ARGUMENT_WIDTH = 26
_MAXIMUM_PURPOSE = 64
"""A line must fit beside a side bar; a hover shows the rest."""
_MAXIMUM_NOTE = 60


@dataclass(frozen=True, slots=True)
class Group:
    """Neighbouring instructions with one purpose: one step by statement."""

    number: int
    first: int
    last: int
    """Indices of its first and last instruction."""
    purpose: Purpose


@dataclass(frozen=True, slots=True)
class Explanation:
    """The full explanation of a line of a listing."""

    text: str
    """The statement as a whole, or the instruction."""
    purpose: Purpose
    instructions: tuple[str, ...] = ()
    """The instructions of a statement."""


class Listing:
    """The annotated listing of one code object; it keeps no reference to the code."""

    def __init__(
        self,
        code: CodeType,
        original: CodeType | None,
        depths: StackDepths,
        record: CompileRecord | None,
        changes: Mapping[int, str],
        continuation: Continuation | None = None,
    ) -> None:
        """List ``code``; ``original`` and ``record`` describe its compile.

        ``changes`` has Dynamo's original instructions in the places that a patch changed, by index.
        """
        self._changes = changes
        self._continuation = continuation
        self.flow = DataFlow(depths)
        self._table = depths.table
        purposes = Purposes(code, original, self.flow, self._table, record)
        self.groups: tuple[Group, ...] = tuple(_groups(purposes.of))
        self._group_of = [group for group in self.groups for _ in range(group.first, group.last + 1)]
        self._graph_outputs = [name for name, _ in outputs_of(record.graph)] if record is not None else []
        self._path = (original or code).co_filename

    def group_of(self, index: int) -> Group:
        """Return the group of the instruction ``index``."""
        return self._group_of[index]

    def statement_at(self, index: int) -> Statement | None:
        """Return the user's statement that the instruction ``index`` contributes to; the last of several."""
        statements = self._group_of[index].purpose.statements
        return statements[-1] if statements else None

    def statement_begun_at(self, index: int) -> Statement | None:
        """Return the user's statement whose effect begins at the instruction ``index``."""
        group = self._group_of[index]
        is_effect = group.purpose.kind in (Kind.USER, Kind.SIDE_EFFECT)
        return self.statement_at(index) if is_effect and index == group.first else None

    def user_line(self, index: int) -> int | None:
        """Return the user's line of the instruction ``index``; None if unknown."""
        if self._continuation is not None and (line := self._continuation.line_of(index)) is not None:
            return line
        statement = self.statement_at(index)
        if statement is not None and statement.path == self._path:
            return statement.line
        return self._table[index].line

    def entries_of_lines(self) -> dict[tuple[str, int], list[int]]:
        """Return (file, line) -> indices at which code for that user line begins."""
        entries: dict[tuple[str, int], list[int]] = {}
        for group in self.groups:
            is_continued = self._continuation is not None and group.first > self._continuation.jump
            if is_continued or group.purpose.kind not in (Kind.USER, Kind.SIDE_EFFECT):
                continue
            for statement in group.purpose.statements:
                entries.setdefault((statement.path, statement.line), []).append(group.first)
        for index, line in self._continuation.lines.items() if self._continuation is not None else ():
            entries.setdefault((self._path, line), []).append(index)
        return entries

    def groups_of(self, kind: Kind) -> list[Group]:
        """Return the groups of ``kind``."""
        return [group for group in self.groups if group.purpose.kind is kind]

    def line_of(self, index: int) -> int:
        """Return the 1-based line of the instruction ``index``."""
        return index + 1

    def entry_of(self, line: int) -> int | None:
        """Return the instruction of the 1-based ``line``, or None."""
        return line - 1 if 0 < line <= len(self._table) else None

    def is_same_statement(self, one: int, other: int) -> bool:
        """Return whether two instructions belong to one group."""
        return self.group_of(one) is self.group_of(other)

    def text(self) -> str:
        """Return the whole listing."""
        return "".join(f"{self.line(instruction)}\n" for instruction in self._table)

    def line(self, instruction: Instruction) -> str:
        """Return the line of one instruction."""
        argument = shortened(shown_names(instruction.text), _ARGUMENT_WIDTH)
        number = f"{instruction.index:4d} {instruction.offset:5d}"
        left = f"{number}  {instruction.name:<{_NAME_WIDTH}} {argument:<{_ARGUMENT_WIDTH}}"
        right = shortened(self._annotation(instruction), _MAXIMUM_PURPOSE)
        patch = self.patches(range(instruction.index, instruction.index + 1))
        return f"{left}  {right}{f'   {patch}' if patch else ''}".rstrip()

    def patches(self, indices: range) -> str:
        """Return a remark with the originals of the patched instructions in ``indices``; empty if none is patched."""
        was = "; ".join(shown_names(self._changes[index]) for index in indices if index in self._changes)
        return f"[patched, was {was}]" if was else ""

    def _annotation(self, instruction: Instruction) -> str:
        group = self.group_of(instruction.index)
        note = self._note(instruction)
        if instruction.index != group.first:
            return f"│ {note}" if note else "│"
        head = f"┌ {self.title(group)}" if group.last > group.first else f"╶ {self.title(group)}"
        return f"{head}   {note}" if note else head

    def title(self, group: Group) -> str:
        """Return the purpose of a group, led by the numbers of the user's lines that it executes."""
        purpose = group.purpose
        if not purpose.statements or purpose.kind in (Kind.USER, Kind.USER_OPERANDS):
            return shown_names(purpose.title)
        verb, _, what = purpose.title.partition(": ")
        lines = ", ".join(str(statement.line) for statement in purpose.statements)
        return f"{verb} line{'s' if len(purpose.statements) > 1 else ''} {lines}: {shown_names(what)}"

    def users_lines(self, group: Group) -> str:
        """Return the user's statements that a group executes, with their lines."""
        return "; ".join(
            f"{self._file(statement.path)}{statement.line}: {without_comment(statement.text)}"
            for statement in group.purpose.statements
        )

    def _file(self, path: str) -> str:
        return "line " if path == self._path else f"{os.path.basename(path)}:"

    def explanation(self, line: int) -> Explanation | None:
        """Return the full explanation of a line."""
        index = self.entry_of(line)
        if index is None:
            return None
        purpose = self.group_of(index).purpose
        return Explanation(str(self._table[index]), purpose)

    def output(self, number: int) -> str:
        """Return the name of an output of the compiled graph; empty if unknown."""
        return f"output '{self._graph_outputs[number]}'" if number < len(self._graph_outputs) else ""

    def _note(self, instruction: Instruction) -> str:
        """Describe the result of an instruction: an output of the graph, or a longer expression."""
        results = self.flow.results(instruction.index)
        if len(results) != 1 or results[0].producer != instruction.index or not results[0].operands:
            return ""
        text = results[0].text
        base, bracket, index = text.partition("[")
        if (
            bracket
            and base.startswith("graph_out_")
            and index[:-1].isdigit()
            and (output := self.output(int(index[:-1])))
        ):
            return f"{text}: {output}"
        text = shown_names(text)
        return text if text != "…" and len(text) <= _MAXIMUM_NOTE else ""


def _groups(purposes: tuple[Purpose, ...]) -> list[Group]:
    groups: list[Group] = []
    first = 0
    for index, purpose in enumerate(purposes):
        is_last = index + 1 == len(purposes) or purposes[index + 1] != purpose
        if is_last:
            groups.append(Group(len(groups), first, index, purpose))
            first = index + 1
    return groups


def shortened(text: str, width: int) -> str:
    """Return text cut to a width, with an ellipsis where it was cut."""
    return text if len(text) <= width else text[: width - 1] + "…"
