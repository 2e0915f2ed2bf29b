"""Generated code as Python statements: which statement each run of neighbouring instructions is.

The value stack is executed symbolically. What is computed is kept as a tree until an instruction has an effect: that
one ends a statement, in which the trees it uses are written out. A value is written out later than it was computed, so
it gets a name, and a statement of its own, wherever that could change it: something was stored or called in between
that it depends on, or it would be computed twice. Lists that never leave the stack, in which Dynamo packs frames, are
executed rather than written.

What cannot be said this way (loops, exception handlers, instructions not known here) is left as instructions, and so
is all that depends on it. Pure; any thread.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace

from dynamo_dap.debuggee.code_analysis import written_values
from dynamo_dap.debuggee.code_analysis.control_flow import ControlFlow, is_block_setup
from dynamo_dap.debuggee.code_analysis.data_flow import DataFlow, Expression, is_move, is_subscript
from dynamo_dap.debuggee.code_analysis.instructions import Instruction
from dynamo_dap.debuggee.code_analysis.stack_depth import StackDepths
from dynamo_dap.debuggee.code_analysis.written_values import (
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
class Said:
    """Neighbouring instructions: a statement, or what is left as it is."""

    first: int
    last: int
    """Indices of the first and the last instruction; each instruction is in exactly one."""
    text: str | None
    """The statement, without a newline; None for instructions that no statement says."""
    depth: int = 0
    """How deep it is indented."""


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """What is known of the names in the code."""

    shown: Callable[[str], str]
    """How a global name is written."""
    is_fixed: Callable[[str], bool]
    """Whether a global of this name never changes, nor what can be read off it."""
    is_temporary: Callable[[str], bool]
    """Whether a local of this name is none of the user's, so that nothing is lost where it is set and never read."""
    is_private: Callable[[str], bool]
    """Whether nobody else can reach what a local of this name holds: it changes only where the code changes it."""
    effects_of: Callable[[str], frozenset[str] | None]
    """What calling what is written so changes; None when nothing is known of it."""
    statement_of: Callable[[object], str | None]
    """The statement for which a constant stands that is loaded and dropped."""
    used: Collection[str]
    """Names that are taken."""


def decompiled(depths: StackDepths, flow: DataFlow, vocabulary: Vocabulary) -> tuple[list[Said], dict[int, str]]:
    """Return the whole code as statements, in the order of the instructions, and the names that these give to values.

    A name is that of what the instruction with this index leaves on the stack.
    """
    names: dict[int, str] = {}
    while True:
        run = _Run(depths, flow, vocabulary, names)
        said = run.all()
        missing = sorted(run.missing - names.keys())
        if not missing:
            return said, names
        names = _named({*names, *missing}, flow, vocabulary.used, depths)


def _named(indices: set[int], flow: DataFlow, used: Collection[str], depths: StackDepths) -> dict[int, str]:
    """Return a name for each result, in the order in which they come."""
    names: dict[int, str] = {}
    numbered = (
        name for number in range(1, len(depths.table) + len(used) + 2) if (name := f"value_{number}") not in used
    )
    for index in sorted(indices):
        consumers = [one for result in flow.results(index)[:1] for one in result.consumers]
        is_returned = bool(consumers) and all(depths.table[one].is_return for one in consumers)
        is_free = "result" not in used and "result" not in names.values()
        names[index] = "result" if is_returned and is_free else next(numbered)
    return names


_SILENT = frozenset(
    {"NOP", "RESUME", "MAKE_CELL", "COPY_FREE_VARS", "GEN_START", "NOT_TAKEN", "POP_BLOCK", "END_FOR", "POP_ITER"}
)
_LOADS_OF_LOCALS = frozenset({"LOAD_FAST", "LOAD_FAST_CHECK", "LOAD_FAST_BORROW"})
_METHODS = frozenset({"__enter__", "__exit__"}).union(
    name for kind in (dict, list, set) for name in vars(kind) if not name.startswith("_")
)
"""Methods that are the same however late they are looked up: of containers that Dynamo refills, and of contexts."""
_BRANCHES = {
    "JUMP_IF_FALSE": "if {}:",
    "JUMP_IF_TRUE": "if not {}:",
    "JUMP_IF_NONE": "if {} is not None:",
    "JUMP_IF_NOT_NONE": "if {} is None:",
}
"""What runs when the jump is not taken."""


