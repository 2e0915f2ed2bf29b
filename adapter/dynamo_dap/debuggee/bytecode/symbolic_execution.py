"""Executes generated code symbolically, instruction by instruction, and writes statements.

Each computed value is kept as a tree. An instruction with an effect ends a statement, which contains the trees that the
instruction uses. So a value is written later than it was computed. It gets a name and its own statement if something it
depends on was stored or called in between, or if it would be computed twice. Lists that never leave the stack, in which
Dynamo packs frames, are executed rather than written.

``decompiling`` follows the control flow. Any thread may call its functions; they have no side effects.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace

from dynamo_dap.debuggee.bytecode import written_values
from dynamo_dap.debuggee.bytecode.data_flow import DataFlow, Expression, is_move, is_subscript
from dynamo_dap.debuggee.bytecode.instructions import LOADS_OF_CONSTANTS, Instruction, InstructionTable
from dynamo_dap.debuggee.bytecode.written_values import (
    ATTRIBUTES,
    CELLS,
    EVERYTHING,
    GLOBALS,
    ITEMS,
    NULL,
    UNKNOWN,
    Form,
    Written,
    local,
    plain,
)


@dataclass(frozen=True, slots=True)
class DecompiledStatement:
    """Neighbouring instructions: a statement, or unchanged instructions."""

    first: int
    last: int
    """Indices of the first and the last instruction; each instruction is in exactly one."""
    text: str | None
    """The statement, without a newline; None for instructions without one."""
    depth: int = 0
    """Its indentation."""


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """Facts about the names in the code."""

    shown: Callable[[str], str]
    """Returns a global name as it is written."""
    is_fixed: Callable[[str], bool]
    """Whether a global with this name, and everything read from it, never changes."""
    is_temporary: Callable[[str], bool]
    """Whether a local with this name is Dynamo's own: an assignment that nothing reads can be left out."""
    is_private: Callable[[str], bool]
    """Whether only the code itself can change the value of a local with this name."""
    effects_of: Callable[[str], frozenset[str] | None]
    """Effects of calling an expression; None if unknown."""
    statement_of: Callable[[object], str | None]
    """The statement for a constant that is loaded and dropped."""
    used: Collection[str]
    """Names in use."""


@dataclass(frozen=True, slots=True)
class State:
    """A ``Machine``'s state where control divides."""

    effects: list[tuple[int, frozenset[str]]]
    written: set[Written]
    contents: list[tuple[Written, list[Written]]]


_SILENT = frozenset(
    {"NOP", "RESUME", "MAKE_CELL", "COPY_FREE_VARS", "GEN_START", "NOT_TAKEN", "POP_BLOCK", "END_FOR", "POP_ITER"}
)
_LOADS_OF_LOCALS = frozenset({"LOAD_FAST", "LOAD_FAST_CHECK", "LOAD_FAST_BORROW"})
_METHODS = frozenset({"__enter__", "__exit__"}).union(
    name for kind in (dict, list, set) for name in vars(kind) if not name.startswith("_")
)
"""Methods that nothing replaces: those of containers that Dynamo refills, and of context managers."""


