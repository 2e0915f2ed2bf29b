"""Finds calls that hit a cache entry that is not valid for them: a guard is missing, or was filtered out.

While a feature uses ``compile_records.NOTED_PATHS``, each compile stores a ``TracedPath``: the operations of its graph,
before a backend changes them, and the constants that the trace took from the program. A replay of a later call is
compared with that path. Noted on the compiling thread, compared on the thread of the call; a path lives as long as its
function.
"""

from __future__ import annotations

import types
import weakref
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dynamo_dap.debuggee.bytecode.exact_types import is_exactly
from dynamo_dap.debuggee.torch_api.code_objects.generated_code import cache_entry_of, original_of
from dynamo_dap.debuggee.torch_api.graphs.graph import places_in, target_name
from dynamo_dap.debuggee.torch_api.graphs.graph_runs import has_own_memory
from dynamo_dap.debuggee.torch_api.graphs.tensor_facts import is_tensor
from dynamo_dap.debuggee.torch_api.isolation import data_reading
from dynamo_dap.debuggee.torch_api.objects import Graph, Node, Output
from dynamo_dap.debuggee.torch_api.traced.fake_evaluation import flattened
from dynamo_dap.debuggee.torch_api.traced.replays import CachedCall, CompleteTrace, replayed_call
from dynamo_dap.debuggee.torch_api.traced.sources import functions_of_sources, user_expression
from dynamo_dap.debuggee.torch_api.traced.symbols import hint_of, is_symbolic
from dynamo_dap.debuggee.torch_api.traced.variable_trackers import Place, source_name

_PLAIN = (bool, int, float, complex, str, bytes, type(None))
_CONSTANT_GUARDS = frozenset({"CONSTANT_MATCH", "EQUALS_MATCH", "BOOL_MATCH", "NONE_MATCH"})
_ANY = "any number"
"""Replaces a number that varies from call to call."""


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation on tensors, in a form that is equal in two traces of the same code."""

    target: str
    operands: tuple[object, ...]
    stack: str = field(compare=False)
    """The user's frames as torch notes them."""

    @property
    def place(self) -> Place | None:
        """The user's line; None if torch did not note it."""
        places = [place for place, _ in places_in(self.stack)]
        return places[-1] if places else None


@dataclass(frozen=True, slots=True)
class Constant:
    """A plain value of the program that a trace used as a constant."""

    expression: str
    """As the user writes it."""
    source: types.CodeType
    value: object


@dataclass(frozen=True, slots=True)
class TracedPath:
    """The assumptions of one compile."""

    operations: Sequence[Operation]
    constants: Sequence[Constant]
    attributes: Mapping[str, weakref.ref[object]] = field(default_factory=dict)
    """The graph's own tensors, by name: Dynamo took them as constants."""


@dataclass(frozen=True, slots=True)
class NotValid:
    """Why a compile is not valid for a call that uses it."""

    changed: tuple[tuple[str, object, object], ...]
    """Constants: expression, value at the compile, value in the call."""
    position: int | None
    """The replay's first operation that differs from the compile's; None if none has differed yet."""
    compiled: Operation | None
    """The compile's operation there; None after its end."""
    replayed: Operation | None
    """The replay's operation there; None after its end."""
    unproven: frozenset[object] = frozenset()
    """The replay's nodes from that operation on, whose values the program does not compute."""
    has_stale_tensor: bool = False
    """Whether the two operations differ in a constant tensor of the graph."""
    operations: Sequence[Operation] = ()
    """All operations of the compile."""

    @property
    def text(self) -> str:
        """The reason as the end of a sentence."""
        return f"this call hit a cache entry that is not valid for it: {self.difference}. No guard checks this"

    @property
    def difference(self) -> str:
        """What differs between the compile and this call."""
        parts = [f"{name} was {before!r} when it was compiled and is {now!r} now" for name, before, now in self.changed]
        if not parts and self.has_stale_tensor:
            parts.append(f"{operation_text(self.replayed)} uses a constant tensor that the program has since replaced")
        elif not parts:
            parts.append(
                f"the compile ran {operation_text(self.compiled)}, this call reaches {operation_text(self.replayed)}"
            )
        return "; ".join(parts)


def operation_text(operation: Operation | None) -> str:
    """Return an operation with its constants and its line: ``mul with 3 (line 12)``."""
    if operation is None:
        return "no further operation"
    constants = [repr(each) for each in operation.operands if is_exactly(each, _PLAIN) and each is not None]
    text = f"{operation.target} with {', '.join(constants)}" if constants else operation.target
    return f"{text} (line {operation.place.line})" if operation.place is not None else text


