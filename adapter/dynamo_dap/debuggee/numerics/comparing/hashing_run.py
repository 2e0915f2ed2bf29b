"""Writes digests of the inputs and outputs of compiled graphs, for ``dynamo-dap diff --values``.

Hashes a call when it returns, and its gradients after a backward pass through it. For some calls it also runs Dynamo's
graph again, and hashes the result of each operation. Runs on the thread that makes the call, and on that of the
backward pass.
"""

from __future__ import annotations

import threading
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

import msgspec

from dynamo_dap.debuggee.agent.log import log_exception
from dynamo_dap.debuggee.agent.user_code import is_torch_file
from dynamo_dap.debuggee.numerics.comparing.compared_calls import (
    NEEDED,
    graph_of_call,
    needs_gradients,
    outputs_of,
    with_initial_randomness,
)
from dynamo_dap.debuggee.numerics.comparing.tensor_hashes import digest_of
from dynamo_dap.debuggee.numerics.faults.comparisons import Reference
from dynamo_dap.debuggee.numerics.gradients.gradient_run import GRADIENTS, is_backward_compiled
from dynamo_dap.debuggee.numerics.gradients.returned_gradients import BackwardPass, ReturnedGradients
from dynamo_dap.debuggee.numerics.graphs.differences import widened
from dynamo_dap.debuggee.recording.function_names import name_of_call
from dynamo_dap.debuggee.replay.graph_calls import GRAPH_CALLS, CallObserver, GraphCall
from dynamo_dap.debuggee.replay.replayed_graph import ReplayedGraph, place_of
from dynamo_dap.debuggee.torch_api.code_objects.dynamo_names import user_function_name
from dynamo_dap.debuggee.torch_api.code_objects.generated_code import original_of
from dynamo_dap.debuggee.torch_api.compiles.backends import draws_its_own_numbers
from dynamo_dap.debuggee.torch_api.compiles.compile_hooks import HOOKS, CompileObserver, CompileResult, FrameCompile
from dynamo_dap.debuggee.torch_api.compiles.compile_records import NOTED_PATHS
from dynamo_dap.debuggee.torch_api.graphs.graph import target_name
from dynamo_dap.debuggee.torch_api.graphs.graph_runs import NoRealValue, has_own_memory
from dynamo_dap.debuggee.torch_api.graphs.real_values import limits_of_real_values
from dynamo_dap.debuggee.torch_api.isolation import data_reading, random_state
from dynamo_dap.debuggee.torch_api.objects import Node
from dynamo_dap.debuggee.torch_api.traced.fake_evaluation import flattened
from dynamo_dap.debuggee.torch_api.traced.replays import CachedCall
from dynamo_dap.debuggee.torch_api.traced.traced_paths import PATHS
from dynamo_dap.debuggee.wrapping.locks import Level, lock
from dynamo_dap.protocol.requests.hashed_calls import RANDOM_STATE, HashedCall, HashedValue
from dynamo_dap.protocol.texts import first_line_of

_CALLS_WITH_OPERATIONS = 8
"""The number of first calls of each graph whose operations are hashed, in addition to calls 16, 32, ..."""
_OPERATIONS = ("call_function", "call_method", "call_module")


class HashingRun(CallObserver, CompileObserver):
    """Hashes the calls of a program without a debugger. Lives as long as the program."""

    feature = "hashing values"

    def __init__(self, path: Callable[[], Path]) -> None:
        """Write to the file that ``path`` returns for the present process."""
        self._path = path
        self._lock = lock("hashed calls", Level.DATA)

    def begin(self) -> None:
        """Start to observe calls; torch has been imported.

        Raises:
            FeatureMissing: this torch lacks a name that hashing needs.
        """
        for feature in NEEDED:
            feature.require()
        HOOKS.want(self, (CompileObserver.compile_ended,))
        NOTED_PATHS.want(self, wanted=True)
        GRAPH_CALLS.want(self, limits_of_real_values().bytes)

    def compile_ended(self, compiling: FrameCompile, result: CompileResult, problem: BaseException | None) -> None:
        """Observe the calls of the compiled code."""
        if result.code is not None:
            GRAPH_CALLS.compiled(result.code)

    def returned(self, call: GraphCall) -> None:
        """Write the digests of a call's inputs, outputs and, for some calls, operations."""
        cached_call = call.as_cached_call()
        if cached_call is None:
            return
        try:
            hashed = _hashed(call, cached_call)
            graph = self._take_operations(call, cached_call, hashed)
            self._write(hashed)
            self._await_backward(call, hashed, graph)
        except Exception as problem:  # noqa: BLE001  (whatever it is, the program continues)
            log_exception("hashing the values of a call")
            self.left_out(call.frame.f_code, type(problem).__name__)

    def left_out(self, code: types.CodeType, reason: str) -> None:
        """Write that the values of a function's calls are unknown."""
        original = original_of(code) or code
        name, place = user_function_name(code), (original.co_filename, original.co_firstlineno)
        self._write(HashedCall(name, "?", 0, *place, [], [], problem=reason))

    def _take_operations(self, call: GraphCall, cached_call: CachedCall, hashed: HashedCall) -> ReplayedGraph | None:
        number = call.graph.calls
        if number > _CALLS_WITH_OPERATIONS and number & (number - 1):
            hashed.problem = (
                f"operations are hashed only in the first {_CALLS_WITH_OPERATIONS} calls and in some later ones"
            )
            return None
        try:
            with with_initial_randomness(call):
                return _operations_into(hashed, call, cached_call)
        except Exception as problem:  # noqa: BLE001  (whatever an operation raises)
            hashed.problem = first_line_of(problem)
            return None

    def _await_backward(self, call: GraphCall, hashed: HashedCall, graph: ReplayedGraph | None) -> None:
        outputs = outputs_of(call)
        if not needs_gradients(outputs) or is_backward_compiled() or GRADIENTS.problem is not None:
            return
        names_of_outputs = [each.name for each in hashed.outputs]
        names = _names(graph, len(call.inputs))

        def on_gradients(ended: BackwardPass) -> None:
            try:
                with data_reading():
                    arrived = list(_digests(zip(names_of_outputs, ended.arrived, strict=False)))
                    returned = list(_digests(zip(names, ended.returned, strict=False)))
                self._write(
                    msgspec.structs.replace(
                        hashed, inputs=arrived, outputs=returned, operations=[], problem=None, is_backward=True
                    )
                )
            except Exception:  # noqa: BLE001  (whatever it is, the program continues)
                log_exception("hashing gradients")

        ReturnedGradients(outputs, call.inputs, on_gradients)

    def _write(self, hashed: HashedCall) -> None:
        with self._lock, self._path().open("ab") as file:
            file.write(msgspec.json.encode(hashed) + b"\n")


