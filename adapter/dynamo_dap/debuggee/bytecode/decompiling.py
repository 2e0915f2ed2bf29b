"""Decompiles generated code: finds the Python statement of each run of neighbouring instructions.

It follows straight code, and branches and loops that control enters only at the first instruction and leaves only after
the last. Anything else (exception handlers, other jumps, instructions unknown to ``symbolic_execution``) stays as
instructions, and so does everything that depends on it. Any thread may call its functions; they have no side effects.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from dynamo_dap.debuggee.bytecode.data_flow import NO_CONSTANT, DataFlow, Expression
from dynamo_dap.debuggee.bytecode.instructions import LOADS_OF_CONSTANTS, Instruction
from dynamo_dap.debuggee.bytecode.stack_depth import StackDepths
from dynamo_dap.debuggee.bytecode.symbolic_execution import DecompiledStatement, Machine, State, Vocabulary
from dynamo_dap.debuggee.bytecode.written_values import Form

_BY_EXCEPTION = -1


class ControlFlow:
    """One code object's jumps, by instruction index."""

    def __init__(self, depths: StackDepths) -> None:
        self._table = depths.table
        self._sources: dict[int, set[int]] = {}
        for one in self._table:
            if one.target is not None:
                source = _BY_EXCEPTION if one.sets_up_block else one.index
                self._sources.setdefault(self.index_at(one.target), set()).add(source)
        for protected in depths.table.protected:
            self._sources.setdefault(self.index_at(protected.handler), set()).add(_BY_EXCEPTION)

    def index_at(self, offset: int) -> int:
        """Return the index of the instruction at ``offset``; the number of instructions if ``offset`` is behind all."""
        index = self._table.index_at(offset)
        return len(self._table) if index is None else index

    def is_entered(self, index: int) -> bool:
        """Return whether an instruction is a jump target."""
        return bool(self._sources.get(index))

    def is_only_entered_from(self, index: int, source: int) -> bool:
        """Return whether ``source`` has the only jump to ``index``."""
        return self._sources.get(index) == {source}

    def remove_jumps_to(self, *targets: int) -> None:
        """Remove the jumps to ``targets``."""
        for target in targets:
            self._sources.pop(target, None)

    def is_for_exceptions(self, inside: range) -> bool:
        """Return whether only an exception leads to these instructions."""
        return self._entries(inside) <= {_BY_EXCEPTION, *inside}

    def is_closed(self, inside: range) -> bool:
        """Return whether these instructions are entered only at the first, and left only after the last."""
        return self._entries(inside) <= set(inside) and self._exits(inside) <= set(inside)

    def _entries(self, inside: range) -> set[int]:
        return {source for one in inside for source in self._sources.get(one, ())}

    def _exits(self, inside: range) -> set[int]:
        jumps: list[Instruction] = [self._table[one] for one in inside]
        return {self.index_at(jump.target) for jump in jumps if jump.target is not None}


def decompiled(
    depths: StackDepths, flow: DataFlow, vocabulary: Vocabulary
) -> tuple[list[DecompiledStatement], dict[int, str]]:
    """Return the whole code as statements, in instruction order, and the names that these give to values.

    A name's index is that of the instruction whose result it names.
    """
    names: dict[int, str] = {}
    while True:
        walk = _Walk(depths, flow, vocabulary, names)
        statement = walk.all()
        missing = walk.missing - names.keys()
        if not missing:
            return statement, names
        names = _named({*names, *missing}, flow, vocabulary.used, depths)


def _named(indices: set[int], flow: DataFlow, used: Collection[str], depths: StackDepths) -> dict[int, str]:
    """Return a name for each result, in order."""
    names: dict[int, str] = {}
    numbered = (
        name for number in range(1, len(depths.table) + len(used) + 2) if (name := f"value_{number}") not in used
    )
    for index in sorted(indices):
        consumers = [consumer for result in flow.results(index)[:1] for consumer in result.consumers]
        is_returned = bool(consumers) and all(depths.table[one].is_return for one in consumers)
        is_free = "result" not in used and "result" not in names.values()
        names[index] = "result" if is_returned and is_free else next(numbered)
    return names


_BRANCHES = {
    "JUMP_IF_FALSE": "if {}:",
    "JUMP_IF_TRUE": "if not {}:",
    "JUMP_IF_NONE": "if {} is not None:",
    "JUMP_IF_NOT_NONE": "if {} is None:",
}
"""The statement whose block runs if the jump is not taken."""


_ONLY_LOADS = LOADS_OF_CONSTANTS | {"LOAD_FAST", "LOAD_FAST_BORROW", "LOAD_GLOBAL", "PUSH_NULL", "NOP"}


