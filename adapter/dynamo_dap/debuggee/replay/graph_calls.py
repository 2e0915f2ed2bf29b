"""Reports calls of compiled graphs to observers, with their outputs and their inputs before the call.

With every backend, Dynamo's generated code calls a graph by a global name of the user's module
(``__compiled_fn_3_...``). While an observer exists, that name refers to a function that reports the calls, otherwise to
the compiled graph. Inputs to which a call writes are copied before it runs. To find out which these are, all inputs of
the first reported call are copied.

The process has one ``GRAPH_CALLS``. ``want`` runs on any thread, ``compiled`` on the thread that compiles. Everything
else runs on the thread that makes the call, right before and after it.
"""

from __future__ import annotations

import itertools
import os
import sys
import threading
import types
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dynamo_dap.debuggee.replay.one_time_code import SERVED_ONCE
from dynamo_dap.debuggee.torch_api.cache.cache_entries import tensors_of
from dynamo_dap.debuggee.torch_api.code_objects.frame_memory import captured_cells
from dynamo_dap.debuggee.torch_api.code_objects.generated_code import cache_entry_of, original_of
from dynamo_dap.debuggee.torch_api.graphs.compiled_graphs import graphs_of, installed_graphs
from dynamo_dap.debuggee.torch_api.graphs.dynamic_marks import Mark, OwnMarks
from dynamo_dap.debuggee.torch_api.graphs.graph_runs import (
    REAL_VALUES,
    has_own_memory,
    in_transform,
    with_earlier_memory,
)
from dynamo_dap.debuggee.torch_api.graphs.tensor_facts import WITH_BYTES, version_of
from dynamo_dap.debuggee.torch_api.isolation import data_reading, random_state, random_states, uncompiled_data_reading
from dynamo_dap.debuggee.torch_api.objects import Graph, Tensor
from dynamo_dap.debuggee.torch_api.skipping import never_compile
from dynamo_dap.debuggee.torch_api.traced.fake_evaluation import flattened, storage_of
from dynamo_dap.debuggee.torch_api.traced.replays import REPLAYS, CachedCall
from dynamo_dap.debuggee.wrapping.locks import Level, lock
from dynamo_dap.debuggee.wrapping.patches import Patches

_TOKENS = itertools.count()


@dataclass(eq=False)
class GraphCall:
    """One call of a compiled graph. Copies of its inputs live as long as this object."""

    graph: ObservedGraph
    frame: types.FrameType
    """The generated code's frame at the call, before it applies the side effects of the traced code."""
    inputs: tuple[Any, ...]
    kept: KeptInputs
    outputs: object = None
    problem: Exception | None = None
    """The exception that the compiled graph raised."""
    number: int = field(default_factory=_TOKENS.__next__)
    """The call's number in the process."""
    marks: tuple[Mark, ...] = ()
    """The marks of dynamic sizes that the graph has left on its inputs."""

    @property
    def token(self) -> str:
        """Return a text that differs for every call."""
        return f"{os.getpid()}.{self.number}"

    @property
    def given(self) -> tuple[Any, ...]:
        """The inputs, and the program's tensors that belong to the graph."""
        return self.graph.given(self.inputs)

    @property
    def written(self) -> list[Tensor]:
        """The items of ``given`` that the graph writes to and whose earlier contents were kept."""
        given = self.given
        return [given[at] for at in sorted(self.graph.written or ()) if at not in self.kept.left_out]

    def before(self, tensor: object) -> Any:
        """Return the tensor of ``given`` with its contents before the call."""
        return with_earlier_memory(tensor, self.kept.memory)

    def as_cached_call(self) -> CachedCall | None:
        """Return the call of the graph's function, for a replay; None if it is unknown."""
        code = self.frame.f_code
        original, entry = original_of(code), cache_entry_of(code)
        if original is None or REPLAYS.problem is not None:
            return None
        return CachedCall(
            code=original,
            frame=self.frame,
            arguments=dict(self.frame.f_locals),
            closure=captured_cells(self.frame),
            compile_id=str(getattr(entry, "compile_id", "?")),
            backend=getattr(entry, "backend", None),
            number=None,
            memory=self.kept.memory,
            marks=self.marks,
        )


