"""Reports the events of CUDA graphs: recorded, skipped, recorded again, overwritten outputs.

Inductor decides at compile time whether a graph can be recorded, and its tree of CUDA graphs records and replays while
the program runs. Hooks are installed while an observer wants these facts, in each module once the program has imported
it. They run on the thread that compiles or calls. Nothing is reported while torch captures a graph: a report may hold
the thread, which has torch's capture lock. Such events are reported at the end of the call.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import types
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from dynamo_dap.debuggee.torch_api.code_objects.frame_memory import locals_snapshot
from dynamo_dap.debuggee.torch_api.devices.cuda_graph_callers import CallSite, call_site
from dynamo_dap.debuggee.torch_api.devices.cuda_graph_texts import CudaGraphFacts, Reason, read_mismatch, read_reason
from dynamo_dap.debuggee.torch_api.features import Feature, owner_of
from dynamo_dap.debuggee.torch_api.graphs.graph import nodes_of, places_in, user_place
from dynamo_dap.debuggee.torch_api.import_hooks import when_imported
from dynamo_dap.debuggee.torch_api.objects import Graph, GraphModule, Node
from dynamo_dap.debuggee.torch_api.skipping import never_compile_own_functions
from dynamo_dap.debuggee.wrapping.locks import Level, lock
from dynamo_dap.debuggee.wrapping.patches import Given, Outcome, Patches, calling_frame
from dynamo_dap.debuggee.wrapping.weak_collections import WeakKeyDictionary
from dynamo_dap.protocol.requests.cuda_graphs import (
    CPU,
    FORWARD,
    KEPT,
    LIVENESS,
    OVERWRITTEN,
    PARTIAL,
    RECORDED,
    RERECORDED,
    SIZE,
    SKIPPED,
)

_COMPILE_ID = "torch._guards:CompileContext.current_compile_id"
_POST_COMPILE = "torch._inductor.output_code:CompiledFxGraph.post_compile"
_PARTITION = "torch._inductor.scheduler:Scheduler.graph_partition"
_SHOULD_PARTITION = "torch._inductor.scheduler:Scheduler.should_partition"
_LOG_IN_COMPILE = "torch._inductor.compile_fx:log_cudagraph_skip_and_bump_counter"
_LOG_IN_BACKEND = "torch._dynamo.backends.cudagraphs:log_cudagraph_skip_and_bump_counter"
_LOG_IN_TREE = "torch._inductor.cudagraph_trees:log_cudagraph_skip_and_bump_counter"
_MANAGER = "torch._inductor.cudagraph_trees:CUDAGraphTreeManager"
_RUN = f"{_MANAGER}._run"
_RECORD = f"{_MANAGER}.record_function"
_DEALLOCATE = f"{_MANAGER}.dealloc_current_path_weakrefs"
_END_EXECUTION = f"{_MANAGER}.try_end_curr_execution"
_WRAP = "torch._inductor.cudagraph_trees:cudagraphify_impl"

DECISIONS = Feature("why CUDA graphs are skipped", _POST_COMPILE, _COMPILE_ID)
PARTITIONS = Feature("which operations CUDA graphs leave out", _PARTITION, _SHOULD_PARTITION)
COMPILE_LOGS = Feature("CUDA graphs that settings turn off", _LOG_IN_COMPILE, _COMPILE_ID)
BACKEND = Feature("why the backend 'cudagraphs' skips a graph", _LOG_IN_BACKEND, _COMPILE_ID)
RECORDINGS = Feature(
    "recordings of CUDA graphs", _RUN, _RECORD, _DEALLOCATE, _END_EXECUTION, _LOG_IN_TREE, _WRAP, _COMPILE_ID
)

_Steps = Generator[Given | None, Outcome, None]
_MAXIMUM_LEFT_OUT = 20


@dataclass
class _Tree:
    """Facts about one of torch's trees of CUDA graphs; torch has one per device."""

    counts: dict[object, int] = field(default_factory=dict)
    """How many recordings each function has."""
    sizes: dict[object, dict[int, int]] = field(default_factory=dict)
    """By function: its integer inputs at the last recording, by index."""
    made_at: WeakKeyDictionary[object, CallSite] = field(default_factory=WeakKeyDictionary)
    """The calling line of the last run of each node of the tree."""
    reported: set[tuple[object, ...]] = field(default_factory=set)