class TracedPaths:
    """The noted paths of compiles. One for the process."""

    def __init__(self) -> None:
        """Begin without notes."""
        self._paths: dict[int, dict[str, TracedPath]] = {}
        self._references: dict[int, weakref.ref[types.CodeType]] = {}

    def note(
        self, code: types.CodeType, compile_id: str, given: Mapping[str, object], output: Output, graph: Graph
    ) -> None:
        """Note a compile of ``code``, whose ``graph`` the backend gets next; ``given`` has the locals of the call."""
        key = id(code)
        if key not in self._references:
            self._references[key] = weakref.ref(code, lambda _: self._forget(key))
        attributes = {name: weakref.ref(each) for name, each in _tensors_of(graph).items()}
        path = TracedPath(tuple(operations_of(graph)), tuple(_constants(given, output)), attributes)
        self._paths.setdefault(key, {})[compile_id] = path

    def _forget(self, key: int) -> None:
        self._references.pop(key, None)
        self._paths.pop(key, None)

    def of(self, code: types.CodeType) -> TracedPath | None:
        """Return the path of the compile that made ``code``; None if it was not noted. Runs on any thread."""
        original, entry = original_of(code), cache_entry_of(code)
        if original is None or entry is None:
            return None
        return self._paths.get(id(original), {}).get(str(entry.compile_id))

    def why_not_valid(self, call: CachedCall, graph: Any = None, *, is_complete: bool = False) -> NotValid | None:
        """Return why the cache entry that ``call`` hit is not valid for the call; None without evidence.

        ``graph`` (``torch.fx.Graph``) is from a finished or a running replay of the call. None proves nothing: a
        compile that was not noted is not compared.
        """
        frame = call.frame
        path = self.of(frame.f_code) if isinstance(frame, types.FrameType) else None
        if path is None or call.changes or call.is_compiled_now:
            return None
        changed = tuple(_changed(path.constants, call))
        replayed = [] if graph is None else list(_with_nodes(graph))
        position = _first_difference(path.operations, [each for _, each in replayed])
        if position is None and is_complete and len(replayed) < len(path.operations):
            position = len(replayed)
        stale = None
        if position is None and graph is not None:
            stale = position = _first_stale(path.attributes, graph, [node for node, _ in replayed])
        if position is None:
            return NotValid(changed, None, None, None, operations=path.operations) if changed else None
        compiled = path.operations[position] if position < len(path.operations) else None
        node, operation = replayed[position] if position < len(replayed) else (None, None)
        nodes = [] if graph is None else list(graph.nodes)
        unproven = frozenset(nodes[nodes.index(node) :] if node is not None else ())
        return NotValid(changed, position, compiled, operation, unproven, stale is not None, path.operations)

    def why_replay_not_valid(self, graph: Graph) -> NotValid | None:
        """Return why the replay on this thread, with ``graph`` so far, differs from its cache entry; None if it agrees.

        None as well if no cached call is replayed.
        """
        call = replayed_call()
        return None if call is None else self.why_not_valid(call, graph)

    def why_trace_not_valid(self, call: CachedCall, trace: CompleteTrace) -> NotValid | None:
        """Return why the cache entry that ``call`` hit is not valid for the call, according to a finished replay."""
        return self.why_not_valid(call, trace.output.graph)


PATHS = TracedPaths()
"""The noted paths of this process."""


def operations_of(graph: Graph) -> Iterator[Operation]:
    """Yield the operations of a graph that give tensors, in order."""
    return (operation for _, operation in _with_nodes(graph))


def _with_nodes(graph: Graph) -> Iterator[tuple[object, Operation]]:
    numbers: dict[object, object] = {}
    count = 0
    for node in graph.nodes:
        if node.op == "placeholder":
            numbers[node] = f"input {node.name}"
        elif node.op == "get_attr":
            numbers[node] = f"attribute {node.target}"
        elif node.op != "output" and _gives_tensor(node):
            numbers[node] = f"operation {count}"
            count += 1
            stack = node.meta.get("stack_trace") or getattr(node, "stack_trace", None) or ""
            yield node, Operation(target_name(node), tuple(_operands(node, numbers)), stack)


def _gives_tensor(node: Node) -> bool:
    example = node.meta.get("example_value")
    return any(is_tensor(each) for each in flattened([example])) or "setitem" in target_name(node)