@dataclass(eq=False)
class KeptInputs:
    """The earlier contents of inputs that a call changes."""

    memory: Mapping[object, object]
    """Copies, by the tensor's ``storage_of``."""
    left_out: tuple[int, ...]
    """Positions of written inputs that were too large to copy."""
    random: tuple[Callable[[], None], ...]
    """Functions that restore the random number generators; empty if the graph draws no numbers."""
    versions: tuple[int, ...] | None = None
    """How often each input had been written to before the call, if all are kept."""
    random_after: object = None
    """The states of torch's generators after the call, if all inputs are kept."""


_NOTHING_KEPT = KeptInputs({}, (), ())
"""For a call that changes no input and draws no numbers."""


class ContinuesInFork(BaseException):
    """Raised by an observer in a forked process to continue the call there, with the code after the graph."""


class CallObserver:
    """Observes calls. Runs on the program's thread."""

    def returned(self, call: GraphCall) -> None:
        """Inspect the outputs that a graph has just returned; the program does not have them yet."""

    def raised(self, call: GraphCall) -> None:
        """Inspect the exception that a graph has raised, before the program gets it."""

    def keeps_all(self, number: int) -> bool:
        """Return whether to keep all inputs of a graph's call ``number``, or only those that earlier calls wrote to."""
        return False

    def left_out(self, code: types.CodeType, reason: str) -> None:
        """Report that calls of the generated ``code`` are not observed; once for each graph."""


@dataclass(eq=False)
class ObservedGraph:
    """A compiled graph whose calls are reported."""

    compiled: Callable[..., object]
    calls: int = 0
    """How many were reported."""
    attributes: tuple[weakref.ref[object], ...] = ()
    """The program's tensors that belong to the graph without being inputs, such as an optimizer's parameters."""
    written: frozenset[int] | None = None
    """Positions of the items of ``given`` to which the graph writes; None before the first reported call."""
    draws: bool = True
    """Whether it draws random numbers."""
    marks: OwnMarks = field(default_factory=OwnMarks)
    """The marks of dynamic sizes that its calls have left on their inputs."""
    reported: set[object] = field(default_factory=set)
    """Messages that observers have shown about the graph, so that each appears once."""

    def given(self, inputs: tuple[object, ...]) -> tuple[object, ...]:
        """Return all inputs of a call: ``inputs`` and the graph's own tensors."""
        return (*inputs, *(each() for each in self.attributes)) if self.attributes else inputs


class NotedAttributes(threading.local):
    """Notes the program's tensors that belong to the graph of this thread's compile: no call passes them."""

    _of_graph: tuple[weakref.ref[object], ...] = ()

    def note(self, graph: Graph) -> None:
        """Note the tensors of a new graph."""
        names = dict.fromkeys(node.target for node in graph.nodes if node.op == "get_attr")
        found = [getattr(graph.owning_module, name, None) for name in names]
        self._of_graph = tuple(weakref.ref(each) for each in found if has_own_memory(each))

    def take(self) -> tuple[weakref.ref[object], ...]:
        """Return the noted tensors, and forget them."""
        attributes, self._of_graph = self._of_graph, ()
        return attributes


