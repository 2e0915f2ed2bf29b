"""Compares a program's calls without a debugger, for ``dynamo-dap compare``.

Compares the results of selected calls when they return, and their gradients after a backward pass has run through them.
Writes each comparison to a file. Runs on the thread that makes the call, and on that of the backward pass.
"""

from __future__ import annotations

import atexit
import contextlib
import itertools
import os
import types
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from dynamo_dap.debuggee.agent.user_code import is_torch_file
from dynamo_dap.debuggee.numerics.comparing.compared_calls import (
    NEEDED,
    CallsDifferByChance,
    body_of,
    body_of_backward,
    body_of_failed_compile,
    body_of_lost_backward,
    body_of_missing_exception,
    body_of_raised_backward,
    body_without_graph,
    compared,
    compared_if_valid,
    find_fault,
    needs_gradients,
    outputs_of,
    with_initial_randomness,
)
from dynamo_dap.debuggee.numerics.comparing.returned_memory import (
    ReturnedMemory,
    ReusedMemory,
    fault_of_memory,
    memory_left_out,
)
from dynamo_dap.debuggee.numerics.faults.comparisons import Comparison, EagerRaises
from dynamo_dap.debuggee.numerics.faults.stage_search import AOT_AUTOGRAD, DYNAMO
from dynamo_dap.debuggee.numerics.gradients.gradient_comparisons import GradientComparison, problem_in_eager
from dynamo_dap.debuggee.numerics.gradients.gradient_run import GRADIENTS as DIFFERENTIATING
from dynamo_dap.debuggee.numerics.gradients.gradient_run import is_backward_compiled
from dynamo_dap.debuggee.numerics.gradients.kept_backward import KeptBackward
from dynamo_dap.debuggee.numerics.gradients.returned_gradients import BackwardPass, ReturnedGradients
from dynamo_dap.debuggee.recording.function_names import name_of_call, name_of_compile
from dynamo_dap.debuggee.replay.graph_calls import GRAPH_CALLS, CallObserver, GraphCall, NotedAttributes
from dynamo_dap.debuggee.replay.replayed_graph import place_of
from dynamo_dap.debuggee.torch_api.code_objects.dynamo_names import user_function_name
from dynamo_dap.debuggee.torch_api.compiles.backends import name_of
from dynamo_dap.debuggee.torch_api.compiles.compile_hooks import HOOKS, CompileObserver, CompileResult, FrameCompile
from dynamo_dap.debuggee.torch_api.compiles.compile_records import NOTED_PATHS
from dynamo_dap.debuggee.torch_api.compiles.errors import BackendFailure, error_behind, failure_of, is_failure_of_dynamo
from dynamo_dap.debuggee.torch_api.compiles.failed_lines import FailedLines
from dynamo_dap.debuggee.torch_api.compiles.graph_breaks import frame_of_break, is_control_flow, is_graph_break
from dynamo_dap.debuggee.torch_api.compiles.raised_calls import RaisedCall, RaisedCalls
from dynamo_dap.debuggee.torch_api.features import FeatureMissing
from dynamo_dap.debuggee.torch_api.graphs.graph_runs import NoRealValue
from dynamo_dap.debuggee.torch_api.graphs.real_values import limits_of_real_values
from dynamo_dap.debuggee.torch_api.isolation import switches
from dynamo_dap.debuggee.torch_api.objects import Graph
from dynamo_dap.debuggee.torch_api.traced.replays import CachedCall
from dynamo_dap.debuggee.torch_api.traced.traced_frame import TracedFrame
from dynamo_dap.debuggee.torch_api.traced.traced_paths import NotValid
from dynamo_dap.debuggee.torch_api.traced.variable_trackers import Place
from dynamo_dap.debuggee.wrapping.locks import Level, lock
from dynamo_dap.protocol.requests.comparisons import CALLS, GRADIENTS, RUNNING, ComparisonBody
from dynamo_dap.protocol.texts import first_line_of, named_first_line_of

_OF_TORCH = ("Inductor", AOT_AUTOGRAD)
"""If one of these steps of a compile fails, the report names the step; otherwise it names the backend."""
_MAXIMUM_PASSES = 4
"""The maximum number of backward passes through one call that are compared."""
_MAXIMUM_AWAITED = 64
"""The maximum number of calls of one graph that are kept in case their backward pass raises."""