class _Walk:
    """One walk over the code with the names so far."""

    def __init__(self, depths: StackDepths, flow: DataFlow, vocabulary: Vocabulary, names: dict[int, str]) -> None:
        self._table = depths.table
        self._flow = flow
        self._control = ControlFlow(depths)
        self._machine = Machine(depths.table, flow, vocabulary, names)

    @property
    def missing(self) -> set[int]:
        """Indices of instructions whose result needs a name."""
        return self._machine.missing

    def all(self) -> list[DecompiledStatement]:
        """Execute everything."""
        self._region(0, len(self._table), 0)
        return self._machine.statements

    def _region(self, start: int, stop: int, depth: int) -> None:
        """Execute the instructions from ``start`` up to ``stop``; write no statements from an unknown one on."""
        index: int | None = start
        while index is not None and index < stop:
            index = self._follow(self._table[index], start, stop, depth)
        if self._machine.next_index < stop:
            if index == stop and self._machine.next_index > start:
                self._machine.extend_last(stop - 1)
            else:
                self._machine.leave(stop - 1, depth)

    def _follow(self, instruction: Instruction, start: int, stop: int, depth: int) -> int | None:
        """Execute one instruction; return the index of the next, or None if unknown."""
        index = instruction.index
        is_loop = instruction.name == "FOR_ITER"
        if index != start and self._control.is_entered(index) and not is_loop:
            return None
        if instruction.target is None or instruction.sets_up_block:
            self._machine.execute(instruction, depth)
            return index + 1 if instruction.falls_through else None
        target = self._control.index_at(instruction.target)
        if not index < target <= stop or not self._control.is_only_entered_from(target, index):
            return None
        if not instruction.falls_through:
            return self._jump(index, target, depth)
        return self._loop(index, target, depth) if is_loop else self._branch(instruction, target, stop, depth)

    def _jump(self, index: int, target: int, depth: int) -> int | None:
        """Skip instructions to which only exceptions lead."""
        if not self._control.is_for_exceptions(range(index + 1, target)):
            return None
        self._control.remove_jumps_to(target)
        self._machine.absorb(index)
        if index + 1 < target:
            self._machine.leave(target - 1, depth, has_run=False)
        return target

    def _branch(self, instruction: Instruction, target: int, stop: int, depth: int) -> int | None:
        """Execute the block that runs if the jump is not taken, and an ``else`` block if there is one."""
        index = instruction.index
        name = instruction.name.replace("JUMP_FORWARD_IF", "JUMP_IF")
        write = _BRANCHES.get(name.removeprefix("POP_"))
        end = self._end_of_else(target, stop)
        inside = range(index + 1, target if end is None else target - 1)
        if write is None or self._has_no_statement(inside) or not self._control.is_closed(inside):
            return None
        is_left = end is None and not self._table[target - 1].falls_through
        if not is_left and not self._meet(index, target, end):
            return None
        self._machine.add_statement(write.format, [self._machine.value(self._flow.operands(index)[0])], index, depth)
        before = self._inner(inside.start, inside.stop, depth, is_left=is_left)
        if is_left:
            self._machine.go_back(before)
        self._control.remove_jumps_to(target)
        if end is None:
            return target
        self._machine.extend_last(target - 1)
        self._else(range(target, end), depth)
        self._control.remove_jumps_to(end)
        return end

    def _end_of_else(self, target: int, stop: int) -> int | None:
        """Return the end of an else branch that begins at ``target``, or None."""
        last = self._table[target - 1]
        end = self._control.index_at(last.target) if last.target is not None and not last.falls_through else 0
        is_else = target < end <= stop and self._control.is_only_entered_from(end, target - 1)
        return end if is_else and self._table[end - 1].falls_through else None

    def _has_no_statement(self, inside: range) -> bool:
        return all(self._table[index].name in _ONLY_LOADS for index in inside)

    def _meet(self, index: int, target: int, end: int | None) -> bool:
        """Return whether both branches leave the same values on the stack."""
        if end is None:
            return _same(self._flow.stack_before(target), self._flow.stack_before(index)[:-1])
        is_simple = self._table[target].name in _ONLY_LOADS
        return is_simple and _same(self._flow.stack_before(target - 1), self._stack_behind(end - 1))

    def _stack_behind(self, index: int) -> tuple[Expression, ...]:
        before, taken = self._flow.stack_before(index), len(self._flow.operands(index))
        return (*before[: len(before) - taken], *self._flow.results(index))

    def _else(self, inside: range, depth: int) -> None:
        if self._has_no_statement(inside):
            for index in inside:
                self._machine.execute(self._table[index], depth)
            return
        self._machine.add_else(inside.start, depth)
        self._inner(inside.start, inside.stop, depth, is_left=False)

    def _loop(self, index: int, target: int, depth: int) -> int | None:
        """Execute a ``for`` loop; return None if the loop has a second exit or entry."""
        machine, back = self._machine, target - 1
        names = _loop_variables(self._table.instructions[index + 1 : back])
        first = index + 1 + len(names) + (len(names) > 1)
        iterator = machine.value(self._flow.operands(index)[0])
        if not names or iterator.form is not Form.ITERATOR or not self._control.is_closed(range(index + 1, back)):
            return None
        if self._table[back].falls_through or not self._control.is_only_entered_from(index, back):
            return None
        machine.add_statement(f"for {', '.join(names)} in {{}}:".format, iterator.items, first - 1, depth)
        # Each iteration may change what earlier values depend on.
        machine.note_any_effect(first - 1)
        self._inner(first, back, depth, is_left=False)
        machine.extend_last(back)
        self._control.remove_jumps_to(index, target)
        return target

    def _inner(self, start: int, stop: int, depth: int, *, is_left: bool) -> State:
        """Execute an indented block, ``is_left`` if control leaves at its end; return the state before it."""
        self._machine.can_absorb = False
        before = self._machine.state()
        self._region(start, stop, depth + 1)
        self._machine.settle()
        if not is_left:
            self._machine.join(before)
        self._machine.can_absorb = False
        return before


def _loop_variables(body: Sequence[Instruction]) -> list[str]:
    """Return the names to which a loop assigns each item, or its parts; empty for other targets."""
    count = body[0].argument or 0 if body and body[0].name == "UNPACK_SEQUENCE" else None
    stores = body[:1] if count is None else body[1 : 1 + count]
    is_plain = len(stores) == (count or 1) and all(one.name == "STORE_FAST" for one in stores) and count not in (0, 1)
    return [str(store.value) for store in stores] if is_plain else []


def _same(one: Sequence[Expression], other: Sequence[Expression]) -> bool:
    """Return whether two stacks hold the same values, whichever branch made them."""
    return len(one) == len(other) and all(
        left is right or (left.constant is not NO_CONSTANT and left.constant is right.constant)
        for left, right in zip(one, other, strict=True)
    )
