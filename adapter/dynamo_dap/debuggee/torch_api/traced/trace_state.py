"""Detects changes of a paused trace, and reverts them.

``TraceState`` copies the state that Dynamo keeps about the trace (containers two levels deep) before an expression runs
that can reach the interpreter itself (``ctx``, ``tx``). ``changes`` describes the differences for the user; ``restore``
reverts them. Runs on the tracing thread; lives as long as one evaluation.
"""

from __future__ import annotations

import collections
import itertools
import sys
from collections.abc import Iterator
from typing import Any

from dynamo_dap.debuggee.torch_api.isolation import copy_of_counter
from dynamo_dap.debuggee.torch_api.objects import Graph, Translator
from dynamo_dap.debuggee.torch_api.swaps import refill
from dynamo_dap.debuggee.torch_api.traced.translator import with_callers
from dynamo_dap.debuggee.torch_api.traced.variable_trackers import fields_of, is_tracker

_PLAIN = (int, float, str, bool, bytes, type(None), tuple, frozenset)


def counts_of(tx: Translator) -> dict[str, object]:
    """Count the parts of a trace. This is cheap, and almost every change of a trace changes a count."""
    output = tx.output
    shape_env = output.shape_env
    effects = output.side_effects
    tracers = list(getattr(output, "tracers", ()))
    frames = list(with_callers(tx))
    return {
        "graph nodes": sum(len(tracer.graph.nodes) for tracer in tracers) or len(output.graph.nodes),
        "graph inputs": len(output.input_source_to_var),
        "guards": len(output.guards),
        "conditions on sizes": len(shape_env.guards),
        "symbols found equal": len(shape_env.replacements),
        "symbols": len(shape_env.var_to_range),
        "runtime assertions": shape_env.num_deferred_runtime_asserts,
        "tracked objects": len(effects.id_to_variable),
        "changed objects": len(effects.store_attr_mutations),
        "tensor hooks": len(effects.tensor_hooks),
        "local variables": sum(len(each.symbolic_locals) for each in frames),
        "values on the stack": sum(len(each.stack) for each in frames),
    }


def differences(before: dict[str, object], after: dict[str, Any]) -> list[str]:
    """Return the changes between two ``counts_of``, as readable text: ``3 more guards``."""
    texts: list[str] = []
    for name, count in before.items():
        change = after[name] - count
        if change:
            texts.append(f"{abs(change)} {'more' if change > 0 else 'fewer'} {name}")
    return texts


class TraceState:
    """A copy of everything Dynamo keeps about one trace."""

    def __init__(self, tx: Translator) -> None:
        """Copy the state of ``tx``'s trace."""
        self._tx = tx
        self._counts = counts_of(tx)
        self._graphs = [_GraphState(tracer.graph) for tracer in getattr(tx.output, "tracers", ())]
        self._objects = [ObjectState(each) for each in _state_objects(tx)]
        self._installed = set(tx.output.installed_globals)
        self._counters = {group: dict(each) for group, each in _statistics().items()}

    def changes(self) -> list[str]:
        """Return the differences, as readable text; empty if there are none."""
        counted = differences(self._counts, counts_of(self._tx))
        if counted:
            return counted
        changed = sorted({type(each.owner).__name__ for each in self._objects if each.is_different()})
        return [f"the state of {', '.join(changed)}"] if changed else []

    def restore_statistics(self) -> None:
        """Restore torch's counts of graph breaks and compiles, on which the trace does not depend."""
        for group, counter in _statistics().items():
            refill(counter, self._counters.get(group, {}))

    def restore(self) -> None:
        """Restore everything."""
        output = self._tx.output
        for name in set(output.installed_globals) - self._installed:
            output.global_scope.pop(name, None)
        for graph in self._graphs:
            graph.restore()
        for each in self._objects:
            each.restore()


