"""Stops for the outputs of a compiled call: the exception filters ``nan`` and ``mismatch``.

For ``nan``, the outputs of each compiled graph are checked when its call returns. If they have a NaN or an Inf, the
call is replayed, and its graph runs operation by operation on the call's inputs. A second replay stops at the line of
the operation that made the first NaN or Inf. There the operands are visible, and the program has not received the
outputs yet.

For ``mismatch``, Dynamo's graph runs operation by operation after each compared call. Its outputs are compared with
those of the compiled graph. A replay stops at the first line whose result differs.

Part of the compile-time engine. Runs on the thread that makes the call.
"""

from __future__ import annotations

import contextlib
import functools
import linecache
import math
import sys
import threading
import types
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from dynamo_dap.debuggee.agent.engine import Host
from dynamo_dap.debuggee.agent.log import log_exception
from dynamo_dap.debuggee.agent.stepping import RaisedException
from dynamo_dap.debuggee.agent.user_code import is_torch_file, is_user_file
from dynamo_dap.debuggee.numerics.comparing.compared_calls import (
    NEEDED,
    CallsDifferByChance,
    body_of,
    body_of_missing_exception,
    compared_if_valid,
    find_fault,
    graph_of_call,
    outputs_of,
    place_of_fault,
    with_initial_randomness,
)
from dynamo_dap.debuggee.numerics.comparing.returned_memory import ReturnedMemory, ReusedMemory, fault_of_memory
from dynamo_dap.debuggee.numerics.comparing.shown_values import ShownValues
from dynamo_dap.debuggee.numerics.faults.comparisons import Comparison, EagerRaises, Fault
from dynamo_dap.debuggee.numerics.faults.stage_search import DYNAMO
from dynamo_dap.debuggee.numerics.faults.stored_state import StoredDifference
from dynamo_dap.debuggee.numerics.graphs.not_finite import (
    INF,
    NAN,
    BadInput,
    BadOperation,
    Kinds,
    SeenTensors,
    find_origin,
    kinds_of,
    may_have_any,
)
from dynamo_dap.debuggee.numerics.stops.backward_mismatches import BackwardMismatches
from dynamo_dap.debuggee.numerics.stops.backward_passes import BackwardPasses
from dynamo_dap.debuggee.numerics.stops.backward_values import BackwardValues
from dynamo_dap.debuggee.numerics.stops.filter_conditions import holds_at, may_hold
from dynamo_dap.debuggee.numerics.stops.stop_texts import (
    ParameterState,
    mismatch,
    mismatch_in_stored,
    mismatch_of_invalid,
    mismatch_of_missing_exception,
    mismatch_of_operator,
    not_finite,
    not_finite_input,
)
from dynamo_dap.debuggee.recording.function_names import name_of_call
from dynamo_dap.debuggee.replay.graph_calls import GRAPH_CALLS, CallObserver, GraphCall, NotedAttributes
from dynamo_dap.debuggee.replay.replayed_graph import ReplayedGraph, graph_of, module_of, place_of
from dynamo_dap.debuggee.torch_api.code_objects.dynamo_names import readable_function_name, user_function_name
from dynamo_dap.debuggee.torch_api.code_objects.generated_code import original_of
from dynamo_dap.debuggee.torch_api.compiles.backends import draws_its_own_numbers
from dynamo_dap.debuggee.torch_api.compiles.compile_hooks import HOOKS, CompileObserver, CompileResult, FrameCompile
from dynamo_dap.debuggee.torch_api.compiles.compile_records import NOTED_PATHS
from dynamo_dap.debuggee.torch_api.graphs.graph import operation_name, target_name
from dynamo_dap.debuggee.torch_api.graphs.graph_runs import NoRealValue
from dynamo_dap.debuggee.torch_api.graphs.real_values import limits_of_real_values
from dynamo_dap.debuggee.torch_api.objects import Graph, Node, Translator
from dynamo_dap.debuggee.torch_api.traced.fake_evaluation import storage_of
from dynamo_dap.debuggee.torch_api.traced.replays import CachedCall, run_replay
from dynamo_dap.debuggee.torch_api.traced.traced_frame import TracedFrame, running_frame
from dynamo_dap.debuggee.torch_api.traced.traced_paths import PATHS, NotValid
from dynamo_dap.debuggee.torch_api.traced.tracing_hooks import NODE_HOOK, add_line_hook
from dynamo_dap.debuggee.torch_api.traced.variable_trackers import Place
from dynamo_dap.debuggee.trace.runs import ReplayRun
from dynamo_dap.debuggee.wrapping.patches import Patches
from dynamo_dap.protocol.requests.contract import MISMATCH
from dynamo_dap.protocol.requests.contract import NAN as NAN_FILTER
from dynamo_dap.protocol.texts import first_line_of, named_first_line_of