class Machine:
    """One pass over the code with the names so far; it finds the values that need further names."""

    def __init__(self, table: InstructionTable, flow: DataFlow, vocabulary: Vocabulary, names: dict[int, str]) -> None:
        self.missing: set[int] = set()
        """Indices of instructions whose result needs a name."""
        self._table = table
        self._flow = flow
        self._vocabulary = vocabulary
        self._names = names
        self._loaded = {str(one.value) for one in self._table if one.name in _LOADS_OF_LOCALS}
        self.statements: list[DecompiledStatement] = []
        self._begin = 0
        self.can_absorb = False
        """Whether an instruction without a statement may belong to the statement before it."""
        self._values: dict[int, Written] = {}
        self._containers: list[Written] = []
        self._effects: list[tuple[int, frozenset[str]]] = []
        self._written: set[Written] = set()
        self._pending: Written | None = None
        """A call that was made, but not written yet."""

    # -- statements ----------------------------------------------------------------------------------------------

    def add_statement(self, write: Callable[..., str], values: Sequence[Written], index: int, depth: int) -> bool:
        """Write the statement that ``write`` makes from the texts of ``values``; return whether that is possible."""
        self.settle(*values)
        self._use(values, index)
        texts = [value.text() for value in values]
        text = None if None in texts else write(*texts)
        self.statements.append(DecompiledStatement(self._begin, index, text, depth))
        self._begin = index + 1
        self.can_absorb = True
        return text is not None

    def leave(self, last: int, depth: int, *, has_run: bool = True) -> None:
        """Leave everything up to ``last`` as instructions, whose effects are unknown."""
        self.settle()
        if has_run:
            self.note_any_effect(last)
        self.statements.append(DecompiledStatement(self._begin, last, None, depth))
        self._begin = last + 1
        self.can_absorb = False

    def absorb(self, index: int) -> bool:
        """Add an instruction without a statement to the statement right before it; return whether that is possible."""
        if self._begin != index or not self.can_absorb:
            return False
        self.statements[-1] = replace(self.statements[-1], last=index)
        self._begin = index + 1
        return True

    def extend_last(self, last: int) -> None:
        """Make the last statement end with the instruction ``last``."""
        self.statements[-1] = replace(self.statements[-1], last=last)
        self._begin = last + 1

    def add_else(self, index: int, depth: int) -> None:
        """Begin the other branch at the instruction ``index``, which has no effect."""
        self.statements.append(DecompiledStatement(index, index, "else:", depth))
        self._begin = index + 1

    @property
    def next_index(self) -> int:
        """The index of the first instruction without a statement."""
        return self._begin

    def note_any_effect(self, index: int) -> None:
        """Note that any code may have run up to the instruction ``index``."""
        stored = {local(str(one.value)) for one in self._table if one.name in ("STORE_FAST", "DELETE_FAST")}
        self._effects.append((index, EVERYTHING | stored))

    # -- values ----------------------------------------------------------------------------------------------------

    def state(self) -> State:
        """Return the present state, for ``go_back``."""
        contents = [(container, list(container.items)) for container in self._containers]
        return State(list(self._effects), set(self._written), contents)

    def go_back(self, state: State) -> None:
        """Restore a state: later instructions belong to another path."""
        self._effects, self._written = state.effects, state.written
        for container, items in state.contents:
            container.items = items

    def join(self, state: State) -> None:
        """Continue where two paths meet, one of which began with ``state``; lists that differ get names."""
        for container, items in state.contents:
            if container.items != items:
                self.missing.add(container.producer)
            container.items = items

    def value(self, expression: Expression) -> Written:
        """Return the value of ``expression`` on the stack."""
        return self._values.get(id(expression), UNKNOWN)

    def settle(self, *used: Written) -> None:
        """Write out a pending call before something else happens."""
        if self._pending is not None and self._pending not in used:
            self.missing.add(self._pending.producer)
        self._pending = None

    def _use(self, values: Sequence[Written], now: int) -> None:
        """Use values in a statement: name those that may have changed since, or would be computed again."""
        for value in values:
            self._name_what_changed(value, now)
            for one in value.tree():
                if one.is_new and one in self._written:
                    self.missing.add(one.producer)
                self._written.add(one)

    def _name_what_changed(self, value: Written, now: int) -> None:
        changed = self._first_change(value, now)
        if changed is None:
            return
        if value.producer < changed and value.form is not Form.LIST and not value.is_method:
            self.missing.add(value.producer)
            return
        for one in value.below():
            self._name_what_changed(one, now)

    def _first_change(self, value: Written, now: int) -> int | None:
        """Return the first change of a part of ``value`` since it was computed."""
        changes = [
            time
            for one in value.tree()
            if one.reads
            for time, effects in self._effects
            if one.producer < time <= now and effects & one.reads
        ]
        return min(changes, default=None)

    def _effect(self, index: int, *changed: str) -> None:
        self._effects.append((index, frozenset(changed)))

    # -- instructions ----------------------------------------------------------------------------------------------

    def execute(self, instruction: Instruction, depth: int) -> None:
        """Execute an instruction that does not jump; indent its statement, if it ends one, to ``depth``."""
        index = instruction.index
        if is_move(instruction):
            return
        if instruction.name in _SILENT or instruction.sets_up_block:
            self.absorb(index)
            return
        operands = [self.value(one) for one in self._flow.operands(index)]
        results = [one for one in self._flow.results(index) if one.producer == index]
        if _STATEMENTS.get(instruction.name, _no_statement)(self, instruction, operands, depth):
            self._keep(index, results, [UNKNOWN] * len(results), depth)
            return
        made = self._made(instruction, operands, len(results))
        if made is None:
            # The instruction or its values are unknown.
            self.add_statement(str, [UNKNOWN], index, depth)
            self._effects.append((index, EVERYTHING))
            made = [UNKNOWN] * len(results)
        self._keep(index, results, made, depth)

    def _keep(self, index: int, results: Sequence[Expression], made: Sequence[Written], depth: int) -> None:
        name = self._names.get(index)
        for expression, value in zip(results, made, strict=False):
            kept = value
            if name is not None and value.form is not Form.NULL and value.producer == index:
                statement = self.add_statement(f"{name} = {{}}".format, [value], index, depth)
                kept = plain(name, index) if statement else UNKNOWN
                name = None
            self._values[id(expression)] = kept
            if kept.form is Form.LIST:
                self._containers.append(kept)

    def _made(self, instruction: Instruction, operands: list[Written], count: int) -> list[Written] | None:
        """Return the values of an instruction without an effect of its own; None if unknown."""
        loaded = _loaded(instruction)
        if loaded is not None:
            return [loaded]
        if instruction.name == "LOAD_GLOBAL":
            return self._global(instruction, count)
        if self._flow.call_at(instruction.index) is not None:
            return [self._call(instruction, operands)]
        if any(operand.form is Form.UNKNOWN for operand in operands):
            return None
        return self._computed(instruction, operands, count)

    def _computed(self, instruction: Instruction, operands: list[Written], count: int) -> list[Written] | None:
        name, index = instruction.name, instruction.index
        if self._pending is not None and self._pending in operands:
            self.missing.add(self._pending.producer)
        if name in ("LOAD_ATTR", "LOAD_METHOD", "IMPORT_FROM"):
            is_method = count == 2 and str(instruction.value) in _METHODS
            return [
                written_values.attribute(operands[0], str(instruction.value), index, is_method=is_method),
                operands[0],
            ]
        if is_subscript(instruction) or name == "BINARY_SLICE":
            is_fixed = self._vocabulary.is_private(operands[0].text() or "")
            key = operands[1]
            if name == "BINARY_SLICE":
                key = Written(producer=index, form=Form.SLICE, items=operands[1:])
            found = written_values.subscript(operands[0], key, index, is_fixed=is_fixed)
            return None if found is UNKNOWN else [found]
        if name == "UNPACK_SEQUENCE":
            return self._unpacked(operands[0], index, count)
        made = written_values.made_by(instruction, operands)
        return None if made is None else [made]

    def _global(self, instruction: Instruction, count: int) -> list[Written]:
        name = str(instruction.value)
        is_fixed = self._vocabulary.is_fixed(name)
        reads: frozenset[str] = frozenset() if is_fixed else frozenset({GLOBALS, f"global {name}"})
        value = plain(self._vocabulary.shown(name), instruction.index, reads=reads, is_fixed=is_fixed)
        results = self._flow.results(instruction.index)
        return [value] if count == 1 else [NULL if result.role == "null" else value for result in results]

    def _unpacked(self, sequence: Written, index: int, count: int) -> list[Written]:
        if sequence.form in (Form.LIST, Form.TUPLE) and len(sequence.items) == count:
            return sequence.items[::-1]
        if sequence.is_new:
            self.missing.add(sequence.producer)
        is_fixed = self._vocabulary.is_private(sequence.text() or "")
        keys = [_constant(place, str(place), index) for place in range(count)]
        # The first ends on top.
        return [written_values.subscript(sequence, key, index, is_fixed=is_fixed) for key in reversed(keys)]

    def _call(self, instruction: Instruction, operands: list[Written]) -> Written:
        index = instruction.index
        found = self._flow.call_at(index)
        assert found is not None
        callee, arguments = self.value(found.callee), [self.value(argument) for argument in found.arguments]
        self.settle(callee)
        self._use([callee, *arguments], index)
        text = callee.text()
        effects = self._vocabulary.effects_of(text) if text is not None else None
        self._effects.append((index, EVERYTHING if effects is None else effects))
        if instruction.name == "CALL_FUNCTION_EX":
            made = written_values.call_unpacking(index, callee, arguments)
        else:
            made = written_values.call(index, callee, arguments, self._keywords(instruction, operands))
        self._pending = made
        return made

    def _keywords(self, instruction: Instruction, operands: list[Written]) -> tuple[str, ...]:
        if instruction.name in ("CALL_KW", "CALL_FUNCTION_KW"):
            names = operands[-1].constant
        else:
            before = self._table.instructions[max(0, instruction.index - 2) : instruction.index]
            names = next((one.value for one in before if one.name == "KW_NAMES"), ())
        return tuple(str(name) for name in names) if isinstance(names, tuple) else ()

    # -- instructions that end a statement: each method returns True, ``_no_statement`` returns False ----------------

    def store_local(self, instruction: Instruction, operands: list[Written], depth: int) -> bool:
        """Write ``x = ...``; nothing for a local of Dynamo's that nothing reads."""
        name = str(instruction.value)
        if operands[0] is not self._pending and name not in self._loaded and self._vocabulary.is_temporary(name):
            self.absorb(instruction.index)
            return True
        self.add_statement(lambda text: f"{name} = {text}", operands, instruction.index, depth)
        self._effect(instruction.index, local(name))
        return True

    def delete_local(self, instruction: Instruction, operands: list[Written], depth: int) -> bool:
        """Write ``del x``."""
        del operands
        name = str(instruction.value)
        if name not in self._loaded and self._vocabulary.is_temporary(name):
            self.absorb(instruction.index)
            return True
        self.add_statement(lambda: f"del {name}", (), instruction.index, depth)
        self._effect(instruction.index, local(name))
        return True

    def store_name(self, instruction: Instruction, operands: list[Written], depth: int) -> bool:
        """Write ``x = ...`` or ``del x``, of a global or a cell."""
        name = str(instruction.value)
        deletes = instruction.name.startswith("DELETE")
        write = (lambda: f"del {name}") if deletes else (lambda text: f"{name} = {text}")
        self.add_statement(write, operands, instruction.index, depth)
        self._effect(instruction.index, f"{'global' if instruction.name.endswith('GLOBAL') else 'cell'} {name}")
        return True

    def store_attribute(self, instruction: Instruction, operands: list[Written], depth: int) -> bool:
        """Write ``a.b = ...``: the class of ``a`` may run any code for it."""
        value, base = operands
        target = Written((*written_values.atom(base), f".{instruction.value}"), instruction.index)
        self.add_statement(lambda text, name: f"{name} = {text}", [value, target], instruction.index, depth)
        self._effects.append((instruction.index, EVERYTHING))
        return True

    def delete_attribute(self, instruction: Instruction, operands: list[Written], depth: int) -> bool:
        """Write ``del a.b``."""
        target = Written((*written_values.atom(operands[0]), f".{instruction.value}"), instruction.index)
        self.add_statement(lambda name: f"del {name}", [target], instruction.index, depth)
        self._effects.append((instruction.index, EVERYTHING))
        return True

    def store_item(self, instruction: Instruction, operands: list[Written], depth: int) -> bool:
        """Write ``a[i] = ...``, ``del a[i]``; execute it if ``a`` is a list that never leaves the stack."""
        deletes = instruction.name == "DELETE_SUBSCR"
        container = operands[0] if deletes else operands[1]
        key = operands[1] if deletes else operands[2]
        if instruction.name == "STORE_SLICE":
            key = Written(producer=instruction.index, form=Form.SLICE, items=operands[2:])
        if container.form is Form.LIST:
            self._changes(container)
            done = (
                written_values.delete_item(container, key)
                if deletes
                else written_values.set_item(container, key, operands[0])
            )
            if done:
                return True
            self.missing.add(container.producer)
        target = Written((*written_values.atom(container), "[", key, "]"), instruction.index)
        if deletes:
            self.add_statement(lambda name: f"del {name}", [target], instruction.index, depth)
        else:
            self.add_statement(lambda text, name: f"{name} = {text}", [operands[0], target], instruction.index, depth)
        self._effect(instruction.index, ITEMS, ATTRIBUTES)
        return True

    def add_to_container(self, instruction: Instruction, operands: list[Written], depth: int) -> bool:
        """Add one or several values to a list on the stack."""
        container, added = operands[0], operands[-1]
        is_one = instruction.name == "LIST_APPEND"
        if container.form is Form.LIST:
            self._changes(container)
            if added is self._pending:
                self.missing.add(added.producer)
            if is_one:
                container.items.append(added)
            else:
                written_values.extend(container, added)
            return True
        method = "append" if is_one else "extend"
        self.add_statement(lambda one, other: f"{one}.{method}({other})", [container, added], instruction.index, depth)
        self._effect(instruction.index, ITEMS)
        return True

    def _changes(self, container: Written) -> None:
        if container in self._written:
            self.missing.add(container.producer)

    def drop(self, instruction: Instruction, operands: list[Written], depth: int) -> bool:
        """Drop an unused value; if a call made it, write the call as a statement."""
        (value,) = operands
        statement = self._vocabulary.statement_of(value.constant)
        if value is self._pending:
            self.add_statement(str, operands, instruction.index, depth)
        elif statement is not None:
            self.add_statement(lambda: statement, (), instruction.index, depth)
        else:
            self.absorb(instruction.index)
        return True

    def end(self, instruction: Instruction, operands: list[Written], depth: int) -> bool:
        """Write ``return ...``."""
        if not operands:
            operands = [_constant(instruction.value, instruction.text, instruction.index)]
        self.add_statement(lambda text: f"return {text}", operands, instruction.index, depth)
        return True

    def throw(self, instruction: Instruction, operands: list[Written], depth: int) -> bool:
        """Write ``raise ...``."""
        self.add_statement(lambda *texts: f"raise {' from '.join(texts)}".rstrip(), operands, instruction.index, depth)
        return True