@dataclass(frozen=True)
class _Call:
    """A call of a function that has CUDA graphs."""

    manager: object
    function_id: object


class _OfThread(threading.local):
    def __init__(self) -> None:
        self.calls: list[_Call] = []
        self.waiting: list[CudaGraphFacts] = []
        self.graph: Any = None
        """Dynamo's graph, while a backend compiles it."""
        self.left_out: list[Reason] = []
        """Why operations of the graph being compiled stay outside CUDA graphs."""


class CudaGraphHooks:
    """Notifies one function of events of CUDA graphs."""

    def __init__(self, report: Callable[[CudaGraphFacts], None]) -> None:
        """Call ``report`` on the thread that compiles or calls."""
        self._report = report
        self._patches = Patches("CUDA graphs")
        self._lock = lock("observers of CUDA graphs", Level.DATA)
        self._is_wanted = False
        self._waiting: list[Callable[[], None]] = []
        self._thread = _OfThread()
        self._trees: WeakKeyDictionary[object, _Tree] = WeakKeyDictionary()
        self._compile_ids: WeakKeyDictionary[object, str] = WeakKeyDictionary()
        """By model: the compile id. The backend ``cudagraphs`` does not pass the id to the tree."""

    def want(self, *, wanted: bool) -> None:
        """Install or remove the hooks. Runs on any thread."""
        with self._lock:
            if wanted == self._is_wanted:
                return
            self._is_wanted = wanted
            waiting, self._waiting = self._waiting, []
        for stop in waiting:
            stop()
        if not wanted:
            self._patches.remove()
            return
        never_compile_own_functions()
        self._waiting = [
            when_imported("torch._inductor.output_code", self._watch_decisions),
            when_imported("torch._inductor.scheduler", self._watch_partitions),
            when_imported("torch._inductor.compile_fx", self._watch_compile),
            when_imported("torch._dynamo.backends.cudagraphs", self._watch_backend),
            when_imported("torch._inductor.cudagraph_trees", self._watch_tree),
        ]

    @property
    def names(self) -> tuple[str, ...]:
        """The wrapped functions."""
        return self._patches.names

    def problems(self) -> list[str]:
        """Return a sentence for each event that this torch does not report; modules not yet imported are left out."""
        known = {
            "torch._inductor.output_code": DECISIONS,
            "torch._inductor.scheduler": PARTITIONS,
            "torch._inductor.cudagraph_trees": RECORDINGS,
        }
        features = [feature for module, feature in known.items() if module in sys.modules]
        return [feature.problem for feature in features if feature.problem is not None]

    def _watch_decisions(self) -> None:
        self._install(DECISIONS, (_POST_COMPILE, self._post_compile))

    def _watch_partitions(self) -> None:
        self._install(PARTITIONS, (_PARTITION, self._partition))

    def _watch_compile(self) -> None:
        self._install(COMPILE_LOGS, (_LOG_IN_COMPILE, self._log_in_compile))

    def _watch_backend(self) -> None:
        self._install(BACKEND, (_LOG_IN_BACKEND, self._log_in_backend))

    def _watch_tree(self) -> None:
        self._install(
            RECORDINGS,
            (_RUN, self._run),
            (_RECORD, self._record),
            (_DEALLOCATE, self._deallocate),
            (_END_EXECUTION, self._end_execution),
            (_LOG_IN_TREE, self._log_in_tree),
            (_WRAP, self._wrap),
        )

    def _install(self, feature: Feature, *hooks: tuple[str, Callable[..., _Steps]]) -> None:
        if self._is_wanted and feature.problem is None:
            for need, hook in hooks:
                self._patches.around(*owner_of(need), hook)

    @contextlib.contextmanager
    def compiling(self, graph: GraphModule) -> Iterator[None]:
        """Keep Dynamo's graph while a backend compiles it: a graph from Inductor's cache has no lines."""
        self._thread.graph = graph
        try:
            yield
        finally:
            self._thread.graph = None

    # -- Inductor decides: the compiling thread ------------------------------------------------------------------------

    def _partition(self, scheduler: object, *_: object, **__: object) -> _Steps:
        result, problem = yield None
        self._thread.left_out = []
        if problem is None and _settings().triton.cudagraphs:
            partitions, signatures = result
            skipped = [
                node
                for partition, signature in zip(partitions, signatures, strict=False)
                if signature.skip_cudagraph
                for node in partition
            ]
            self._thread.left_out = list(_left_out(scheduler, skipped))

    def _post_compile(
        self, compiled: object, example_inputs: object, constants: object, graph_kwargs: Any, *_: object, **__: object
    ) -> _Steps:
        before = bool(graph_kwargs.get("cudagraphs"))
        is_wanted = before or bool(_settings().triton.cudagraphs)
        problem = (yield None).error
        left_out, self._thread.left_out = self._thread.left_out, []
        if problem is not None or not is_wanted:
            return
        is_backward = bool(graph_kwargs.get("is_backward"))
        reason = _decision(compiled, self._thread.graph)
        if reason is None and not graph_kwargs.get("cudagraphs"):
            if not is_backward or before:
                return
            reason = Reason(FORWARD, "its forward has no CUDA graph")
        compile_id = _current_compile_id()
        if reason is not None:
            self._report(_facts(SKIPPED, reason, compile_id=compile_id, is_backward=is_backward))
            return
        for each in left_out:
            self._report(_facts(PARTIAL, each, compile_id=compile_id, is_backward=is_backward))

    def _log_in_compile(self, message: str, *_: object, **__: object) -> _Steps:
        self._report(_facts(SKIPPED, read_reason(str(message)), compile_id=_current_compile_id()))
        yield None

    def _log_in_backend(self, message: str, *_: object, **__: object) -> _Steps:
        is_backward = calling_frame().f_code.co_name.startswith("backward")
        reason = read_reason(str(message))
        self._report(_facts(SKIPPED, reason, compile_id=_current_compile_id(), is_backward=is_backward))
        yield None

    # -- the tree records and replays: the calling thread --------------------------------------------------------------

    def _wrap(self, model: object, *_: object, **named: object) -> _Steps:
        compile_id = _current_compile_id()
        if named.get("compile_id") is None and compile_id is not None:
            with contextlib.suppress(TypeError):
                self._compile_ids[model] = compile_id
        yield None

    def _run(self, manager: Any, new_inputs: object, function_id: object) -> _Steps:
        thread = self._thread
        thread.calls.append(_Call(manager, function_id))
        try:
            problem = (yield None).error
        finally:
            thread.calls.pop()
        node = manager.current_node
        if problem is None and node is not None and node.wrapped_function.id == function_id:
            site = call_site(sys._getframe())
            if site is not None:
                self._tree(manager).made_at[node] = site
        if not thread.calls:
            waiting, thread.waiting = thread.waiting, []
            for facts in waiting:
                self._report(facts)

    def _tree(self, manager: object) -> _Tree:
        return self._trees.setdefault(manager, _Tree())

    def _record(self, manager: Any, new_inputs: Any, function_id: object) -> _Steps:
        tree = self._tree(manager)
        sizes = {index: value for index, value in enumerate(new_inputs) if type(value) is int}
        again = _why_again(manager, tree, new_inputs, function_id, sizes)
        problem = (yield None).error
        if problem is not None:
            return
        tree.counts[function_id] = tree.counts.get(function_id, 0) + 1
        tree.sizes[function_id] = sizes
        function = manager.ids_to_funcs[function_id]
        count = sum(tree.counts[each] for each in tree.counts if manager.ids_to_funcs[each].model is function.model)
        outcome, reason = (RERECORDED, again) if again is not None else (RECORDED, Reason("", "recorded"))
        self._wait(manager, function_id, outcome, reason, count=count)

    def _log_in_tree(self, message: str, *_: object, **__: object) -> _Steps:
        yield None
        if self._thread.calls:
            call = self._thread.calls[-1]
            self._wait(call.manager, call.function_id, SKIPPED, read_reason(str(message)))

    def _wait(self, manager: Any, function_id: object, outcome: str, reason: Reason, *, count: int = 1) -> None:
        site = call_site(sys._getframe())
        facts = _facts(
            outcome,
            reason,
            compile_id=self._compile_id(manager, function_id),
            is_backward=manager.id_to_mode[function_id].name == "BACKWARD",
        )
        if site is not None:
            # Torch has no line for a size: report the line of the call with the new size.
            place = site.place if facts.cause == SIZE and facts.place is None else facts.place
            facts = replace(facts, caller=site.place, place=place)
        self._thread.waiting.append(replace(facts, count=count))

    def _compile_id(self, manager: Any, function_id: object) -> str | None:
        known = manager.id_to_compile_id.get(function_id)
        if known is not None:
            return str(known)
        with contextlib.suppress(TypeError):
            return self._compile_ids.get(manager.ids_to_funcs[function_id].model)
        return None

    def _deallocate(self, manager: object) -> _Steps:
        self._overwritten(manager, "reading the kept output raises RuntimeError from now on")
        yield None

    def _end_execution(self, manager: Any) -> _Steps:
        # A replay writes to the same memory, and torch does not check for other references to it.
        if manager.current_node is not None and manager.can_start_new_generation():
            self._overwritten(manager, "the kept output gets the values of this run, without an error")
        yield None

    def _overwritten(self, manager: Any, effect: str) -> None:
        """Report outputs of earlier runs that the program keeps, before this run overwrites them."""
        tree, site = self._tree(manager), call_site(sys._getframe())
        for node in manager.current_node._path_from_root:
            kept = tree.made_at.get(node)
            function_id = node.wrapped_function.id
            if kept is None or site is None or not _is_kept(node, kept, site):
                continue
            key = (function_id, kept.place, site.place)
            if key in tree.reported:
                continue
            tree.reported.add(key)
            reason = Reason(KEPT, effect, kept.place, kept.function)
            facts = _facts(
                OVERWRITTEN,
                reason,
                compile_id=self._compile_id(manager, function_id),
                is_backward=manager.id_to_mode[function_id].name == "BACKWARD",
            )
            # Report now: torch does not capture yet, and the output still has its values.
            self._report(replace(facts, caller=site.place))


