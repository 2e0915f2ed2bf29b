"""Finds the user's statements that a replayed side effect performs: matches Dynamo's record against the code.

Dynamo names changed objects by their sources, ``L['d']`` or ``G['state'].last``; here the same names are derived from
what the generated code stores into. Pure; any thread.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from dynamo_dap.debuggee.code_analysis.data_flow import Call, DataFlow, Expression, is_subscript
from dynamo_dap.debuggee.code_analysis.instructions import Instruction, InstructionTable
from dynamo_dap.debuggee.torch_internals.compile_records import SideEffect, Statement


class ReplayedStatements:
    """Finds the user's statements behind the stores of one code object."""

    def __init__(
        self, flow: DataFlow, table: InstructionTable, user_names: frozenset[str], recorded: Sequence[SideEffect]
    ) -> None:
        """``user_names`` are the variables that are not Dynamo's temporaries."""
        self._flow = flow
        self._table = table
        self._recorded = recorded
        self._stores = self._stores_of_temporaries(user_names)

    def of(self, instruction: Instruction, target: Expression | None) -> tuple[Statement, ...]:
        """Return what ``instruction``, which stores into ``target`` (None: a global or a cell), carries out."""
        wanted = self._source_of(target) if target is not None else None
        for side_effect in self._recorded:
            if target is None:
                names = {f"G[{instruction.value!r}]", f"L[{instruction.value!r}]"}
                matches = side_effect.source in names or side_effect.local_name == instruction.value
            else:
                matches = _is_source(side_effect, wanted, target)
            if matches:
                return _about_attribute(side_effect.statements, self._attribute_of(instruction))
        return ()

    def _attribute_of(self, instruction: Instruction) -> str | None:
        """The attribute that a side effect stores: one object may have several changed by different statements."""
        if instruction.name in ("STORE_ATTR", "DELETE_ATTR"):
            return str(instruction.value)
        call = self._flow.call_at(instruction.index)
        return None if call is None else attribute_set_by(call)

    def _source_of(self, expression: Expression) -> str | None:
        """Return how Dynamo would name the object that ``expression`` is; None when it has no such name."""
        made = expression.instruction
        if made is None:
            return None
        if made.name == "LOAD_GLOBAL":
            return f"G[{expression.variable!r}]"
        if expression.variable is not None:
            stored = self._stores.get(expression.variable)
            return f"L[{expression.variable!r}]" if stored is None else self._source_of(stored)
        base = self._source_of(expression.operands[0]) if expression.operands else None
        if base is None:
            return None
        if expression.name is not None:
            return f"{base}.{expression.name}"
        return f"{base}[{_key_text(expression.operands[1])}]" if is_subscript(made) else None

    def _stores_of_temporaries(self, user_names: frozenset[str]) -> dict[str, Expression]:
        """Return what each of Dynamo's temporary variables was set to."""
        stores: dict[str, Expression] = {}
        for instruction in self._table:
            if instruction.name == "STORE_FAST" and instruction.value not in user_names:
                operands = self._flow.operands(instruction.index)
                if operands:
                    stores.setdefault(str(instruction.value), operands[0])
        return stores


def _is_source(side_effect: SideEffect, wanted: str | None, target: Expression) -> bool:
    if wanted is not None and side_effect.source is not None:
        return side_effect.source == wanted
    return side_effect.local_name is not None and side_effect.local_name == target.variable


def _about_attribute(statements: tuple[Statement, ...], attribute: str | None) -> tuple[Statement, ...]:
    if attribute is None:
        return statements
    naming = tuple(statement for statement in statements if re.search(rf"\b{re.escape(attribute)}\b", statement.text))
    return naming or statements


def attribute_set_by(call: Call) -> str | None:
    """Return the attribute that a call of Dynamo's helpers sets or deletes; None for any other call."""
    name = call.arguments[1].constant if call.callee.name in _HELPERS and len(call.arguments) > 1 else None
    return name if isinstance(name, str) else None


_HELPERS = frozenset({"object_setattr_ignore_descriptor", "object_delattr_ignore_descriptor"})


def _key_text(key: Expression) -> str:
    """Return a key as Dynamo writes it into the name of a source."""
    return repr(key.constant) if isinstance(key.constant, str | int) else key.text