class Undo:
    """Reverts an evaluation's changes of a trace: all of them if the expression could reach the interpreter."""

    def __init__(self, tx: Translator, *, whole_trace: bool) -> None:
        """Note the state of ``tx``'s trace."""
        self._tx = tx
        self._symbols = ObjectState(tx.output.shape_env)
        self._trace = TraceState(tx) if whole_trace else None
        self._counts = counts_of(tx)

    def revert(self) -> tuple[list[str], list[str]]:
        """Restore the trace; return the changes, and the remaining differences, as readable text."""
        changes = self._trace.changes() if self._trace is not None else []
        if self._trace is not None:
            if changes:
                self._trace.restore()
            self._trace.restore_statistics()
        self._symbols.restore()
        left = differences(self._counts, counts_of(self._tx)) or (
            self._trace.changes() if changes and self._trace else []
        )
        return changes, left


def _statistics() -> dict[str, Any]:
    module = sys.modules.get("torch._dynamo.utils")
    return dict(getattr(module, "counters", {}))


def _state_objects(tx: Translator) -> Iterator[object]:
    output = tx.output
    yield from with_callers(tx)
    yield output
    yield output.side_effects
    if hasattr(output, "bytecode_tracing_timings"):
        yield output.bytecode_tracing_timings
    yield from getattr(output, "tracers", ())
    yield output.shape_env
    context = output.tracing_context
    yield context
    guards = context.guards_context
    yield guards
    yield guards.dynamo_guards
    yield guards.dynamo_guards.inner
    yield from _code_states()
    yield from reachable_trackers(tx)


def _code_states() -> Iterator[object]:
    """Yield the objects in which torch remembers sizes from call to call (``automatic_dynamic_shapes``)."""
    module = sys.modules.get("torch._dynamo.pgo")
    states = getattr(module, "_CODE_STATE", None) if module is not None else None
    for state in dict(states or {}).values():
        yield state
        yield from dict(getattr(state, "automatic_dynamic", None) or {}).values()


def reachable_trackers(tx: Translator) -> Iterator[object]:
    """Yield every tracker that the trace can reach, with its mutation type, and with the cache of a lazy one."""
    pending: list[object] = []
    for each in with_callers(tx):
        pending += [each.symbolic_locals, each.stack, each.post_prune_cell_and_freevars]
    effects = tx.output.side_effects
    pending += [effects.id_to_variable, effects.store_attr_mutations]
    pending += [getattr(tx.output, "variable_tracker_cache", {}), tx.output.input_source_to_var]
    yield from reachable_from(pending)


def reachable_from(pending: list[Any]) -> Iterator[object]:
    """Yield every tracker reachable from ``pending``, with its mutation type, and with the cache of a lazy one."""
    seen: set[int] = set()
    while pending:
        value = pending.pop()
        if id(value) in seen or (isinstance(value, _PLAIN) and not isinstance(value, tuple)):
            continue
        seen.add(id(value))
        if isinstance(value, dict):
            pending += [*dict.keys(value), *dict.values(value)]
        elif isinstance(value, list | tuple | collections.deque):
            pending += list(value)
        elif is_tracker(value):
            yield value
            own = fields_of(value)
            mutation = own.get("mutation_type")
            if mutation is not None:
                yield mutation
            if "_cache" in own:
                cache = own["_cache"]
                yield cache
                # torch 2.15 computes with constants that have no guard yet.
                pending += [getattr(cache, name, None) for name in ("vt", "args", "lazy_vars")]
            pending += [item for name, item in own.items() if name not in _NOT_WALKED]
        elif type(value).__name__ == "HashableTracker":
            pending.append(value.vt)


_NOT_WALKED = frozenset({"value", "source", "fn", "f_globals", "proxy", "inline_tracer", "_cache", "mutation_type"})