_Awaited = tuple["weakref.ref[KeptBackward]", "weakref.ref[ReturnedGradients]"]
"""A call, and the object that collects its gradients."""


class ComparingRun(CallObserver, CompileObserver):
    """Compares the calls of a program without a debugger. Lives as long as the program."""

    feature = "comparing calls"

    def __init__(self, path: str, every: int, report: Callable[[str], None]) -> None:
        """Compare every ``every``-th call of each graph (0: calls 1, 2, 4, 8, ...), and write the results to ``path``.

        ``report`` prints a line for the user.
        """
        self._path = Path(path)
        self._every = every
        self._report = report
        self._reported: set[str] = set()
        self._lock = lock("compared calls", Level.FEATURES)
        self._attributes = NotedAttributes()
        self._memory = ReturnedMemory()
        self._raised = RaisedCalls(self._pass_raised, self._awaited_codes)
        self._awaited: dict[
            int, tuple[weakref.ref[types.CodeType], deque[tuple[weakref.ref[Any], weakref.ref[Any]]]]
        ] = {}
        """By identity of generated code: the code, and its calls whose gradients may still arrive."""
        self._failed_at: Place | None = None
        """The line at which the trace of the present compile has raised, if it has."""
        self._backend_failure: BackendFailure | None = None
        self._backend_failed_at: Place | None = None
        """The line whose operation the backend could not compile, if known."""
        self._failed_lines = FailedLines()
        self._calls = itertools.count()
        """Counts the calls of all compiled graphs: most of them are not compared."""
        self._process = os.getpid()

    def begin(self) -> None:
        """Start to observe compiles and calls; torch has been imported."""
        for feature in NEEDED:
            if feature.problem is not None:
                self._report(f"dynamo-dap: {feature.problem}\n")
                return
        ends = (CompileObserver.compile_ended, CompileObserver.trace_failed, CompileObserver.backend_failed)
        HOOKS.want(self, (CompileObserver.graph_made, *ends))
        NOTED_PATHS.want(self, wanted=True)
        GRAPH_CALLS.want(self, limits_of_real_values().bytes)
        atexit.register(self._write_count)

    def _write_count(self) -> None:
        if os.getpid() != self._process:
            return  # a fork also has the count of its parent
        with Path(f"{self._path}{CALLS}").open("a", encoding="utf-8") as file:
            file.write(f"{self._process} {next(self._calls)}\n")

    def trace_failed(self, frame: TracedFrame, exception: Exception) -> None:
        """Note the line at which a trace has raised."""
        frames = (frame_of_break(exception) or frame).with_callers()
        innermost = next((each for each in frames if not is_torch_file(each.path)), frame)
        self._failed_at = Place(innermost.path, innermost.line, 1)

    def graph_made(self, compiling: FrameCompile | None, graph: Graph) -> None:
        """Note the tensors of the program that belong to the graph."""
        self._attributes.note(graph)
        self._raised.install()  # the parts of torch that it needs may be imported only now
        self._failed_lines.begin()

    def backend_failed(self, frame: TracedFrame, graph: Graph, problem: BaseException) -> None:
        """Note which step of the backend has failed."""
        self._backend_failure = failure_of(problem)
        if self._backend_failure is not None:
            places = self._failed_lines.places(self._backend_failure.inner)
            self._backend_failed_at = next((each for each in places if not is_torch_file(each.path)), None)

    def compile_ended(self, compiling: FrameCompile, result: CompileResult, problem: BaseException | None) -> None:
        """Observe the calls of the compiled code; if the compile raised, report why."""
        attributes = self._attributes.take()
        if result.code is not None:
            GRAPH_CALLS.compiled(result.code, attributes)
        failed_at, self._failed_at = self._failed_at, None
        failure, self._backend_failure = self._backend_failure, None
        backend_failed_at, self._backend_failed_at = self._backend_failed_at, None
        if problem is None or is_control_flow(problem) or (is_graph_break(problem) and not compiling.one_graph):
            return
        error = error_behind(problem)
        stage: str | None = None
        if failure is not None:
            text = named_first_line_of(failure.inner)
            stage = failure.step if failure.step in _OF_TORCH else name_of(compiling.backend)
            verdict, failed_at = f"{stage}. It raises {text} when it compiles the graph.", backend_failed_at
        elif is_failure_of_dynamo(problem):
            stage, verdict = DYNAMO, f"Dynamo. It raises {error.text} when it traces."
        else:
            verdict = f"the compile raises {(error.text.splitlines() or [''])[0]}; whether eager does is not known"
        self._write(
            body_of_failed_compile(
                name_of_compile(compiling),
                compiling.compile_id,
                name_of(compiling.backend),
                verdict,
                stage=stage,
                line=failed_at,
            )
        )

    def returned(self, call: GraphCall) -> None:
        """Compare a call if it is selected, or if it returns the memory of an earlier call; write the result."""
        next(self._calls)
        reused = self._memory.take(call)
        if reused is None and not self._is_wanted(call.graph.calls):
            return
        cached_call = call.as_cached_call()
        if cached_call is None:
            return
        try:
            with self._running(_description(call, cached_call)), with_initial_randomness(call):
                body = self._body_of_call(call, cached_call, reused)
            self._write(body)
        except Exception as problem:  # noqa: BLE001  (whatever it is, the program continues)
            self._cannot(call, cached_call, problem)

    def raised(self, call: GraphCall) -> None:
        """Write whether Dynamo's graph raises as well; the compiled graph has raised."""
        next(self._calls)
        cached_call = call.as_cached_call()
        if cached_call is None:
            return
        try:
            with self._running(_description(call, cached_call)), with_initial_randomness(call):
                self._write(_body_of_failure(call, cached_call))
        except Exception as problem:  # noqa: BLE001  (whatever it is, the program continues)
            self._cannot(call, cached_call, problem)

    def keeps_all(self, number: int) -> bool:
        """Return whether call ``number`` of a graph will be compared: then all of its inputs must be kept."""
        return self._is_wanted(number)

    def left_out(self, code: types.CodeType, reason: str) -> None:
        """Report that a function's calls are not compared."""
        self._report(f"dynamo-dap: calls of {user_function_name(code)} are not compared: {reason}\n")

    def _body_of_call(self, call: GraphCall, cached_call: CachedCall, reused: ReusedMemory | None) -> ComparisonBody:
        try:
            comparison = compared_if_valid(call, cached_call)
        except EagerRaises as found:
            return body_of_missing_exception(call, cached_call, found)
        if isinstance(comparison, NotValid):
            return _body_of_invalid(call, cached_call, comparison)
        comparison.compare_nodes()
        fault, missing = find_fault(call, cached_call, comparison)
        if fault is None and reused is not None:
            fault = fault_of_memory(reused, comparison)
        body = body_of(call, cached_call, comparison, fault, missing)
        body.not_compared.extend(memory_left_out(call))
        self._await_backward(call, cached_call, comparison, body)
        return body

    def _await_backward(
        self, call: GraphCall, cached_call: CachedCall, comparison: Comparison, body: ComparisonBody
    ) -> None:
        """Have the gradients of a call compared after the program's own backward pass has run through it."""
        if not needs_gradients(outputs_of(call)):
            return
        try:
            if is_backward_compiled():
                raise NoRealValue("backward passes are compiled (compiled autograd)")
            DIFFERENTIATING.require()
            kept = KeptBackward.of(call, cached_call, comparison.graph, [*switches(), *call.kept.random])
            returned = ReturnedGradients(outputs_of(call), call.inputs, lambda ended: self._compare_pass(kept, ended))
            kept.included, kept.shares = returned.included, returned.shares
            code = call.frame.f_code
            known, awaited = self._awaited.get(id(code), (None, None))
            if known is None or awaited is None or known() is not code:
                awaited = deque(maxlen=_MAXIMUM_AWAITED)
                self._awaited[id(code)] = weakref.ref(code), awaited
            awaited.append((weakref.ref(kept), weakref.ref(returned)))
        except (NoRealValue, FeatureMissing) as problem:
            body.not_compared = [each for each in body.not_compared if each != GRADIENTS]
            body.not_compared.append(f"{GRADIENTS}: {problem}")

    def _compare_pass(self, kept: KeptBackward, ended: BackwardPass) -> None:
        """Compare a backward pass that has run through a call, and write the result."""
        kept.passes += 1
        if kept.passes > _MAXIMUM_PASSES:
            return
        try:
            with self._running(f"the backward pass of call {kept.number} of {kept.function} [{kept.compile_id}]"):
                comparison = GradientComparison(kept, ended)
                self._write(body_of_backward(kept, comparison, comparison.fault() if comparison.differs else None))
        except Exception as problem:  # noqa: BLE001  (whatever it is, the program continues)
            self._write(body_of_lost_backward(kept, first_line_of(problem)))

    def _awaited_codes(self) -> list[types.CodeType]:
        return [code for known, _ in list(self._awaited.values()) if (code := known()) is not None]

    def _pass_raised(self, raised: RaisedCall) -> None:
        """Write whether eager's backward pass raises as well; the compiled backward graph has raised."""
        _, awaited = self._awaited.get(id(raised.code), (None, ()))
        for of_call, of_gradients in tuple(awaited) if raised.is_backward else ():
            kept, returned = of_call(), of_gradients()
            arrived = None if returned is None else returned.take_unfinished()
            if kept is None or arrived is None:
                continue
            try:
                self._write(body_of_raised_backward(kept, raised, problem_in_eager(kept, arrived)))
            except Exception as problem:  # noqa: BLE001  (whatever it is, the program continues)
                self._write(body_of_lost_backward(kept, first_line_of(problem)))

    def _is_wanted(self, number: int) -> bool:
        if self._every:
            return (number - 1) % self._every == 0
        return number & (number - 1) == 0  # calls 1, 2, 4, 8, ...

    @contextlib.contextmanager
    def _running(self, what: str) -> Iterator[None]:
        """Return a context in which the ``compare`` command shows ``what`` as the running comparison."""
        file = Path(f"{self._path}{RUNNING}")
        file.write_text(what, encoding="utf-8")
        try:
            yield
        finally:
            file.write_text("", encoding="utf-8")

    def _write(self, body: ComparisonBody) -> None:
        with self._lock, self._path.open("ab") as file:
            file.write(msgspec.json.encode(body) + b"\n")

    def _cannot(self, call: GraphCall, cached_call: CachedCall, problem: Exception) -> None:
        name = name_of_call(cached_call)
        is_ours = isinstance(problem, CallsDifferByChance | NoRealValue)
        describe = first_line_of if is_ours else named_first_line_of
        reason = describe(problem)
        text = f"dynamo-dap: calls of {name} are not compared: {reason}\n"
        if text not in self._reported:
            self._reported.add(text)
            self._report(text)
            self._write(body_without_graph(call, cached_call, reason))