class GraphCalls:
    """Wraps compiled graphs in functions that report calls, and unwraps them."""

    def __init__(self) -> None:
        self._lock = lock("observers of graph calls", Level.OBSERVERS)
        self._observers: dict[CallObserver, int] = {}
        """By observer: how many bytes of inputs may be copied for a call."""
        self._thread = threading.local()
        self._patches = Patches("reading the results of compiled graphs", self._observers_end)
        # Made once: each call of a graph needs them.
        self._guarded_keep = self._patches.guarded(self._keep, None)
        self._guarded_report = self._patches.guarded(self._report_each, None)

    def want(self, observer: CallObserver, limit: int | None) -> None:
        """Report every call to ``observer``, and copy at most ``limit`` bytes for each; None ends the reports."""
        with self._lock:
            wanted = None if self._patches.is_off else limit
            if self._observers.get(observer) == wanted:
                return  # each step asks again, and a program may have hundreds of graphs
            if wanted is None:
                self._observers = {other: size for other, size in self._observers.items() if other is not observer}
            else:
                self._observers = {**self._observers, observer: wanted}
            for scope, name in installed_graphs():
                # The graph may be older than the hook that notes its attributes.
                self._set(scope, name, _kept_by(scope.get(name)) if self._observers else ())

    def compiled(self, code: types.CodeType, attributes: tuple[weakref.ref[object], ...] = ()) -> None:
        """Observe the graph of newly generated code; ``attributes`` are the graph's own tensors."""
        with self._lock:
            for scope, name in graphs_of(code):
                self._set(scope, name, attributes)

    def _set(self, scope: dict[str, object], name: str, attributes: tuple[weakref.ref[object], ...] = ()) -> None:
        present = scope.get(name)
        observed: ObservedGraph | None = getattr(present, "_dynamo_dap_observed", None)
        if self._observers and observed is None and callable(present) and not hasattr(present, SERVED_ONCE):
            scope[name] = self._reporting(ObservedGraph(present, attributes=attributes))
        elif not self._observers and observed is not None:
            scope[name] = observed.compiled

    def _reporting(self, graph: ObservedGraph) -> object:
        compiled = graph.compiled

        def call(*inputs: object) -> object:
            if not self._observers or getattr(self._thread, "is_reporting", False) or not _can_be_read():
                return compiled(*inputs)
            return self._report(graph, inputs, sys._getframe(1))

        call.__dict__.update(getattr(compiled, "__dict__", {}))
        call.__dict__["_dynamo_dap_observed"] = graph
        never_compile(call)
        return call

    def _report(self, graph: ObservedGraph, inputs: tuple[object, ...], frame: types.FrameType) -> object:
        kept = self._guarded_keep(graph, inputs, frame.f_code)
        if kept is None:
            return graph.compiled(*inputs)
        before = graph.marks.present(inputs)
        try:
            outputs = graph.compiled(*inputs)
        except Exception as problem:
            self._report_observers(GraphCall(graph, frame, inputs, kept, problem=problem))
            raise
        self._report_observers(GraphCall(graph, frame, inputs, kept, outputs, marks=graph.marks.take(before)))
        return outputs

    def _keep(self, graph: ObservedGraph, inputs: tuple[object, ...], code: types.CodeType) -> KeptInputs | None:
        """Return the inputs' contents that a call of generated ``code`` may change; None if it cannot be observed."""
        number, observers = graph.calls + 1, self._observers
        keeps_all = graph.written is None or any(each.keeps_all(number) for each in observers)
        if not keeps_all and not graph.written and not graph.draws:
            return _NOTHING_KEPT
        given = graph.given(inputs)
        # Guards fix the devices of inputs, and the first call has shown that all can be copied.
        device = _device_without_bytes(given if keeps_all else [given[at] for at in graph.written or ()])
        if device is not None:
            self._leave_out(graph, code, device)
            return None
        return _keep(graph, given, max(observers.values(), default=0), keeps_all=keeps_all)

    def _leave_out(self, graph: ObservedGraph, code: types.CodeType, device: str) -> None:
        for observer in tuple(self._observers):
            if (observer, device) not in graph.reported:
                graph.reported.add((observer, device))
                observer.left_out(code, f"the memory of the device '{device}' cannot be copied")

    def _observers_end(self) -> None:
        for observer in tuple(self._observers):
            self.want(observer, None)

    def _report_observers(self, call: GraphCall) -> None:
        try:
            self._guarded_report(call)
        except ContinuesInFork:
            # The fork only continues this call: the program's own process observes the calls that it makes.
            self._observers = {}

    def _report_each(self, call: GraphCall) -> None:
        graph = call.graph
        self._thread.is_reporting = True
        try:
            graph.calls += 1
            if call.kept.versions is not None:
                _learn(graph, call)
            for observer in tuple(self._observers):
                observer.returned(call) if call.problem is None else observer.raised(call)
        finally:
            self._thread.is_reporting = False