def _no_statement(run: Machine, instruction: Instruction, operands: list[Written], depth: int) -> bool:
    del run, instruction, operands, depth
    return False


_STATEMENTS: dict[str, Callable[[Machine, Instruction, list[Written], int], bool]] = {
    "STORE_FAST": Machine.store_local,
    "DELETE_FAST": Machine.delete_local,
    **dict.fromkeys(("STORE_GLOBAL", "STORE_DEREF", "DELETE_GLOBAL", "DELETE_DEREF"), Machine.store_name),
    "STORE_ATTR": Machine.store_attribute,
    "DELETE_ATTR": Machine.delete_attribute,
    **dict.fromkeys(("STORE_SUBSCR", "DELETE_SUBSCR", "STORE_SLICE"), Machine.store_item),
    **dict.fromkeys(("LIST_EXTEND", "LIST_APPEND"), Machine.add_to_container),
    "POP_TOP": Machine.drop,
    **dict.fromkeys(("RETURN_VALUE", "RETURN_CONST"), Machine.end),
    "RAISE_VARARGS": Machine.throw,
}


def _loaded(instruction: Instruction) -> Written | None:
    """Return the value that an instruction loads, if not a global; None for other instructions."""
    name, index, what = instruction.name, instruction.index, str(instruction.value)
    if name == "PUSH_NULL":
        return NULL
    if name in LOADS_OF_CONSTANTS:
        return _constant(instruction.value, instruction.text, index)
    if name in _LOADS_OF_LOCALS:
        return plain(what, index, reads=frozenset({local(what)}))
    if name == "LOAD_DEREF":
        return plain(what, index, reads=frozenset({CELLS, f"cell {what}"}))
    return plain(f"<cell {what}>", index) if name == "LOAD_CLOSURE" else None


def _constant(value: object, text: str, producer: int) -> Written:
    if type(value) is slice:
        items = [_constant(one, repr(one), producer) for one in (value.start, value.stop, value.step)]
        return Written(producer=producer, form=Form.SLICE, items=items if value.step is not None else items[:2])
    return Written((text,), producer, is_atom=not text.startswith("-"), is_fixed=True, constant=value)