NOT_VALID = "not valid"
"""The entry in ``ObservedGraph.reported`` for a cache entry that is not valid."""


class StopTrace(Protocol):
    """Holds the thread at a traced function's present line."""

    def __call__(self, frame: TracedFrame, raised: RaisedException, *, names: dict[str, object]) -> None:
        """Hold the thread; the debug console can use ``names``."""


@dataclass(frozen=True)
class Culprit:
    """The operation or line of a call at which to stop."""

    node: int
    """The operation's number (see ``NodeHook``), which is the same in every trace of the call."""
    raised: RaisedException
    names: dict[str, object]
    """The names that the filter's condition can use."""
    filter: str
    call: CachedCall
    """The call to replay for the stop."""
    line: tuple[str, int] | None = None
    """The file and line at which to stop; None for the line of the operation."""
    visit: int | None = None
    """If set, stop at this visit of ``line`` instead of at ``node``."""


class ValueStops(CallObserver, CompileObserver):
    """Stops where a value is not finite or differs from eager. Its observer methods run on the call's thread."""

    feature = "the filters nan and mismatch"

    def __init__(self, host: Host, stop_trace: StopTrace, passes: BackwardPasses) -> None:
        """Report to ``host``, the agent. ``stop_trace`` holds threads in a replay, ``passes`` in a backward pass."""
        self._host = host
        self._backward = BackwardValues(host, passes)
        self._gradients = BackwardMismatches(host, passes)
        self.shown = ShownValues(host)
        self._stop_trace = stop_trace
        self._reported: set[str] = set()
        self._attributes = NotedAttributes()
        self._memory = ReturnedMemory()
        self._bad = SeenTensors()
        """The tensors with NaN or Inf that calls have returned."""

    # -- filters: any thread ---------------------------------------------------------------------------------------

    def update_hooks(self) -> None:
        """Observe the calls of graphs while a filter is on."""
        wanted = [name for name in _FEATURES if name in self._host.breakpoints.exception_filters]
        limit = self._limit(wanted) if wanted and self._host.options.compile_time else None
        HOOKS.want(self, () if limit is None else (CompileObserver.graph_made, CompileObserver.compile_ended))
        GRAPH_CALLS.want(self, limit)
        NOTED_PATHS.want(self, wanted=limit is not None and MISMATCH in wanted)

    def _limit(self, wanted: list[str]) -> int | None:
        try:
            for name in wanted:
                for feature in _FEATURES[name]:
                    feature.require()
            return limits_of_real_values().bytes
        except Exception as problem:  # noqa: BLE001  (whichever feature is missing or off)
            self._report_once(f"the exception filter '{wanted[0]}' is off: {problem}")
            return None

    def close(self) -> None:
        """Stop checking calls. Runs on any thread."""
        HOOKS.want(self, ())
        NOTED_PATHS.want(self, wanted=False)
        GRAPH_CALLS.want(self, None)
        self.shown.close()

    def _report_once(self, text: str) -> None:
        if text not in self._reported:
            self._reported.add(text)
            self._host.print(f"dynamo-dap: {text}\n", "important")

    # -- calls -----------------------------------------------------------------------------------------------------

    def compile_ended(self, compiling: FrameCompile, result: CompileResult, problem: BaseException | None) -> None:
        """Observe the calls of the compiled code."""
        attributes = self._attributes.take()
        if result.code is not None:
            GRAPH_CALLS.compiled(result.code, attributes)

    def graph_made(self, compiling: FrameCompile | None, graph: Graph) -> None:
        """Note the tensors of the program that belong to the graph."""
        self._attributes.note(graph)

    def returned(self, call: GraphCall) -> None:
        """Stop if the call made a NaN or Inf, or if its results differ from eager."""
        if self._host.is_holding:
            return
        filters = self._host.breakpoints.exception_filters
        if NAN_FILTER in filters:
            self._backward.returned(call)
        if NAN_FILTER in filters and may_have_any([call.outputs, call.written]):
            self._examine(call, NAN_FILTER, self._made_by)
        reused = self._memory.take(call) if MISMATCH in filters else None
        if MISMATCH in filters and (reused is not None or call.graph.calls % self._host.options.compare_every == 0):
            self._examine(call, MISMATCH, functools.partial(self._mismatch, reused=reused))

    def raised(self, call: GraphCall) -> None:
        """Stop if the call has raised and a custom operator of its graph breaks its declaration."""
        if not self._host.is_holding and MISMATCH in self._host.breakpoints.exception_filters:
            self._examine(call, MISMATCH, self._mismatch)

    def keeps_all(self, number: int) -> bool:
        """Return whether call ``number`` of a graph will be compared: then all of its inputs must be kept."""
        filters = self._host.breakpoints.exception_filters
        return MISMATCH in filters and number % self._host.options.compare_every == 0

    def left_out(self, code: types.CodeType, reason: str) -> None:
        """Report that the filters do not check a function's calls."""
        self._report_once(f"'NaN and Inf' and 'Differs from Eager' skip calls of {user_function_name(code)}: {reason}")

    def _examine(self, call: GraphCall, name: str, find: Callable[[GraphCall, CachedCall], Culprit | None]) -> None:
        cached_call = call.as_cached_call()
        if cached_call is None:
            return
        try:
            with self._host.holding(), with_initial_randomness(call):
                culprit = find(call, cached_call)
            if culprit is not None and may_hold(self._host, culprit.filter, culprit.names):
                self._hold(call, culprit)
        except Exception as problem:  # noqa: BLE001  (whatever it is, the program continues with its outputs)
            is_ours = isinstance(problem, NoRealValue)
            if not is_ours:
                log_exception(f"checking a call for '{name}'")
            reason = first_line_of(problem) if is_ours else named_first_line_of(problem)
            self._report_once(f"{_CANNOT[name].format(name_of_call(cached_call))}: {reason}")

    def _made_by(self, call: GraphCall, cached_call: CachedCall) -> Culprit | None:
        returned = [kinds_of(each) for each in outputs_of(call)]
        written = [(each, kinds_of(each) - kinds_of(call.before(each))) for each in call.written]
        if not any(returned) and not any(kinds for _, kinds in written):
            return None
        graph = graph_of_call(call, cached_call)
        self._bad.add([each for each, kinds in zip(outputs_of(call), returned, strict=True) if kinds])
        left = {node: kinds for each, kinds in written if kinds and (node := graph.node_of(each)) is not None}
        origin = find_origin(graph, returned, left)
        made, kind, caller = origin.made, origin.kind, _place_of_caller(call.frame)
        if isinstance(made, BadOperation):
            changed = self._changed_inputs(call, graph)
            because = made.because(graph.names)
            raised = not_finite(made, kind, _place_text(made.node, graph.call, caller), changed, because=because)
            number = graph.number_of(made.node, made.operator)
            return Culprit(number, raised, {"__value__": made.value, "__kind__": kind}, NAN_FILTER, graph.call)
        if isinstance(made, BadInput) and not graph.is_state(made.node):
            return None if made.value in self._bad else self._given(call, graph, made, _text_of(caller))
        of_backend = self._of_backend(graph, returned, origin.outputs) if made is None else None
        if of_backend is None:
            return self._bad_parameter(call, graph)
        if call.graph.draws and draws_its_own_numbers(cached_call.backend):
            what = _CANNOT[NAN_FILTER].format(name_of_call(cached_call))
            self._report_once(f"{what}: Inductor draws other random numbers than a replay")
            return None
        return of_backend

    def _given(self, call: GraphCall, graph: ReplayedGraph, given: BadInput, where: str | None) -> Culprit | None:
        """Return the stop for an input that already had a NaN when the call began. Each input is reported once."""
        name = graph.names.get(given.node, given.node.name)
        if name in call.graph.reported:
            return None
        call.graph.reported.add(name)
        user = next((each for each in given.node.users if each in graph.numbers), None)
        number = max(graph.numbers.values()) if user is None else graph.numbers[user]
        raised = not_finite_input(name, given, where or user_function_name(graph.call.code))
        return Culprit(number, raised, {"__value__": given.value, "__kind__": NAN}, NAN_FILTER, graph.call)

    def _mismatch(self, call: GraphCall, cached_call: CachedCall, reused: ReusedMemory | None = None) -> Culprit | None:
        try:
            comparison = compared_if_valid(call, cached_call)
        except CallsDifferByChance as problem:
            self._report_once(f"calls of {name_of_call(cached_call)} are not compared: {problem}")
            return None
        except EagerRaises as found:
            return self._of_missing_exception(call, cached_call, found)
        if isinstance(comparison, NotValid):
            return _of_invalid(call, cached_call, comparison)
        if call.problem is None:
            fault, missing = find_fault(call, cached_call, comparison)
        else:
            fault, missing = comparison.fault_of_operator(), None
        if fault is None and reused is not None:
            fault = fault_of_memory(reused, comparison)
        if fault is None and call.problem is None:
            self._gradients.expect(call, cached_call, comparison)
        if fault is None or _was_reported(call, comparison, fault):
            return None
        body = self._host.comparison = body_of(call, cached_call, comparison, fault, missing)
        if fault.stored is not None:
            return _culprit_of_stored_value(comparison, fault, fault.stored, body.verdict)
        node = fault.node or _worst_node(comparison)
        where = _text_of(place_of_fault(fault) if fault.node is not None else None) or _place_text(
            node, comparison.graph.call
        )
        if fault.operator is None:
            raised = mismatch(fault, comparison.worst, body.verdict, operation_name(node), where)
        else:
            raised = mismatch_of_operator(
                fault, _outcome_text(call, comparison), body.verdict, target_name(node), where
            )
        names = {
            "__value__": fault.value,
            "__expected__": comparison.reference.values.get(node),
            "__difference__": fault.difference.largest,
            "__stage__": body.stage,
        }
        number = comparison.graph.number_of(node, fault.within)
        return Culprit(number, raised, names, MISMATCH, comparison.graph.call, fault.line)

    def _of_missing_exception(self, call: GraphCall, cached_call: CachedCall, found: EagerRaises) -> Culprit:
        """Blame the stage that loses an exception, at the operation that raises it in eager.

        Raises:
            NoRealValue: it is not proven that ordinary Python raises the exception, too.
        """
        body = self._host.comparison = body_of_missing_exception(call, cached_call, found)
        names: dict[str, object] = {"__difference__": math.inf, "__stage__": body.stage}
        raised = mismatch_of_missing_exception(found.problem, body.verdict, _place_text(found.node, found.graph.call))
        names |= {"__value__": None, "__expected__": None}
        return Culprit(found.graph.numbers[found.node], raised, names, MISMATCH, found.graph.call)

    def _of_backend(self, graph: ReplayedGraph, new: list[Kinds], replayed: list[Kinds]) -> Culprit | None:
        """Blame the backend at the first output with a NaN or Inf that is not in the replayed output."""
        for position, (node, kinds) in enumerate(zip(graph.output_nodes, new, strict=True)):
            other = kinds - replayed[position]
            if other and hasattr(node, "op") and node.op not in ("placeholder", "get_attr"):
                kind = NAN if NAN in other else INF
                raised = not_finite(None, kind, _place_text(node, graph.call))
                return Culprit(
                    graph.numbers[node], raised, {"__value__": None, "__kind__": kind}, NAN_FILTER, graph.call
                )
        return None

    def _bad_parameter(self, call: GraphCall, graph: ReplayedGraph) -> Culprit | None:
        """Return the stop for a parameter or buffer that had a NaN or Inf when the call began; once for each."""
        for node, value in graph.inputs.items():
            kinds = kinds_of(value) if graph.is_state(node) else frozenset()
            user = next((each for each in node.users if each.op != "output"), None)
            name = graph.names.get(node, node.name)
            if not kinds or user is None or name in call.graph.reported:
                continue
            call.graph.reported.add(name)
            kind = NAN if NAN in kinds else next(iter(kinds))
            gradient = kinds_of(value.grad) if value.is_leaf and value.grad is not None else None
            state = ParameterState(name, call.graph.calls, gradient)
            raised = not_finite(BadOperation(node, kind, value, 0), kind, _place_text(user, graph.call), state=state)
            return Culprit(graph.numbers[user], raised, {"__value__": value, "__kind__": kind}, NAN_FILTER, graph.call)
        return None

    def _changed_inputs(self, call: GraphCall, graph: ReplayedGraph) -> list[str]:
        """Return the names of inputs that the call changed and whose earlier contents were not kept."""
        memory = {storage_of(call.inputs[position]) for position in call.kept.left_out}
        return [graph.names[node] for node, value in graph.inputs.items() if storage_of(value) in memory]

    # -- stopping --------------------------------------------------------------------------------------------------

    def _hold(self, call: GraphCall, culprit: Culprit) -> None:
        """Replay the call, and hold the thread at the line of ``culprit``."""
        before, lines = contextlib.ExitStack(), Patches("stopping at a value's line")
        before.enter_context(self._host.holding())  # the call's breakpoints were hit when it began

        stopped = False

        def stop_at(frame: TracedFrame) -> None:
            nonlocal stopped
            stopped = True
            NODE_HOOK.want(None)
            lines.remove()
            before.close()
            self._stop_at(frame, culprit)
            if self._host.steps.current() is None:
                frame.end_trace()

        def on_node(_: object, number: int) -> None:
            frame = running_frame(sys._getframe()) if number == culprit.node else None
            if frame is not None:
                stop_at(frame)

        with with_initial_randomness(call), before:
            if culprit.line is not None and culprit.visit is not None:
                add_line_hook(lines, _Visits(culprit.line, culprit.visit, stop_at).on_reached)
            else:
                NODE_HOOK.want(on_node)
            try:
                run_replay(ReplayRun(culprit.call))
                if not stopped and culprit.visit is not None:  # Dynamo may trace another function than the line's
                    NODE_HOOK.want(on_node)
                    run_replay(ReplayRun(culprit.call))
            finally:
                NODE_HOOK.want(None)
                lines.remove()

    def _stop_at(self, innermost: TracedFrame, culprit: Culprit) -> None:
        chain = innermost.running(sys._getframe())
        frame = next((each for each in chain if not is_torch_file(each.path)), innermost)
        if culprit.line is not None:
            frame = next((each for each in chain if (each.path, each.line) == culprit.line), frame)
        if holds_at(self._host, culprit.filter, frame, culprit.names):
            self._stop_trace(frame, culprit.raised, names=culprit.names)