def _facts(outcome: str, reason: Reason, *, compile_id: str | None, is_backward: bool = False) -> CudaGraphFacts:
    return CudaGraphFacts(
        outcome,
        reason.cause or None,
        reason.text,
        reason.place,
        reason.function,
        compile_id=compile_id,
        is_backward=is_backward,
    )


def _settings() -> Any:
    return sys.modules["torch._inductor.config"]


def _current_compile_id() -> str | None:
    current = DECISIONS.resolve(_COMPILE_ID)() if DECISIONS.problem is None else None
    return None if current is None else str(current)


def _decision(compiled: object, graph: Graph) -> Reason | None:
    """Return why a compiled graph has no CUDA graph; None if it has one, or if unknown."""
    message = getattr(compiled, "disabled_cudagraphs_reason", None)
    if message:
        reason = read_reason(str(message))
        if reason.cause == CPU and reason.place is None and graph is not None:
            # No operation runs on a GPU: report the line of the first.
            places = (user_place(node) for node in nodes_of(graph) if node.op.startswith("call_"))
            first = next((found for found in places if found is not None), None)
            return reason if first is None else replace(reason, place=first[0], function=first[1])
        return reason
    failed = getattr(getattr(compiled, "cudagraph_info", None), "cudagraph_fail_reasons", None)
    return read_reason(", ".join(map(str, failed))) if failed else None