def _description(call: GraphCall, cached_call: CachedCall) -> str:
    return f"call {call.graph.calls} of {name_of_call(cached_call)} [{cached_call.compile_id}]"


def _body_of_invalid(call: GraphCall, cached_call: CachedCall, invalid: NotValid) -> ComparisonBody:
    place = next((each.place for each in (invalid.replayed, invalid.compiled) if each is not None), None)
    verdict = f"Dynamo. {invalid.text[:1].upper()}{invalid.text[1:]}."
    body = body_without_graph(call, cached_call, verdict, stage=DYNAMO, line=place)
    body.evidence.append("a second trace of the call")
    return body


def _body_of_failure(call: GraphCall, cached_call: CachedCall) -> ComparisonBody:
    """Return the report on a call in which the compiled graph raised."""
    assert call.problem is not None
    problem = named_first_line_of(call.problem)
    comparison = compared(call, cached_call)
    fault = comparison.fault_of_operator()
    if fault is not None:
        return body_of(call, cached_call, comparison, fault, None)
    backend = name_of(cached_call.backend)
    body = body_of(call, cached_call, comparison, None, None)
    if comparison.reference.failed is not None:
        node, reason = comparison.reference.failed
        body.verdict = f"your code. Eager also raises: {reason}"
        place = place_of(node, is_torch_file)
        if place is not None:
            body.path, body.line = place[0].path, place[0].line
        return body
    body.verdict = f"the backend ({backend}). Its graph raises {problem}. Dynamo's graph raises nothing."
    body.same, body.stage = False, backend
    return body