class ObjectState:
    """The attributes of one object, and the contents of the containers they hold."""

    def __init__(self, owner: object) -> None:
        """Copy the state of ``owner``."""
        self.owner = owner
        self._dictionary = _attributes_of(owner)
        self._attributes = dict(self._dictionary)
        self._counters = {
            name: copy_of_counter(value) for name, value in self._attributes.items() if type(value) is itertools.count
        }
        self._containers: list[tuple[object, object]] = []
        for name, value in self._attributes.items():
            if name not in _OF_THE_PROGRAM:
                self._copy(value, levels=2)

    def _copy(self, value: object, levels: int) -> None:
        value = _inner_container(value)
        if isinstance(value, dict | list | set | collections.deque):
            copied = dict(value) if isinstance(value, dict) else list(value)
            self._containers.append((value, copied))
            if levels > 1:
                for inner in copied.values() if isinstance(copied, dict) else copied:
                    self._copy(inner, levels - 1)

    def is_different(self) -> bool:
        """Return whether an attribute is another object now, or a container holds other objects."""
        if set(self._dictionary) != set(self._attributes):
            return True
        if any(self._dictionary[name] is not value for name, value in self._attributes.items() if not _is_cache(name)):
            return True
        if any(repr(self._dictionary[name]) != repr(value) for name, value in self._counters.items()):
            return True
        return any(_contents(container) != _marks(copied) for container, copied in self._containers)

    def restore(self) -> None:
        """Restore attributes, counters and the contents of containers."""
        for name in set(self._dictionary) - set(self._attributes):
            del self._dictionary[name]
        for name, value in self._attributes.items():
            if name not in self._dictionary or self._dictionary[name] is not value:
                self._dictionary[name] = value
        for name, counter in self._counters.items():
            if repr(self._dictionary[name]) != repr(counter):
                self._dictionary[name] = copy_of_counter(counter)
        for container, copied in self._containers:
            if _contents(container) != _marks(copied):
                refill(container, copied)


_OF_THE_PROGRAM = frozenset({"f_globals", "f_locals", "f_builtins", "global_scope", "local_scope", "code_options"})
"""The program's own containers: an expression's changes of them are not reverted."""


def _inner_container(value: object) -> object:
    """Return the dictionary inside torch's own kinds of containers."""
    inner = _INNER.get(type(value).__name__)
    return value if inner is None else getattr(value, inner, value)


_INNER = {"OrderedSet": "_dict", "WeakIdKeyDictionary": "data", "WeakTensorKeyDictionary": "data"}


def _is_cache(name: str) -> bool:
    """Return whether an attribute is a cache or a version number, whose changes mean nothing."""
    return name.endswith("_cache") or name in ("_expr_ver",)


def _attributes_of(owner: object) -> Any:
    try:
        return object.__getattribute__(owner, "__dict__")
    except AttributeError:
        return _Slots(owner)


class _Slots(collections.abc.MutableMapping[str, Any]):
    """The slots of an object without ``__dict__``, as a mapping."""

    def __init__(self, owner: object) -> None:
        self._owner = owner
        slots = [slot for cls in type(owner).__mro__ for slot in getattr(cls, "__slots__", ())]
        self._names = [slot for slot in slots if slot not in ("__weakref__", "__dict__")]

    def __getitem__(self, name: str) -> object:
        try:
            return getattr(self._owner, name)
        except AttributeError:
            raise KeyError(name) from None

    def __setitem__(self, name: str, value: object) -> None:
        object.__setattr__(self._owner, name, value)

    def __delitem__(self, name: str) -> None:
        object.__delattr__(self._owner, name)

    def __iter__(self) -> Iterator[str]:
        return (name for name in self._names if hasattr(self._owner, name))

    def __len__(self) -> int:
        return sum(1 for _ in self)


def _contents(container: Any) -> object:
    return _marks(container if isinstance(container, dict) else list(container))


def _marks(contents: Any) -> object:
    """Return the contents by identity: comparing the values themselves could guard, or run the user's code."""
    if isinstance(contents, dict):
        return [(id(key), id(value)) for key, value in contents.items()]
    return [id(value) for value in contents]


class _GraphState:
    """A graph's nodes, and the names that it has used."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._nodes = {id(node) for node in graph.nodes}
        self._metadata = [(node, dict(node.meta)) for node in graph.nodes]
        self._names = ObjectState(graph._graph_namespace) if hasattr(graph, "_graph_namespace") else None
        self._attributes = {
            name: graph.__dict__[name] for name in ("_insert", "_root", "_len") if name in graph.__dict__
        }

    def restore(self) -> None:
        for node in reversed(list(self._graph.nodes)):
            if id(node) not in self._nodes:
                self._graph.erase_node(node)
        for node, metadata in self._metadata:
            refill(node.meta, metadata)
        if self._names is not None:
            self._names.restore()
        if "_insert" in self._attributes:
            self._graph._insert = self._attributes["_insert"]
