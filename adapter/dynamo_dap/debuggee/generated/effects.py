"""Finds the instructions of generated code that have side effects, and which effects these are.

The module recognizes them by the targets of calls and stores: Dynamo's names of compiled graphs and resume functions,
the user's objects, lists that pack a frame on the stack. Dynamo's record has the user's statements behind each side
effect, and names changed objects by their sources, ``L['d']`` or ``G['state'].last``. This module derives the same
names from the stores of the generated code. It only reads the user's source lines. Runs on any thread.
"""

from __future__ import annotations

import linecache
import re
from collections.abc import Sequence
from types import CodeType

from dynamo_dap.debuggee.bytecode.data_flow import Call, DataFlow, Expression, is_subscript
from dynamo_dap.debuggee.bytecode.instructions import Instruction, InstructionTable
from dynamo_dap.debuggee.generated.purpose import DROPPING, PACKING, PROFILING, Kind, Purpose, without_comment
from dynamo_dap.debuggee.torch_api.code_objects.generated_code import is_marker
from dynamo_dap.debuggee.torch_api.compiles.compile_records import CompileRecord, SideEffect, Statement


class SideEffectStatements:
    """Finds the user's statements behind the stores of one code object."""

    def __init__(
        self, flow: DataFlow, table: InstructionTable, user_names: frozenset[str], recorded: Sequence[SideEffect]
    ) -> None:
        """Distinguish the variables ``user_names`` from Dynamo's temporaries."""
        self._flow = flow
        self._table = table
        self._recorded = recorded
        self._stores = self._stores_of_temporaries(user_names)

    def of(self, instruction: Instruction, target: Expression | None) -> tuple[Statement, ...]:
        """Return the statements behind ``instruction``, which stores into ``target`` (None: a global or a cell)."""
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
        """Return the attribute that a side effect stores: each attribute of an object may have its own statements."""
        if instruction.name in ("STORE_ATTR", "DELETE_ATTR"):
            return str(instruction.value)
        call = self._flow.call_at(instruction.index)
        return None if call is None else attribute_set_by(call)

    def _source_of(self, expression: Expression) -> str | None:
        """Return Dynamo's name of the object of ``expression``, or None."""
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
        """Return the values of Dynamo's temporary variables."""
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


BUILDS = frozenset({"BUILD_LIST", "BUILD_TUPLE", "BUILD_MAP", "BUILD_SET", "BUILD_CONST_KEY_MAP"})
SUBSCRIPTS = frozenset({"BINARY_SUBSCR", "BINARY_OP", "BINARY_SLICE"})
_COMPILED_FUNCTION = re.compile(r"__compiled_fn_(\d+)")
_RESUME_FUNCTIONS = ("__resume_at_", "torch_dynamo_resume_in_")
_PROFILER_MARKS = frozenset({"record_pregraph_bytecode_enter", "record_pregraph_bytecode_exit", "_is_profiler_enabled"})
_DYNAMOS_NAMES = ("___context_manager", "__resume_frame_values", "__nested_frame_values", "__import_")
_ENTERING = frozenset({"RESUME", "NOP", "GEN_START", "RETURN_GENERATOR"})
_CELL_INSTRUCTIONS = frozenset({"MAKE_CELL", "COPY_FREE_VARS"})
_MAXIMUM_TITLE = 80