def _hashed(call: GraphCall, cached_call: CachedCall) -> HashedCall:
    given, outputs = call.given, outputs_of(call)
    with data_reading():
        inputs = list(_digests(zip(_names(None, len(given)), map(call.before, given), strict=True)))
        results = [(f"output {at}", each) for at, each in enumerate(outputs)]
        results += [(f"input {at} after the call", given[at]) for at in sorted(call.graph.written or ())]
        returned = list(_digests(results))
    if call.kept.random and call.graph.draws:
        with with_initial_randomness(call):
            inputs += _digests([(RANDOM_STATE, random_state())])
    return HashedCall(
        name_of_call(cached_call),
        cached_call.compile_id,
        call.graph.calls,
        cached_call.code.co_filename,
        cached_call.code.co_firstlineno,
        inputs,
        returned,
        is_on_main_thread=threading.current_thread() is threading.main_thread(),
    )


def _digests(values: Iterable[tuple[str, object]]) -> Iterable[HashedValue]:
    for name, value in values:
        digest = digest_of(value)
        if digest is not None:
            yield HashedValue(name, digest)


def _names(graph: ReplayedGraph | None, count: int) -> list[str]:
    placeholders = [] if graph is None else [node for node in graph.nodes if node.op == "placeholder"]
    known = [graph.names.get(node, node.name) for node in placeholders] if graph is not None else []
    return [*known, *(f"input {at}" for at in range(len(known), count))]


class _HashedReference(Reference):
    """Runs a graph, and hashes each result at once, before later operations write to it."""

    def __init__(self, graph: ReplayedGraph) -> None:
        self.digests: dict[Node, str] = {}
        super().__init__(graph)

    def _note(self, node: Node, results: Mapping[Node, object]) -> None:
        super()._note(node, results)
        if node.prev.op == "root":
            self.digests.clear()
        if node.op in _OPERATIONS:
            with data_reading():
                each = [digest for value in flattened(results[node]) if (digest := digest_of(value)) is not None]
            if each:
                self.digests[node] = ",".join(each)


def _operations_into(hashed: HashedCall, call: GraphCall, cached_call: CachedCall) -> ReplayedGraph:
    """Run Dynamo's graph; add to ``hashed`` the operations' digests, the users' names of inputs, and output lines.

    Return the graph.

    Raises:
        NoRealValue: the graph cannot be run, or is not the graph that was called.
    """
    graph = graph_of_call(call, cached_call)
    if PATHS.why_not_valid(cached_call, graph.module.graph) is not None:
        raise NoRealValue("the graph of a replay differs from the compiled graph")
    reference = _HashedReference(graph)
    names = _names(graph, len(call.given))
    hashed.inputs = [_renamed(each, names) for each in hashed.inputs]
    hashed.outputs = [_renamed(each, names) for each in hashed.outputs]
    hashed.operations = [
        HashedValue(target_name(node), digest, *_line(node)) for node, digest in reference.digests.items()
    ]
    with_referee = not (call.graph.draws and draws_its_own_numbers(cached_call.backend))
    exact = reference.runs.exact() if with_referee else {}
    outputs = outputs_of(call)
    by_name = {f"output {at}": at for at in range(len(outputs))}
    for each in hashed.outputs:
        at = by_name.get(each.name)
        if at is None:
            continue
        node = graph.output_nodes[at]
        if hasattr(node, "op"):
            each.path, each.line = _line(node)
            each.name = f"{target_name(node)} (output {at})" if node.op in _OPERATIONS else each.name
            each.error, each.exact = _errors(outputs[at], exact.get(node.name))
    return graph


def _renamed(value: HashedValue, names: Sequence[str]) -> HashedValue:
    words = value.name.split(" ", 2)
    if words[0] == "input" and int(words[1]) < len(names):
        return msgspec.structs.replace(value, name=" ".join([names[int(words[1])], *words[2:]]))
    return value


def _line(node: Node) -> tuple[str | None, int | None]:
    place = place_of(node, is_torch_file)
    return (None, None) if place is None else (place[0].path, place[0].line)


def _errors(value: object, exact: object) -> tuple[float | None, float | None]:
    if not has_own_memory(value) or not has_own_memory(exact) or value.shape != exact.shape or not value.numel():
        return None, None
    if not (value.is_floating_point() or value.is_complex()):
        return None, None
    with data_reading():
        exact = widened(exact.detach())
        error, norm = float((widened(value.detach()) - exact).abs().max()), float(exact.norm())
    # Leave out infinities and NaNs, which JSON lacks.
    return (error, norm) if error < float("inf") and norm < float("inf") else (None, None)