def _left_out(scheduler: Any, nodes: list[object]) -> Iterator[Reason]:
    """Yield why operations stay outside CUDA graphs, once for each cause and line."""
    known = set[tuple[str, Any]]()
    for node in nodes:
        message = scheduler.should_partition(node)
        found = _place_of_operation(node)
        reason = None if message is None else read_reason(str(message))
        if reason is None or found is None or (reason.cause, found[0]) in known or len(known) >= _MAXIMUM_LEFT_OUT:
            continue
        known.add((reason.cause, found[0]))
        yield replace(reason, place=found[0], function=found[1])


def _place_of_operation(node: Any) -> Any:
    """Return the line and the function of an operation; of fused ones, those of the first.

    The origins of an operation include those of its arguments; the operation itself is the last of them in the graph.
    """
    found = []
    for each in node.get_nodes():
        origins = getattr(each.node, "origins", None) or ()
        order = {origin: index for one in list(origins)[:1] for index, origin in enumerate(one.graph.nodes)}
        last = max(origins, key=lambda origin: order.get(origin, -1), default=None)
        place = None if last is None else user_place(last)
        found += [] if place is None else [place]
    return min(found, default=None)


def _why_again(
    manager: Any, tree: _Tree, inputs: list[object], function_id: object, sizes: dict[int, int]
) -> Reason | None:
    """Return why no existing recording matches this call; None without recordings."""
    parent = manager.current_node
    siblings = (manager.roots if parent is None else parent.children).get(function_id) or ()
    for sibling in siblings:
        # Pass a copy: if everything matches, torch removes inputs from the list.
        status, text = sibling.check_invariants(list(inputs))
        if status.name != "SUCCESS":
            reason = read_mismatch(str(text()))
            if reason.cause == LIVENESS:
                return replace(
                    reason, text="an output of an earlier run is still alive; it was freed when the graph was recorded"
                )
            return reason
    function = manager.ids_to_funcs[function_id]
    for other, earlier in reversed(tree.sizes.items()):
        if other == function_id or manager.ids_to_funcs[other].model is not function.model:
            continue
        for index, value in sizes.items():
            if index in earlier and earlier[index] != value:
                place, name = _place_of_input(function.placeholders[index])
                return Reason(SIZE, f"a size is {value}, and was {earlier[index]} when it was recorded", place, name)
    return None