GRAPH_CALLS = GraphCalls()
"""The only instance in the process."""


def _kept_by(graph: object) -> tuple[weakref.ref[object], ...]:
    if getattr(graph, "_dynamo_dap_observed", None) is not None:
        return ()
    return tuple(weakref.ref(each) for each in tensors_of(graph) if has_own_memory(each))


def _device_without_bytes(inputs: Sequence[object]) -> str | None:
    """Return the type of an input's device whose memory torch cannot copy, or None."""
    devices = (each.device.type for each in inputs if has_own_memory(each))
    return next((device for device in devices if device not in WITH_BYTES), None)


def _can_be_read() -> bool:
    """Return whether tensors have real values: not inside torch.func's transforms, nor while recording a CUDA graph."""
    torch = sys.modules["torch"]
    if REAL_VALUES.problem is not None or in_transform():
        return False
    return not (torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing())


def _keep(graph: ObservedGraph, given: tuple[object, ...], limit: int, *, keeps_all: bool) -> KeptInputs:
    wanted = range(len(given)) if keeps_all else sorted(graph.written or ())
    memory: dict[object, object] = {}
    left_out: list[int] = []
    if wanted:
        with uncompiled_data_reading():
            # Parameters are large, and a graph with other inputs rarely writes to them.
            for position in sorted(wanted, key=lambda each: getattr(given[each], "requires_grad", False)):
                each = given[position]
                if not has_own_memory(each) or storage_of(each) in memory:
                    continue
                limit -= each.untyped_storage().nbytes()
                if limit < 0:
                    left_out.append(position)
                else:
                    memory[storage_of(each)] = each.untyped_storage().clone()
    versions = tuple(version_of(each) for each in given) if keeps_all else None
    return KeptInputs(memory, tuple(left_out), tuple(random_states()) if graph.draws or keeps_all else (), versions)


def _learn(graph: ObservedGraph, call: GraphCall) -> None:
    """Find out which inputs the graph changes, from a call for which all of them were kept."""
    kept, given, known = call.kept, call.given, graph.written or frozenset()
    with data_reading():
        written = {
            storage
            for storage, before in kept.memory.items()
            for each in given
            if has_own_memory(each) and storage_of(each) == storage and _differ(before, each.untyped_storage())
        }
        # A write may leave equal contents, such as running statistics that have converged.
        written |= {
            storage_of(each)
            for each, before in zip(given, kept.versions or (), strict=True)
            if has_own_memory(each) and version_of(each) != before
        }
        graph.written = known | frozenset(
            position
            for position, each in enumerate(given)
            if has_own_memory(each) and (storage_of(each) in written or position in kept.left_out)
        )
        torch = sys.modules["torch"]
        now = random_state()
        after = random_states()
        for restore in kept.random:
            restore()
        is_drawn = not torch.equal(now, random_state())
        graph.draws = is_drawn or (graph.draws and call.graph.calls > 1)
        for restore in after:
            restore()
    memory = {storage: before for storage, before in kept.memory.items() if storage in written}
    call.kept = KeptInputs(memory, kept.left_out, kept.random, random_after=now)


def _differ(before: Any, now: Any) -> bool:
    torch = sys.modules["torch"]
    bytes_of = [torch.empty(0, dtype=torch.uint8, device=each.device).set_(each) for each in (before, now)]
    return not torch.equal(*bytes_of)


def tensors_in(values: object) -> Iterator[Tensor]:
    """Yield the plain tensors among the inputs or outputs of a call."""
    yield from (each for each in flattened(values) if has_own_memory(each))