def _worst_node(comparison: Comparison) -> Any:
    """Return the output that differs most; the last operation if no output belongs to an operation."""
    outputs = zip(comparison.graph.output_nodes, comparison.of_outputs, strict=False)
    numbered = [(node, how) for node, how in outputs if node in comparison.graph.numbers]
    if not numbered:
        return max(comparison.graph.numbers, key=comparison.graph.numbers.__getitem__)
    return next((node for node, how in numbered if how is comparison.worst), numbered[0][0])


def _outcome_text(call: GraphCall, comparison: Comparison) -> str:
    if call.problem is not None:
        return f"The compiled call raises {named_first_line_of(call.problem)}"
    if comparison.differs:
        return f"The compiled call returns another value: {comparison.worst.text}."
    return "The results of this call do not differ."


def _was_reported(call: GraphCall, comparison: Comparison, fault: Fault) -> bool:
    """Return whether a stop would repeat an earlier one.

    The wrong declaration of a custom operator is reported once, unless it makes the call wrong.
    """
    if fault.operator is None or comparison.differs or call.problem is not None:
        return False
    known = fault.node.name in call.graph.reported
    call.graph.reported.add(fault.node.name)
    return known


class _Visits:
    """Counts a trace's visits of a line. Lives for that trace."""

    def __init__(self, line: tuple[str, int], number: int, stop_at: Callable[[TracedFrame], None]) -> None:
        self._line = line
        self._number = number
        self._stop_at = stop_at
        self._thread = threading.get_ident()
        self._attempt: object = None
        self._lines: dict[int, int] = {}
        self._count = 0

    def on_reached(self, translator: Translator) -> None:
        """Count a visit once, though ``LineHooks`` reports the line at each of its instructions."""
        if threading.get_ident() != self._thread:
            return
        frame = TracedFrame(translator)
        if self._attempt is not frame.attempt:  # the analysis restarted
            self._attempt, self._lines, self._count = frame.attempt, {}, 0
        before = self._lines.get(id(translator))
        self._lines[id(translator)] = frame.line
        if before != frame.line and (frame.path, frame.line) == self._line:
            self._count += 1
            if self._count == self._number:
                self._stop_at(frame)