def _place_of_input(placeholder: Node) -> Any:
    """Return the first line that uses an input, and its function."""
    for each in (placeholder, *placeholder.users):
        places = list(places_in(each.stack_trace or ""))
        if places:
            return places[-1]
    return None, None


def _is_kept(node: Node, kept: CallSite, now: CallSite) -> bool:
    """Return whether the program holds an output of ``node``, apart from the name that this statement rebinds."""
    is_bound_again = kept.is_same_call(now) and kept.binds_a_name
    if not _is_alive(node, is_bound_again, []):
        return False
    # Reading a frame's variables leaves references in a dict of the frame. They do not count as the program's.
    shown = [snapshot for frame in _frames(sys._getframe()) if (snapshot := locals_snapshot(frame)) is not None]
    return not shown or _is_alive(node, is_bound_again, shown)


def _frames(top: types.FrameType) -> Iterator[types.FrameType]:
    frame: types.FrameType | None = top
    while frame is not None:
        yield frame
        frame = frame.f_back


def _is_alive(node: Any, is_bound_again: bool, shown: list[dict[str, object]]) -> bool:
    for index, reference in enumerate(node.outputs_weakrefs):
        if reference is None or reference() is None:
            continue
        if not is_bound_again or _holders(node, index, shown) > 1:
            return True
    return False


def _holders(node: Node, index: int, shown: list[dict[str, object]]) -> int:
    """Return the number of Python references to an output, without torch's own and those in ``shown``."""
    cached = getattr(node, "cached_tensor_outputs", None) or ()
    tensor = cached[index] if index < len(cached) else None
    own = 0 if tensor is None else 1
    references = getattr(node, "tensor_weakrefs", None) or ()
    if tensor is None and index < len(references) and references[index] is not None:
        tensor = references[index]()
    if tensor is None:
        return 0
    own += sum(value is tensor for names in shown for value in names.values())
    # Two references are ours: the name here, and the argument.
    return sys.getrefcount(tensor) - 2 - own