class Effects:
    """The effects of the instructions of one code object."""

    def __init__(
        self,
        code: CodeType,
        original: CodeType | None,
        flow: DataFlow,
        table: InstructionTable,
        record: CompileRecord | None,
    ) -> None:
        """Describe ``code``, made from ``original``; ``record`` is Dynamo's record. Both may be unknown."""
        self._flow = flow
        self._table = table
        self._path = (original or code).co_filename
        self._name = (original or code).co_name
        names = original if original is not None else code
        self._user_names = frozenset((*names.co_varnames, *names.co_cellvars, *names.co_freevars))
        self._has_columns = any(
            instruction.place is not None and instruction.place.col_offset is not None for instruction in table
        )
        recorded = record.side_effects if record is not None else ()
        self._statements = SideEffectStatements(flow, table, self._user_names, recorded)
        self.has_resume_call = self._any_resume_call()
        """Whether the code continues in a resume function."""

    def of(self, index: int) -> Purpose | None:
        """Return the effect of the instruction ``index``, or None."""
        instruction = self._table[index]
        if is_marker(instruction.value):
            return Purpose(Kind.MARKER, "torch._dynamo.bytecode_debugger.breakpoint()", index)
        if instruction.name in _ENTERING and self._is_in_prologue(index):
            return Purpose(Kind.ENTER, f"enter {self._name}", -1)
        if self._is_users_own(instruction):
            return self._users(instruction)
        call = self._flow.call_at(index)
        if call is not None:
            return self._call(instruction, call)
        return self._of_frame(instruction) or self._store(instruction)

    def _of_frame(self, instruction: Instruction) -> Purpose | None:
        """Return the effect on the frame itself, or None."""
        name, index = instruction.name, instruction.index
        if instruction.is_return:
            operand = next(iter(self._flow.operands(index)), None)
            text = f"return {operand.text if operand else instruction.text}"
            return Purpose(Kind.RETURN, text[:_MAXIMUM_TITLE], index)
        if name in _CELL_INSTRUCTIONS or name == "LOAD_CLOSURE":
            return Purpose(Kind.CELLS, "cells", -1)
        if name in ("DELETE_FAST", "DELETE_DEREF") or (name == "POP_TOP" and not self._drops_result_of_effect(index)):
            return DROPPING
        if name == "STORE_FAST" and instruction.value in self._user_names:
            return Purpose(Kind.LOCALS, "restore local variables", -1)
        if name in ("UNPACK_SEQUENCE", "UNPACK_EX"):
            return self._unpacking(instruction)
        return PROFILING if name.startswith("POP_JUMP") else None

    def _drops_result_of_effect(self, index: int) -> bool:
        producers = [operand.producer for operand in self._flow.operands(index)]
        return any(producer is not None and self.of(producer) is not None for producer in producers)

    def _is_in_prologue(self, index: int) -> bool:
        return all(
            instruction.name in _ENTERING or instruction.name in _CELL_INSTRUCTIONS
            for instruction in self._table.instructions[: index + 1]
        )

    def _is_users_own(self, instruction: Instruction) -> bool:
        """Return whether an instruction was copied from the user's function: only copied instructions have columns.

        Python 3.10 has no columns: there a generated instruction inherits the line before it, and only a copied
        instruction begins another.
        """
        place = instruction.place
        if place is None or instruction.name in _ENTERING or instruction.name == "EXTENDED_ARG":
            return False
        if place.col_offset is not None:
            return (place.col_offset, place.end_col_offset) != (0, 0)
        before = self._table[instruction.index - 1].line if instruction.index else place.lineno
        return not self._has_columns and place.lineno != before

    def _users(self, instruction: Instruction) -> Purpose:
        line = instruction.line or 0
        text = linecache.getline(self._path, line).strip()
        statement = Statement(self._path, line, self._name, text)
        title = f"line {line}: {without_comment(text)}" if text else f"line {line}"
        return Purpose(Kind.USER, title, instruction.index, (statement,))

    def _unpacking(self, instruction: Instruction) -> Purpose | None:
        operand = self._flow.operands(instruction.index)[:1]
        made = self.of(operand[0].producer) if operand and operand[0].producer is not None else None
        if made is not None and made.kind is Kind.GRAPH:
            return Purpose(Kind.OUTPUTS, f"unpack the outputs of {made.title.removeprefix('call ')}", instruction.index)
        return None

    def _call(self, instruction: Instruction, call: Call) -> Purpose | None:
        compiled = _COMPILED_FUNCTION.match(call.callee.variable or "")
        if compiled is not None:
            return Purpose(Kind.GRAPH, f"call compiled graph {compiled[1]}", instruction.index)
        resume = self._resume_function(call.callee)
        if resume is not None:
            if self._is_called(instruction.index):
                return PACKING
            return Purpose(Kind.RESUME, f"call the resume function {resume}", instruction.index)
        if any(expression.name in _PROFILER_MARKS for expression in call.callee.path()):
            return PROFILING
        result = self._flow.results(instruction.index)[:1]
        if result and any(self._table[consumer].name == "POP_TOP" for consumer in result[0].consumers):
            return self._replayed_call(instruction, call)
        return None

    def _resume_function(self, callee: Expression) -> str | None:
        """Return the name of the resume function ``callee``, or of the one that ``callee`` makes, with its cells."""
        root = callee.root
        name = root.constant.co_name if isinstance(root.constant, CodeType) else root.variable
        return name if name is not None and name.startswith(_RESUME_FUNCTIONS) else None

    def _any_resume_call(self) -> bool:
        calls = (self._flow.call_at(instruction.index) for instruction in self._table)
        return any(call is not None and self._resume_function(call.callee) is not None for call in calls)

    def _is_called(self, index: int) -> bool:
        """Return whether another instruction calls the result of an instruction."""
        for result in self._flow.results(index):
            for consumer in result.consumers:
                call = self._flow.call_at(consumer)
                if call is not None and call.callee is result:
                    return True
        return False

    def _replayed_call(self, instruction: Instruction, call: Call) -> Purpose:
        target, text = self._target_of_call(call)
        return self._side_effect(instruction, text, target)

    def _target_of_call(self, call: Call) -> tuple[Expression | None, str]:
        arguments = [argument.text for argument in call.arguments]
        attribute = attribute_set_by(call)
        if attribute is not None and len(arguments) == 3:
            return call.arguments[0], f"{arguments[0]}.{attribute} = {arguments[2]}"
        if attribute is not None:
            return call.arguments[0], f"del {arguments[0]}.{attribute}"
        return call.callee.base, f"{call.callee.text}({', '.join(arguments)})"

    def _store(self, instruction: Instruction) -> Purpose | None:
        operands = self._flow.operands(instruction.index)
        texts = [operand.text for operand in operands]
        name = instruction.name
        if name in ("STORE_SUBSCR", "DELETE_SUBSCR", "STORE_SLICE") and operands:
            container = operands[0] if name == "DELETE_SUBSCR" else operands[1]
            if self._is_made_here(container):
                return PACKING
            text = {
                "STORE_SUBSCR": lambda: f"{texts[1]}[{texts[2]}] = {texts[0]}",
                "DELETE_SUBSCR": lambda: f"del {texts[0]}[{texts[1]}]",
                "STORE_SLICE": lambda: f"{texts[1]}[{texts[2]}:{texts[3]}] = {texts[0]}",
            }[name]()
            return self._side_effect(instruction, text, container)
        if name == "STORE_ATTR" and len(operands) == 2:
            return self._side_effect(instruction, f"{texts[1]}.{instruction.value} = {texts[0]}", operands[1])
        if name == "DELETE_ATTR" and operands:
            return self._side_effect(instruction, f"del {texts[0]}.{instruction.value}", operands[0])
        if name in ("STORE_GLOBAL", "STORE_DEREF") and operands:
            return self._side_effect(instruction, f"{instruction.value} = {texts[0]}", None)
        return None

    def _is_made_here(self, expression: Expression) -> bool:
        """Return whether an object was built on the stack, for example a list that packs a frame."""
        while (made := expression.instruction) is not None:
            if made.name in BUILDS:
                return True
            if made.name not in SUBSCRIPTS or not expression.operands:
                return False
            expression = expression.operands[0]
        return False

    def _side_effect(self, instruction: Instruction, text: str, target: Expression | None) -> Purpose:
        if target is not None and self._is_dynamos_own(target):
            return Purpose(Kind.OTHER, text, instruction.index)
        statements = self._statements.of(instruction, target)
        return Purpose(Kind.SIDE_EFFECT, f"apply: {text}", instruction.index, statements)

    def _is_dynamos_own(self, target: Expression) -> bool:
        """Return whether an object is Dynamo's: a context manager that is entered again, the values of a frame."""
        return (target.root.variable or "").startswith(_DYNAMOS_NAMES)