class _Run:
    """One pass over the code with the names given so far; it finds what else needs one."""

    def __init__(self, depths: StackDepths, flow: DataFlow, vocabulary: Vocabulary, names: dict[int, str]) -> None:
        self.missing: set[int] = set()
        """Indices of instructions whose result needs a name."""
        self._depths = depths
        self._table = depths.table
        self._flow = flow
        self._vocabulary = vocabulary
        self._names = names
        self._loaded = {str(one.value) for one in self._table if one.name in _LOADS_OF_LOCALS}
        self._control = ControlFlow(depths)
        self._said: list[Said] = []
        self._begin = 0
        self._can_absorb = False
        self._values: dict[int, Written] = {}
        self._containers: list[Written] = []
        self._effects: list[tuple[int, frozenset[str]]] = []
        self._written: set[Written] = set()
        self._pending: Written | None = None
        """A call that was made and is not written out yet."""

    # -- where control goes ----------------------------------------------------------------------------------------

    def all(self) -> list[Said]:
        """Execute everything."""
        self._region(0, len(self._table), 0)
        return self._said

    def _region(self, start: int, stop: int, depth: int) -> None:
        """Execute the instructions from ``start`` up to ``stop``, and leave those behind what is not understood."""
        index: int | None = start
        while index is not None and index < stop:
            index = self._follow(self._table[index], start, stop, depth)
        if self._begin < stop:
            self._leave(stop - 1, depth)

    def _follow(self, instruction: Instruction, start: int, stop: int, depth: int) -> int | None:
        """Execute one instruction; return the index of the next, None when it is not known how to go on."""
        index = instruction.index
        is_loop = instruction.name == "FOR_ITER"
        if index != start and self._control.is_entered(index) and not is_loop:
            return None
        if instruction.target is None or is_block_setup(instruction):
            self._execute(instruction, depth)
            return index + 1 if instruction.falls_through else None
        target = self._control.index_at(instruction.target)
        if not index < target <= stop or not self._control.is_only_entered_from(target, index):
            return None
        if not instruction.falls_through:
            return self._jump(index, target, depth)
        return self._loop(index, target, depth) if is_loop else self._branch(instruction, target, depth)

    def _jump(self, index: int, target: int, depth: int) -> int | None:
        """Pass over what only exceptions lead to."""
        if not self._control.is_for_exceptions(range(index + 1, target)):
            return None
        self._control.understood(target)
        self._absorb(index)
        if index + 1 < target:
            self._leave(target - 1, depth, has_run=False)
        return target

    def _branch(self, instruction: Instruction, target: int, depth: int) -> int | None:
        """Execute what runs when a jump is not taken, if nothing else leads into it and its end is known."""
        index = instruction.index
        name = instruction.name.replace("JUMP_FORWARD_IF", "JUMP_IF")
        write = _BRANCHES.get(name.removeprefix("POP_"))
        inside = range(index + 1, target)
        if write is None or not inside or not self._control.is_closed(inside):
            return None
        falls_out = self._table[target - 1].falls_through
        if falls_out and not _same(self._flow.stack_before(target), self._flow.stack_before(index)[:-1]):
            return None
        self._say(write.format, [self._value(self._flow.operands(index)[0])], index, depth)
        effects, written = list(self._effects), set(self._written)
        self._inner(index + 1, target, depth, is_left=not falls_out)
        if not falls_out:
            self._effects, self._written = effects, written
        self._control.understood(target)
        return target

    def _loop(self, index: int, target: int, depth: int) -> int | None:
        """Execute a loop over an iterator that ends with it, and into which nothing else leads."""
        back = target - 1
        names = _loop_variables(self._table.instructions[index + 1 : back])
        first = index + 1 + len(names) + (len(names) > 1)
        iterator = self._value(self._flow.operands(index)[0])
        if not names or iterator.form is not Form.ITERATOR or not self._control.is_closed(range(index + 1, back)):
            return None
        if self._table[back].falls_through or not self._control.is_only_entered_from(index, back):
            return None
        self._say(f"for {', '.join(names)} in {{}}:".format, iterator.items, first - 1, depth)
        # What was computed before is written out in each round.
        self._anything_happened(first - 1)
        self._inner(first, back, depth, is_left=False)
        if not self._absorb(back):
            self._leave(back, depth + 1)
        self._can_absorb = False
        self._control.understood(index, target)
        return target

    def _inner(self, start: int, stop: int, depth: int, *, is_left: bool) -> None:
        """Execute what is indented; ``is_left`` when nothing comes after it on its way."""
        self._can_absorb = False
        contents = [(one, list(one.items)) for one in self._containers]
        self._region(start, stop, depth + 1)
        self._settle()
        for container, items in contents:
            if not is_left and container.items != items:
                # What is in it depends on the way that was taken.
                self.missing.add(container.producer)
            container.items = items
        self._can_absorb = self._can_absorb and not is_left and start < stop

    def _anything_happened(self, index: int) -> None:
        stored = {local(str(one.value)) for one in self._table if one.name in ("STORE_FAST", "DELETE_FAST")}
        self._effects.append((index, EVERYTHING | stored))

    # -- what is said ----------------------------------------------------------------------------------------------

    def _say(self, write: Callable[..., str], values: Sequence[Written], index: int, depth: int) -> bool:
        """Say the statement that ``write`` makes of the texts of ``values``; return whether it can be said."""
        self._settle(*values)
        self._use(values, index)
        texts = [value.text() for value in values]
        text = None if None in texts else write(*texts)
        self._said.append(Said(self._begin, index, text, depth))
        self._begin = index + 1
        self._can_absorb = True
        return text is not None

    def _leave(self, last: int, depth: int, *, has_run: bool = True) -> None:
        """Leave what is up to ``last`` as instructions; nothing is known of what it does, if it runs."""
        self._settle()
        if has_run:
            self._anything_happened(last)
        self._said.append(Said(self._begin, last, None, depth))
        self._begin = last + 1
        self._can_absorb = False

    def _absorb(self, index: int) -> bool:
        """Have an instruction that says nothing belong to the statement right before it; return whether it does."""
        if self._begin != index or not self._can_absorb:
            return False
        self._said[-1] = replace(self._said[-1], last=index)
        self._begin = index + 1
        return True

    # -- values ----------------------------------------------------------------------------------------------------

    def _value(self, expression: Expression) -> Written:
        return self._values.get(id(expression), UNKNOWN)

    def _settle(self, *used: Written) -> None:
        """Something happens: a call must have been written out by then, unless it is what happens."""
        if self._pending is not None and self._pending not in used:
            self.missing.add(self._pending.producer)
        self._pending = None

    def _use(self, values: Sequence[Written], now: int) -> None:
        """Values are written out now: name those that would be others by now, or would be made again."""
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
        if value.producer < changed and value.form is not Form.LIST:
            self.missing.add(value.producer)
            return
        for one in value.below():
            self._name_what_changed(one, now)

    def _first_change(self, value: Written, now: int) -> int | None:
        """When something first changed that ``value`` is made of, since that was computed."""
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

    def _execute(self, instruction: Instruction, depth: int) -> None:
        index = instruction.index
        if is_move(instruction):
            return
        if instruction.name in _SILENT or is_block_setup(instruction):
            self._absorb(index)
            return
        operands = [self._value(one) for one in self._flow.operands(index)]
        results = [one for one in self._flow.results(index) if one.producer == index]
        if _STATEMENTS.get(instruction.name, _no_statement)(self, instruction, operands, depth):
            self._keep(index, results, [UNKNOWN] * len(results), depth)
            return
        made = self._made(instruction, operands, len(results))
        if made is None:
            # Not known here, or with values that nothing is known of.
            self._say(str, [UNKNOWN], index, depth)
            self._effects.append((index, EVERYTHING))
            made = [UNKNOWN] * len(results)
        self._keep(index, results, made, depth)

    def _keep(self, index: int, results: Sequence[Expression], made: Sequence[Written], depth: int) -> None:
        name = self._names.get(index)
        for expression, value in zip(results, made, strict=False):
            kept = value
            if name is not None and value.form is not Form.NULL and value.producer == index:
                said = self._say(f"{name} = {{}}".format, [value], index, depth)
                kept = plain(name, index) if said else UNKNOWN
                name = None
            self._values[id(expression)] = kept
            if kept.form is Form.LIST:
                self._containers.append(kept)

    def _made(self, instruction: Instruction, operands: list[Written], count: int) -> list[Written] | None:
        """Return the values that an instruction without an effect of its own leaves; None when nothing is known."""
        loaded = _loaded(instruction)
        if loaded is not None:
            return [loaded]
        if instruction.name == "LOAD_GLOBAL":
            return self._global(instruction, count)
        if self._flow.call_at(instruction.index) is not None:
            return [self._call(instruction, operands)]
        if any(one.form is Form.UNKNOWN for one in operands):
            return None
        return self._computed(instruction, operands, count)

    def _computed(self, instruction: Instruction, operands: list[Written], count: int) -> list[Written] | None:
        name, index = instruction.name, instruction.index
        if self._pending is not None and self._pending in operands:
            self.missing.add(self._pending.producer)
        if name in ("LOAD_ATTR", "LOAD_METHOD", "IMPORT_FROM"):
            is_fixed = count == 2 and str(instruction.value) in _METHODS
            return [
                written_values.attribute(operands[0], str(instruction.value), index, is_fixed=is_fixed),
                operands[0],
            ]
        if is_subscript(instruction):
            is_fixed = self._vocabulary.is_private(operands[0].text() or "")
            found = written_values.subscript(operands[0], operands[1], index, is_fixed=is_fixed)
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
        return [value] if count == 1 else [NULL if one.role == "null" else value for one in results]

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
        callee, arguments = self._value(found.callee), [self._value(one) for one in found.arguments]
        self._settle(callee)
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

    # -- statements: return whether that is what the instruction is --------------------------------------------------

    def store_local(self, instruction: Instruction, operands: list[Written], depth: int) -> bool:
        """``x = ...``; nothing for one of Dynamo's that is never read."""
        name = str(instruction.value)
        if operands[0] is not self._pending and name not in self._loaded and self._vocabulary.is_temporary(name):
            self._absorb(instruction.index)
            return True
        self._say(lambda text: f"{name} = {text}", operands, instruction.index, depth)
        self._effect(instruction.index, local(name))
        return True

    def delete_local(self, instruction: Instruction, operands: list[Written], depth: int) -> bool:
        """``del x``."""
        del operands
        name = str(instruction.value)
        if name not in self._loaded and self._vocabulary.is_temporary(name):
            self._absorb(instruction.index)
            return True
        self._say(lambda: f"del {name}", (), instruction.index, depth)
        self._effect(instruction.index, local(name))
        return True

    def store_name(self, instruction: Instruction, operands: list[Written], depth: int) -> bool:
        """``x = ...`` or ``del x``, of a global or a cell."""
        name = str(instruction.value)
        deletes = instruction.name.startswith("DELETE")
        write = (lambda: f"del {name}") if deletes else (lambda text: f"{name} = {text}")
        self._say(write, operands, instruction.index, depth)
        self._effect(instruction.index, f"{'global' if instruction.name.endswith('GLOBAL') else 'cell'} {name}")
        return True

    def store_attribute(self, instruction: Instruction, operands: list[Written], depth: int) -> bool:
        """``a.b = ...``: the class of ``a`` may run any code for it."""
        value, base = operands
        target = Written((*written_values.atom(base), f".{instruction.value}"), instruction.index)
        self._say(lambda text, name: f"{name} = {text}", [value, target], instruction.index, depth)
        self._effects.append((instruction.index, EVERYTHING))
        return True

    def delete_attribute(self, instruction: Instruction, operands: list[Written], depth: int) -> bool:
        """``del a.b``."""
        target = Written((*written_values.atom(operands[0]), f".{instruction.value}"), instruction.index)
        self._say(lambda name: f"del {name}", [target], instruction.index, depth)
        self._effects.append((instruction.index, EVERYTHING))
        return True

    def store_item(self, instruction: Instruction, operands: list[Written], depth: int) -> bool:
        """``a[i] = ...``, ``del a[i]``; done at once where ``a`` is a list that only the stack knows."""
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
            self._say(lambda name: f"del {name}", [target], instruction.index, depth)
        else:
            self._say(lambda text, name: f"{name} = {text}", [operands[0], target], instruction.index, depth)
        self._effect(instruction.index, ITEMS, ATTRIBUTES)
        return True

    def add_to_container(self, instruction: Instruction, operands: list[Written], depth: int) -> bool:
        """A list on the stack grows."""
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
        self._say(lambda one, other: f"{one}.{method}({other})", [container, added], instruction.index, depth)
        self._effect(instruction.index, ITEMS)
        return True

    def _changes(self, container: Written) -> None:
        if container in self._written:
            self.missing.add(container.producer)

    def drop(self, instruction: Instruction, operands: list[Written], depth: int) -> bool:
        """A value that nobody uses: the statement is the call that made it, if it was one."""
        (value,) = operands
        statement = self._vocabulary.statement_of(value.constant)
        if value is self._pending:
            self._say(str, operands, instruction.index, depth)
        elif statement is not None:
            self._say(lambda: statement, (), instruction.index, depth)
        else:
            self._absorb(instruction.index)
        return True

    def end(self, instruction: Instruction, operands: list[Written], depth: int) -> bool:
        """``return ...``."""
        if not operands:
            operands = [_constant(instruction.value, instruction.text, instruction.index)]
        self._say(lambda text: f"return {text}", operands, instruction.index, depth)
        return True

    def throw(self, instruction: Instruction, operands: list[Written], depth: int) -> bool:
        """``raise ...``."""
        self._say(lambda *texts: f"raise {' from '.join(texts)}".rstrip(), operands, instruction.index, depth)
        return True