def _of_invalid(call: GraphCall, cached_call: CachedCall, invalid: NotValid) -> Culprit | None:
    """Return the stop for a call whose cache entry is not valid for it; once for each compile."""
    if NOT_VALID in call.graph.reported:
        return None
    call.graph.reported.add(NOT_VALID)
    graph = graph_of(cached_call, None)
    here = PATHS.why_not_valid(cached_call, graph.module.graph) or invalid
    node = next((each for each in graph.nodes if each in here.unproven and each in graph.numbers), None)
    number = max(graph.numbers.values()) if node is None else graph.numbers[node]
    operation = here.replayed or here.compiled
    place = None if operation is None else operation.place
    where = _text_of(None if place is None else (place, ""))
    raised = mismatch_of_invalid(here.text, where or name_of_call(cached_call))
    return Culprit(number, raised, {"__stage__": DYNAMO}, MISMATCH, graph.call)


def _culprit_of_stored_value(comparison: Comparison, fault: Fault, what: StoredDifference, verdict: str) -> Culprit:
    """Return the stop for a call that stores a wrong value, though it returns right ones."""
    compiled, expected = what.values
    names = {"__value__": compiled, "__expected__": expected, "__difference__": math.inf, "__stage__": fault.stage}
    node = comparison.graph.output
    where = _text_of((Place(*fault.line, 1), "")) if fault.line is not None else None
    raised = mismatch_in_stored(what, verdict, where or _place_text(node, comparison.graph.call))
    visit = None if fault.line is None else fault.visit
    number = comparison.graph.numbers.get(node, max(comparison.graph.numbers.values()))
    return Culprit(number, raised, names, MISMATCH, comparison.graph.call, fault.line, visit)