def _operands(node: Node, numbers: Mapping[object, object]) -> Iterator[object]:
    yield from _flat(list(node.args), numbers)
    for name, value in sorted(node.kwargs.items()):
        yield f"{name}="
        yield from _flat(value, numbers)


def _flat(value: Any, numbers: Mapping[object, object]) -> Iterator[object]:
    if is_exactly(value, _PLAIN):
        yield value
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _flat(each, numbers)
    elif isinstance(value, slice):
        yield from _flat((value.start, value.stop, value.step), numbers)
    elif type(value).__name__ == "Node":
        example = value.meta.get("example_value")
        if is_symbolic(example):
            yield _ANY
        elif value in numbers:
            yield numbers[value]
        else:
            yield from ([example] if is_exactly(example, _PLAIN) else [_ANY])
    elif is_symbolic(value):
        yield _ANY
    else:
        yield f"{type(value).__name__} {value}" if type(value).__module__ == "torch" else type(value).__name__


ORIGINALS = "_dynamo_dap_originals"
"""The attribute of a replay's module that has the program's tensors by name; the replay's graph uses copies of them."""


def _tensors_of(graph: Graph) -> dict[str, Any]:
    """Return the constant tensors of a graph; parameters and buffers of the program are not constants."""
    module = graph.owning_module
    if module is None:
        return {}  # the trace of this graph still runs
    names = {str(node.target) for node in graph.nodes if node.op == "get_attr" and "." not in str(node.target)}
    originals = vars(module).get(ORIGINALS, {})
    found: dict[str, object] = {name: originals.get(name, getattr(module, name, None)) for name in names}
    return {name: each for name, each in found.items() if has_own_memory(each) and not each.requires_grad}


def _first_stale(before: Mapping[str, weakref.ref[Any]], graph: Graph, operations: Sequence[Any]) -> int | None:
    """Return the position of the first operation with a constant tensor that was replaced since the compile."""
    changed = set()
    for name, now in _tensors_of(graph).items():
        reference = before.get(name)
        then = None if reference is None else reference()
        if then is None or then is now or then.device.type == "meta":
            continue
        with data_reading():
            if (then.shape, then.dtype) != (now.shape, now.dtype) or not bool(((then == now) | (now != now)).all()):  # noqa: PLR0124  (only NaN differs from itself)
                changed.add(name)
    for position, node in enumerate(operations):
        if any(each.op == "get_attr" and each.target in changed for each in node.all_input_nodes):
            return position
    return None


def _first_difference(compiled: Sequence[Operation], replayed: Sequence[Operation]) -> int | None:
    """Return the position of the replay's first operation that differs from the compile's operation there."""
    for position, operation in enumerate(replayed):
        if position >= len(compiled) or not _are_same(compiled[position], operation):
            return position
    return None


def _are_same(one: Operation, other: Operation) -> bool:
    if one.target != other.target or len(one.operands) != len(other.operands):
        return False
    return all(_is_same(a, b) for a, b in zip(one.operands, other.operands, strict=True))


def _is_same(one: object, other: object) -> bool:
    if _ANY in (one, other):
        return True
    return type(one) is type(other) and (one == other or (one != one and other != other))  # noqa: PLR0124  (only NaN differs from itself)


def _constants(given: Mapping[str, object], output: Output) -> Iterator[Constant]:
    scope = {**functions_of_sources(), "L": given, "G": output.global_scope}
    seen: set[str] = set()
    for guard in output.guards:
        name = source_name(guard.originating_source)
        if name is None or name in seen or guard.create_fn_name() not in _CONSTANT_GUARDS:
            continue
        seen.add(name)
        try:
            code = compile(name, "<source>", "eval")
            value = eval(code, scope)
        except Exception:  # noqa: BLE001  (a source that cannot be evaluated proves nothing)
            continue
        if is_exactly(value, _PLAIN):
            yield Constant(user_expression(guard.originating_source) or name, code, value)


def _changed(constants: Sequence[Constant], call: CachedCall) -> Iterator[tuple[str, object, object]]:
    scope = {**functions_of_sources(), "L": call.arguments, "G": call.frame.f_globals}
    for each in constants:
        try:
            now = eval(each.source, scope)
        except Exception:  # noqa: BLE001  (a source that cannot be evaluated proves nothing)
            continue
        if not _is_same(each.value, hint_of(now) if is_symbolic(now) else now):
            yield each.expression, each.value, now
