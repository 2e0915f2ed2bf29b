"""Keeps a cached call's trace for later calls of the same cache entry.

The entry's guards hold for each of its calls, so the trace's results hold as well. A later call is not traced again:
its own objects replace those of the traced call in the saved trace. The objects are found by their sources, as the
compiled code finds them. Between two calls the trace holds no object of the program. The tracing thread makes the
trace, and any thread that makes a later call may use it. The trace lives as long as the facts about the cache entry.
"""

from __future__ import annotations

import contextlib
import sys
import types
from collections import ChainMap
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol
from weakref import ref

from dynamo_dap.debuggee.bytecode.exact_types import is_one_of
from dynamo_dap.debuggee.history.state_log import StateLog
from dynamo_dap.debuggee.history.time_travel import TraceHistory
from dynamo_dap.debuggee.torch_api.graphs.real_values import restore_values, set_version
from dynamo_dap.debuggee.torch_api.graphs.saved_graphs import source_of_placeholder
from dynamo_dap.debuggee.torch_api.graphs.tensor_facts import version_of
from dynamo_dap.debuggee.torch_api.isolation import global_state
from dynamo_dap.debuggee.torch_api.objects import GraphModule, Node
from dynamo_dap.debuggee.torch_api.traced.replays import (
    CachedCall,
    CompleteTrace,
    clear,
    drop_references,
    finding_objects,
    inspecting,
)
from dynamo_dap.debuggee.torch_api.traced.sources import functions_of_sources
from dynamo_dap.debuggee.torch_api.traced.symbols import NumbersOfTrace
from dynamo_dap.debuggee.torch_api.traced.trace_state import reachable_from
from dynamo_dap.debuggee.torch_api.traced.variable_trackers import fields_of, is_tracker, source_name
from dynamo_dap.debuggee.trace.runs import ReplayRun
from dynamo_dap.debuggee.values.type_facts import name_of
from dynamo_dap.debuggee.wrapping.locks import Level, reentrant_lock
from dynamo_dap.debuggee.wrapping.weak_collections import WeakSet

_OF_MODULES = (type, types.ModuleType, types.FunctionType, types.BuiltinFunctionType, types.CodeType)
"""Types whose objects live as long as the program if globals lead to them."""
_PERMANENT = (bool, int, float, complex, str, bytes, *_OF_MODULES)
"""Types whose objects a tracker may keep: guards require equal objects in each call."""


_WITHOUT_EXPRESSION = frozenset({"LocalCellSource"})


class CannotReuse(Exception):
    """A trace cannot be used in later calls; the text says why."""


@dataclass(frozen=True, slots=True)
class _Slot:
    """A field that holds an object of the program."""

    fields: dict[str, object]
    """The owner's attributes; the object is called ``value`` there."""
    source: types.CodeType


@dataclass(frozen=True, eq=False)
class CallObjects:
    """The objects of a call, by the sources of its trace."""

    call: CachedCall
    values: Sequence[object]
    inputs: Sequence[object]
    """The graph's inputs."""
    tracked: dict[object, object]
    numbers: dict[object, object]
    has_program_run: bool
    """Whether the call is shown after the program has continued, which may have changed the call's inputs."""
    versions: Sequence[int | None]
    """The versions of ``inputs``; None for each unless ``has_program_run``."""
    state: Sequence[Callable[[], None]]
    """Functions that restore the call's initial random states and torch's switches, if ``has_program_run``."""


class TraceDependent(Protocol):
    """Facts about the calls of a cache entry, which refer to its saved trace."""

    def drop(self) -> None:
        """Drop the facts with the trace."""


