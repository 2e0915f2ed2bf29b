"""Makes the scopes of a generated frame. Runs on the held thread; children are computed when opened."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from dynamo_dap.debuggee.generated import evaluation
from dynamo_dap.debuggee.generated.frame_values import BARE_NUMBER, FrameValues
from dynamo_dap.debuggee.generated.known_code import GeneratedCode, made_once
from dynamo_dap.debuggee.torch_api.cache.cache_entries import checks_of
from dynamo_dap.debuggee.torch_api.code_objects.dynamo_names import GROUP, dynamos_locals, split_by_owner
from dynamo_dap.debuggee.torch_api.code_objects.generated_code import cache_entry_of, is_null
from dynamo_dap.debuggee.torch_api.compiles.compile_records import (
    count_of_operations,
    outputs_of,
    placeholders_of,
)
from dynamo_dap.debuggee.values.graph_texts import graph_text, names_of_inputs
from dynamo_dap.debuggee.values.model import (
    Children,
    Deferred,
    Location,
    ScopeOfFrame,
    Value,
    Variable,
    VirtualSource,
    WriteRefused,
    bounded_text,
)
from dynamo_dap.debuggee.values.python_values import globals_of, present


def scopes_of(
    generated: GeneratedCode, values: FrameValues, returned: tuple[str, object] | None, *, folds_temporaries: bool
) -> list[ScopeOfFrame]:
    """Return the scopes; ``returned`` is the name and result of the frame that a step has just left.

    ``folds_temporaries`` puts Dynamo's own variables into a group: a reader of the user's lines does not know them.
    """
    scopes = [
        ScopeOfFrame("Locals", _Locals(values, returned, folds_temporaries), "locals"),
        ScopeOfFrame("Value Stack", _Stack(values), "registers"),
    ]
    if not folds_temporaries:
        scopes += [scope(generated, values.index) for scope in generated.codes.more_scopes]
    if values.cell_names:
        scopes.append(ScopeOfFrame("Cells", _Cells(values)))
    scopes += [
        ScopeOfFrame("Globals", globals_of(values.frame), "globals", expensive=True),
        ScopeOfFrame("Compiled Graph", _graph(generated), expensive=True, source=graph_source(generated)),
        ScopeOfFrame("Guards", Deferred(lambda: _guards(generated)), expensive=True),
    ]
    return scopes


class _Named(Children):
    """Variables of the frame that can be assigned to."""

    def __init__(self, values: FrameValues) -> None:
        self._values = values

    def can_write(self, name: str) -> bool:
        return True

    @property
    def named_count(self) -> int:
        return self._count(self._values.locals())

    def named(self) -> Sequence[Variable]:
        return list(self._variables())

    def _count(self, held: Mapping[str, object]) -> int:
        """Return the number of shown variables of the frame, without formatting a value."""
        raise NotImplementedError

    def _variables(self) -> Iterable[Variable]:
        raise NotImplementedError

    def _present(self, names: Iterable[str], missing: Callable[[str], Variable | None]) -> Iterable[Variable]:
        held = self._values.locals()
        for name in names:
            if name in held:
                path = name if name.isidentifier() else None
                yield Variable(name, present(held[name], path), path)
            elif (shown := missing(name)) is not None:
                yield shown

    def write(self, name: str, expression: str) -> Value:
        return evaluation.assign_local(self._values, name, expression)


class _Locals(_Named):
    def __init__(self, values: FrameValues, returned: tuple[str, object] | None, folds_temporaries: bool) -> None:
        super().__init__(values)
        self._returned = returned
        self._folds_temporaries = folds_temporaries

    def _count(self, held: Mapping[str, object]) -> int:
        names = [name for name in self._values.names if name in held]
        count = len(names) + (self._returned is not None)
        if not self._folds_temporaries:
            return count
        _, dynamos = split_by_owner(names, self._is_dynamos())
        return count - len(dynamos) + bool(dynamos)

    def _is_dynamos(self) -> Callable[[str], bool]:
        return dynamos_locals(self._values.generated.code, self._values.generated.original)

    def _variables(self) -> Iterable[Variable]:
        if self._returned is not None:
            name, value = self._returned
            yield Variable(f"(returned by {name})", replace(present(value), attributes=("readOnly",)))
        shown = list(self._present(self._values.names, lambda name: None))
        is_dynamos = self._is_dynamos()
        users, dynamos = split_by_owner(shown, lambda variable: is_dynamos(variable.name))
        yield from users
        if not self._folds_temporaries:
            yield from dynamos
        elif dynamos:
            children = _Some(self._values, [variable.name for variable in dynamos])
            text = f"{len(dynamos)} variables"
            yield Variable(GROUP, Value(text, children=children, kind="virtual", attributes=("readOnly",)))


class _Some(_Named):
    def __init__(self, values: FrameValues, names: Sequence[str]) -> None:
        super().__init__(values)
        self._names = names

    def _count(self, held: Mapping[str, object]) -> int:
        return sum(name in held for name in self._names)

    def _variables(self) -> Iterable[Variable]:
        yield from self._present(self._names, lambda name: None)


class _Cells(_Named):
    def _count(self, held: Mapping[str, object]) -> int:
        return len(self._values.cell_names)

    def _variables(self) -> Iterable[Variable]:
        empty = Value("(empty cell)", kind="virtual")
        yield from self._present(self._values.cell_names, lambda name: Variable(name, empty))


class _Stack(Children):
    """Slots of the value stack, bottom to top, empty ones included."""

    def __init__(self, values: FrameValues) -> None:
        self._values = values

    def can_write(self, name: str) -> bool:
        return True

    @property
    def named_count(self) -> int:
        if self._values.stack_problem is not None:
            return 1
        return max(len(self._values.stack()) + (self._values.operands_in_use > 0), 1)

    def named(self) -> Sequence[Variable]:
        problem = self._values.stack_problem
        if problem is not None:
            return [_note("(not available)", problem)]
        stack = self._values.stack()
        top = len(stack) - 1
        shown = [
            Variable(_slot_name(number, top), _slot(value, number), _path(number)) for number, value in enumerate(stack)
        ]
        in_use = self._values.operands_in_use
        if in_use:
            instruction = self._values.generated.table[self._values.index]
            shown.append(_note("(in use)", f"{in_use} more are being used by {instruction.name}"))
        return shown or [_note("(empty)", "")]

    def write(self, name: str, expression: str) -> Value:
        digits = name.removesuffix(" (top)")
        if not digits.isdigit():
            raise WriteRefused(f"'{name}' is not a slot of the value stack")
        return evaluation.assign_slot(self._values, int(digits), expression)


def _slot_name(number: int, top: int) -> str:
    return f"{number} (top)" if number == top else str(number)


def _path(number: int) -> str:
    return f"{evaluation.STACK_NAME}[{number}]"


def _slot(value: object, number: int) -> Value:
    if is_null(value):
        return Value("NULL", type_name="NULL", kind="virtual", attributes=("readOnly",))
    if value is BARE_NUMBER:
        return Value(repr(value), kind="virtual", attributes=("readOnly",))
    return present(value, _path(number))


def _note(name: str, text: str) -> Variable:
    return Variable(name, Value(text, kind="virtual", attributes=("readOnly",)))


# -- the compile that made the code --------------------------------------------------------------------------------


def _graph(generated: GeneratedCode) -> Children:
    return Deferred(lambda: _graph_variables(generated))


def _graph_variables(generated: GeneratedCode) -> list[Variable]:
    compile_id = generated.compile_id
    compile_text = (
        "unknown: its entry no longer exists" if compile_id is None else f"[{compile_id}] of {generated.function}"
    )
    place = Location(generated.path, generated.first_line)
    variables = [Variable("compiled by", Value(compile_text, kind="virtual", attributes=("readOnly",), location=place))]
    record = generated.record
    if record is None:
        return [*variables, _note("graph", "not recorded: the code was compiled before the debugger attached")]
    graph = record.graph
    inputs, outputs = placeholders_of(graph), outputs_of(graph)
    names = {str(node.target): name for node, name in names_of_inputs(graph).items()}
    return [
        *variables,
        Variable("operations", Value(str(count_of_operations(graph)))),
        _group("inputs", [(names.get(name, name), source, value) for name, source, value in inputs]),
        _group("outputs", [(name, None, value) for name, value in outputs]),
        Variable("code", _lines(graph_text(graph, generated.function))),
    ]


def _group(name: str, members: list[tuple[str, str | None, object]]) -> Variable:
    children = Deferred(lambda: [_member(*member) for member in members], count=len(members))
    return Variable(name, Value(f"{len(members)} {name}", children=children if members else None, kind="virtual"))


def _member(name: str, source: str | None, value: object) -> Variable:
    shown = present(value) if value is not None else Value("")
    text = f"{shown.text} from {source}" if source else shown.text
    return Variable(name, Value(bounded_text(text), shown.type_name, shown.children, kind="data"))


def _lines(text: str) -> Value:
    lines = text.splitlines()
    children = Deferred(lambda: [Variable(str(number), Value(line)) for number, line in enumerate(lines, start=1)])
    return Value(f"{len(lines)} lines", children=children, kind="virtual")


def graph_source(generated: GeneratedCode) -> VirtualSource | None:
    """Return the code of the compiled graph as a document; None if it was not recorded."""
    if generated.record is None:
        return None

    def text() -> str:
        # The document outlives the code, and does not keep its graph.
        record = generated.record
        assert record is not None, "it was there when the document was made"
        return graph_text(record.graph, generated.function)

    return VirtualSource(
        name=f"graph of {generated.name}.py",
        text=made_once(text),
        key=("graph of generated code", generated.number),
    )


def _guards(generated: GeneratedCode) -> list[Variable]:
    entry = cache_entry_of(generated.code)
    if entry is None:
        return [_note("(gone)", "the cache entry of this code no longer exists")]
    return [
        Variable(str(number), Value(bounded_text(check.expression))) for number, check in enumerate(checks_of(entry))
    ]