def _place_text(node: Node, call: CachedCall, caller: tuple[Place, str] | None = None) -> str:
    """Return the user's line that made a node, as text: ``model.py:12 in forward: y = x.log()``.

    If only torch's own code made the node, as in an optimizer's step, return the line of the ``caller``.
    """
    found = place_of(node, is_torch_file)
    if found is not None and caller is not None and is_torch_file(found[0].path):
        return _text_of(caller) or target_name(node)
    module = module_of(node, call)
    if found is not None and module is not None:
        found = found[0], f"{found[1]} of {module}"
    return _text_of(found) or target_name(node)


def _place_of_caller(frame: types.FrameType) -> tuple[Place, str] | None:
    """Return the user's line that has called the function of ``frame``, and the line's function."""
    caller = frame.f_back
    while caller is not None:
        code = original_of(caller.f_code) or caller.f_code
        if is_user_file(code.co_filename):
            return Place(code.co_filename, caller.f_lineno, 1), code.co_name
        caller = caller.f_back
    return None


def _text_of(found: tuple[Place, str] | None) -> str | None:
    if found is None:
        return None
    place, function = found[0], readable_function_name(found[1])
    text = linecache.getline(place.path, place.line).strip()
    where = f"{place.path}:{place.line} in {function}" if function else f"{place.path}:{place.line}"
    return f"{where}: {text}" if text else where


_FEATURES = {NAN_FILTER: NEEDED[:2], MISMATCH: NEEDED}
_CANNOT = {
    NAN_FILTER: "a call of {} returned NaN or Inf; the line that made it is unknown",
    MISMATCH: "calls of {} cannot be compared",
}