def _loop_variables(body: Sequence[Instruction]) -> list[str]:
    """Return the names that a loop sets to each item, or to its parts; none where that is done otherwise."""
    count = body[0].argument or 0 if body and body[0].name == "UNPACK_SEQUENCE" else None
    stores = body[:1] if count is None else body[1 : 1 + count]
    is_plain = len(stores) == (count or 1) and all(one.name == "STORE_FAST" for one in stores) and count not in (0, 1)
    return [str(one.value) for one in stores] if is_plain else []


def _no_statement(run: _Run, instruction: Instruction, operands: list[Written], depth: int) -> bool:
    del run, instruction, operands, depth
    return False


_STATEMENTS: dict[str, Callable[[_Run, Instruction, list[Written], int], bool]] = {
    "STORE_FAST": _Run.store_local,
    "DELETE_FAST": _Run.delete_local,
    **dict.fromkeys(("STORE_GLOBAL", "STORE_DEREF", "DELETE_GLOBAL", "DELETE_DEREF"), _Run.store_name),
    "STORE_ATTR": _Run.store_attribute,
    "DELETE_ATTR": _Run.delete_attribute,
    **dict.fromkeys(("STORE_SUBSCR", "DELETE_SUBSCR", "STORE_SLICE"), _Run.store_item),
    **dict.fromkeys(("LIST_EXTEND", "LIST_APPEND"), _Run.add_to_container),
    "POP_TOP": _Run.drop,
    **dict.fromkeys(("RETURN_VALUE", "RETURN_CONST"), _Run.end),
    "RAISE_VARARGS": _Run.throw,
}


def _loaded(instruction: Instruction) -> Written | None:
    """Return what an instruction loads that is not a global; None for one that loads nothing of the kind."""
    name, index, what = instruction.name, instruction.index, str(instruction.value)
    if name == "PUSH_NULL":
        return NULL
    if name in ("LOAD_CONST", "LOAD_SMALL_INT"):
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


def _same(one: Sequence[Expression], other: Sequence[Expression]) -> bool:
    return len(one) == len(other) and all(left is right for left, right in zip(one, other, strict=True))