class SavedTrace:
    """A trace that every call of its cache entry can use."""

    def __init__(self, trace: CompleteTrace, history: TraceHistory, log: StateLog, call: CachedCall) -> None:
        """Save ``trace``, a trace of ``call``, with its ``log`` and ``history``.

        The log must show the present state, not an earlier one.

        Raises:
            CannotReuse: some object of the program cannot be found again.
        """
        self.history = history
        self.dependents: WeakSet[TraceDependent] = WeakSet()
        """The objects that refer to this trace."""
        self.code: ref[types.CodeType] | None = None
        """The cache entry's code, if known. The trace does not outlive it."""
        self.is_dropped = False
        """Whether no later call uses it."""
        self._log = log
        self._output = trace.output
        self._globals = trace.globals
        self._lock = reentrant_lock("saved trace", Level.STOPS)
        self._is_in_use = self._is_unwanted = self._is_closed = False
        self._scope = functions_of_sources()
        self._slots: list[_Slot] = []
        self._inputs: list[tuple[Any, types.CodeType]] = []
        """Placeholders of the graph, with their sources."""
        self._tracked: list[tuple[int, object, types.CodeType | None]] = []
        self._modules: dict[str, object] = {}
        self._root = self._output.root_tx
        self._numbers = NumbersOfTrace(self._output.shape_env)
        try:
            if not self._numbers.is_complete:
                raise CannotReuse("a symbol's number cannot be found again")
            self._find_slots(call)
        except CannotReuse:
            self.close()
            raise
        self._release_objects()
        self._drop_unneeded()

    # -- what it holds of the program ------------------------------------------------------------------------------

    def _find_slots(self, call: CachedCall) -> None:
        scope = self._scope_of(call)
        effects = self._output.side_effects
        roots = [*self._log.trackers(), effects.id_to_variable, effects.store_attr_mutations]
        for each in reachable_from(roots):
            if is_tracker(each):
                if not _is_permanent(fields_of(each).get("value")):
                    self._add_slot(fields_of(each), scope)
            elif "vt" in (fields := getattr(each, "__dict__", {})) and fields["vt"] is None:
                self._add_slot(fields, scope)
        for fields in self._log.lazy_fields():
            self._add_slot(fields, scope)
        for number, (key, tracker) in enumerate(effects.id_to_variable.items(), 1):
            source = fields_of(tracker).get("source")
            if source is None:
                self._tracked.append((key, tracker, None))
            elif type(source).__name__ in _WITHOUT_EXPRESSION:
                # No object has a negative identity: cells are never looked up by identity.
                self._tracked.append((-number, tracker, None))
            else:
                self._tracked.append((key, tracker, _compiled(source)))
        for node in self._output.root_tracer.graph.nodes:
            if node.op == "placeholder" and "grapharg" in node.meta:
                self._add_input(node, scope)
        self._modules = {name: _kept(module) for name, module in self._output.nn_modules.items()}

    def _add_slot(self, fields: dict[str, object], scope: dict[str, object]) -> None:
        """Note the object of a tracker or a lazy value, if it comes from the call."""
        value, source = fields.get("value"), fields.get("source")
        name = source_name(source)
        if value is None or name is None or (is_one_of(value, _OF_MODULES) and "L[" not in name):
            return
        code = _compiled(source)
        try:
            found = eval(code, scope)
        except Exception as problem:
            raise CannotReuse(f"{name} cannot be found again: {problem}") from problem
        if type(found) is not type(value):
            raise CannotReuse(f"{name} has another type now: {name_of(type(found))}")
        self._slots.append(_Slot(fields, code))

    def _add_input(self, node: Node, scope: dict[str, object]) -> None:
        code = source_of_placeholder(node)
        try:
            found = code is not None and eval(code, scope) is not None
        except Exception as problem:
            raise CannotReuse(f"cannot find the graph input '{node.name}' in this call: {problem}") from problem
        if code is None or not found:
            raise CannotReuse(f"cannot find the graph input '{node.name}' in this call")
        self._inputs.append((node, code))

    def _drop_unneeded(self) -> None:
        """Drop parts that no view needs."""
        output = self._output
        guards = output.tracing_context.guards_context.dynamo_guards
        kept, others = guards.inner, guards.source_to_guards
        guards.inner, guards.source_to_guards = type(kept)(), type(others)(list)
        drop_references(output)
        guards.inner, guards.source_to_guards = kept, others
        for guard in kept:
            # The stack refers to the code of all frames below the trace. The cache entry's code is one of these, and it
            # must die with the entry.
            guard.stack = None
        lasting = {id(tracker) for _, tracker, source in self._tracked if source is None}
        effects = output.side_effects
        own = {key for key, tracker, _ in self._tracked if id(tracker) in lasting}
        effects.keepalive[:] = [each for each in effects.keepalive if id(each) in own]
        for name in ("real_value_cache", "register_finalizer_fns", "cleanup_hooks", "mro_source_cache"):
            container = getattr(output, name, None)
            if container is not None:
                container.clear()

    # -- later calls -----------------------------------------------------------------------------------------------

    def _scope_of(self, call: CachedCall) -> dict[str, object]:
        return {**self._scope, "L": call.arguments, "G": ChainMap(call.frame.f_globals, dict(self._globals))}

    def objects_of(self, call: CachedCall, *, outlives_call: bool = False) -> CallObjects:
        """Find the objects of ``call``, which is about to begin; with ``outlives_call`` also for use after the call.

        Raises:
            CannotReuse: an object cannot be found.
        """
        try:
            with finding_objects():
                return self._found_in(call, self._scope_of(call), outlives_call=outlives_call)
        except Exception as problem:
            raise CannotReuse(str(problem)) from problem

    def _found_in(self, call: CachedCall, scope: dict[str, object], *, outlives_call: bool) -> CallObjects:
        inputs = [eval(source, scope) for _, source in self._inputs]
        return CallObjects(
            call=call,
            values=[eval(slot.source, scope) for slot in self._slots],
            inputs=inputs,
            tracked={
                (key if source is None else id(eval(source, scope))): tracker for key, tracker, source in self._tracked
            },
            numbers=self._numbers.found_in(scope),
            has_program_run=outlives_call,
            versions=[version_of(each) if outlives_call else None for each in inputs],
            state=global_state() if outlives_call else (),
        )

    @contextlib.contextmanager
    def used_for(self, given: CallObjects, run: ReplayRun | None = None, *, waits: bool = True) -> Iterator[None]:
        """Insert a call's objects, and make the trace the calling thread's current one, as the trace of ``run``.

        If another thread uses the trace, wait for it, unless ``waits`` is false.

        Raises:
            CannotReuse: this thread uses the trace, another one does and ``waits`` is false, or the trace is closed.
        """
        if not self._lock.acquire(blocking=waits):
            raise CannotReuse("another thread is using it")
        try:
            if self._is_unwanted:
                raise CannotReuse("its trace was dropped when the last breakpoint was removed")
            with inspecting(run or ReplayRun(given.call), self._output):
                if self._is_in_use:
                    raise CannotReuse("this thread is using it")
                self._is_in_use = True
                try:
                    self._insert_objects(given)
                    yield
                finally:
                    self._is_in_use = False
                    self._log.show(None)
                    restore_values(self._output, None)
                    self._release_objects()
        finally:
            self._lock.release()
            if self._is_unwanted:
                self.close()

    def _insert_objects(self, given: CallObjects) -> None:
        self._log.outlive_trace(has_program_run=given.has_program_run)
        for restore in given.state:
            restore()
        self._numbers.put_in(given.numbers)
        for slot, value in zip(self._slots, given.values, strict=True):
            slot.fields["value"] = value
        for (node, _), example, version in zip(self._inputs, given.inputs, given.versions, strict=True):
            node.meta["grapharg"]._example = example
            set_version(node, version)
        known = self._output.side_effects.id_to_variable
        known.clear()
        known.update(given.tracked)
        modules = self._output.nn_modules
        for name, kept in self._modules.items():
            modules[name] = kept() if isinstance(kept, ref) else kept
        arguments = dict(given.call.arguments)
        self._output.local_scope = self._root.f_locals = arguments
        self._root.closure = given.call.closure

    def _release_objects(self) -> None:
        for slot in self._slots:
            slot.fields["value"] = None
        for node, _ in self._inputs:
            node.meta["grapharg"]._example = None
            set_version(node, None)
        known = self._output.side_effects.id_to_variable
        known.clear()
        known.update((-number, tracker) for number, (_, tracker, _) in enumerate(self._tracked, 1))
        self._output.nn_modules.clear()
        self._output.local_scope = self._root.f_locals = {}
        self._root.closure = ()

    def close(self) -> None:
        """Drop the trace now, or when the thread that uses it has finished. Runs on any thread."""
        self.is_dropped = self._is_unwanted = True
        if not self._lock.acquire(blocking=False):
            return
        try:
            if not self._is_in_use and not self._is_closed:
                self._is_closed = True
                self._forget()
        finally:
            self._lock.release()

    def _forget(self) -> None:
        self._log.close()
        clear(self._output)
        self._slots.clear()
        self._inputs.clear()


def _is_permanent(value: object) -> bool:
    torch = sys.modules["torch"]
    # An operator's tracker holds the operator, but its source leads to a function, such as ``checkpoint``.
    return is_one_of(value, (*_PERMANENT, torch._ops.OperatorBase))


def _compiled(source: object) -> types.CodeType:
    name = source_name(source)
    try:
        return compile(name or "", "<source>", "eval")
    except SyntaxError:
        raise CannotReuse(f"the source {name} is not an expression") from None


def _kept(module: GraphModule) -> object:
    return module if type(module).__name__ == "GraphModule" else ref(module)
