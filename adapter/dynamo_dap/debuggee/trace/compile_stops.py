"""Stops at events instead of lines: graph breaks, recompiles, backend failures, specializations, guards, CUDA graphs.

Each kind of event is an exception filter of the client. Part of the compile-time engine; runs on the compiling thread.
A restarted analysis repeats events, so an event stops only once in each compile.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Hashable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from dynamo_dap.debuggee.agent.breakpoints import CHANGED, DataEntry
from dynamo_dap.debuggee.agent.eager_expressions import is_true_python
from dynamo_dap.debuggee.agent.engine import RAISED, UNCAUGHT, Host
from dynamo_dap.debuggee.agent.frames import Frame, caller_frame
from dynamo_dap.debuggee.agent.stepping import RaisedException, Stop
from dynamo_dap.debuggee.agent.user_code import is_user_file
from dynamo_dap.debuggee.torch_api.cache.guards import RequestedGuard
from dynamo_dap.debuggee.torch_api.cache.recompiles import Failure, failures_of
from dynamo_dap.debuggee.torch_api.code_objects.generated_code import user_function_of
from dynamo_dap.debuggee.torch_api.compiles.compile_hooks import HOOKS, CompileObserver, CompileResult, FrameCompile
from dynamo_dap.debuggee.torch_api.compiles.errors import (
    UserError,
    error_behind,
    error_being_raised,
    failure_of,
    is_error_of_program,
    is_failure_of_dynamo,
    is_raised_by_user,
)
from dynamo_dap.debuggee.torch_api.compiles.graph_breaks import (
    ERROR_EFFECT,
    SKIPPED_EFFECT,
    BreakFacts,
    effect_of_break,
    facts_of_break,
    frame_of_break,
    is_error,
    is_graph_break,
)
from dynamo_dap.debuggee.torch_api.devices.cuda_graph_callers import frame_of_caller
from dynamo_dap.debuggee.torch_api.devices.cuda_graph_texts import CudaGraphFacts
from dynamo_dap.debuggee.torch_api.graphs.graph import nodes_of
from dynamo_dap.debuggee.torch_api.objects import Graph
from dynamo_dap.debuggee.torch_api.traced.data_dependence import (
    DataDependence,
    DataSymbol,
    data_dependence_of,
    explained,
    obstacle_of,
    pending_symbols_of,
    value_in_call,
)
from dynamo_dap.debuggee.torch_api.traced.symbols import SpecializationFacts
from dynamo_dap.debuggee.torch_api.traced.traced_frame import TracedFrame, running_frame
from dynamo_dap.debuggee.torch_api.traced.translator import frame_below_trace
from dynamo_dap.debuggee.trace.evaluation import evaluate_to_python
from dynamo_dap.debuggee.trace.exception_stops import (
    PYTHON_FILTERS,
    filters_met,
    is_caught_in_trace,
)
from dynamo_dap.debuggee.trace.frames import FunctionFrame
from dynamo_dap.debuggee.trace.stop_texts import (
    backend_failure,
    cuda_graph,
    dynamo_failed,
    graph_break,
    guard_about_to_be_installed,
    limit_reached,
    pending_symbols,
    recompiled,
    specialized,
    user_error,
)
from dynamo_dap.debuggee.trace.user_frames import user_frame
from dynamo_dap.debuggee.values.model import text_of_raised
from dynamo_dap.debuggee.wrapping.weak_collections import WeakKeyDictionary
from dynamo_dap.protocol.requests.contract import (
    BACKEND_FAILURE,
    CUDA_GRAPH,
    GRAPH_BREAK,
    GUARD,
    LIMIT,
    RECOMPILE,
    SPECIALIZE,
    UNSUPPORTED,
)
from dynamo_dap.protocol.requests.cuda_graphs import FORWARD, RECORDED

EVENTS = {
    GRAPH_BREAK: (CompileObserver.graph_broke, CompileObserver.trace_failed, CompileObserver.compile_ended),
    UNSUPPORTED: (CompileObserver.trace_failed,),
    RECOMPILE: (CompileObserver.recompiles,),
    BACKEND_FAILURE: (CompileObserver.backend_failed, CompileObserver.compile_ended),
    SPECIALIZE: (CompileObserver.specialized,),
    GUARD: (CompileObserver.guard_added,),
    LIMIT: (CompileObserver.limit_exceeded,),
    CUDA_GRAPH: (CompileObserver.cuda_graph_event,),
}
"""The exception filters of compile-time debugging, with the torch events that each needs."""

_WITH_HISTORY = frozenset({GRAPH_BREAK, UNSUPPORTED})


class StopTrace(Protocol):
    """Holds the thread at the present line of a traced function."""

    def __call__(
        self,
        frame: TracedFrame,
        raised: RaisedException,
        watching: Sequence[DataEntry] = (),
        *,
        filters: Collection[str] = (),
    ) -> None:
        """Stop for the data breakpoints ``watching``, if their conditions hold, or else for ``filters``."""


@dataclass
class _Stopped:
    """The events that stopped a compile, so that they stop once."""

    keys: set[Hashable] = field(default_factory=set)
    place: tuple[int, int] | None = None
    """The place of the compile's last stop at a graph break."""
    raised: object = None
    """The last exception in traced code."""
    has_broken: bool = False
    has_failed: bool = False
    """Whether the compile stopped for a failure of Dynamo."""


class CompileStops(CompileObserver):
    """Stops at events of the client's exception filters. ``CompileObserver`` has the events and their threads."""

    feature = "exception breakpoints of compiles"

    def __init__(self, host: Host, engine_name: str, stop_trace: StopTrace) -> None:
        """Hold the thread in a trace by ``stop_trace``."""
        self._host = host
        self._engine_name = engine_name
        self._stop_trace = stop_trace
        self._reported: set[str] = set()
        self._stopped: WeakKeyDictionary[FrameCompile, _Stopped] = WeakKeyDictionary()

    # -- hooks: any thread -----------------------------------------------------------------------------------------

    def update_hooks(self) -> None:
        """Observe the events of the active filters."""
        wanted = self._host.options.compile_time
        active = [name for name in EVENTS if name in self._host.breakpoints.exception_filters] if wanted else []
        events = {event for name in active for event in EVENTS[name]}
        if wanted and self._python_filters:
            events.add(CompileObserver.trace_failed)
            if RAISED in self._python_filters:
                events.add(CompileObserver.exception_met)
        if wanted and any(entry.access != CHANGED for entry in self._host.breakpoints.data):
            events |= set(EVENTS[GUARD])
        HOOKS.want(self, events)
        for problem in HOOKS.problems(events):
            if problem not in self._reported:
                self._reported.add(problem)
                self._host.print(f"dynamo-dap: {problem}\n", "important")

    @property
    def are_lines_wanted(self) -> bool:
        """Return whether an active filter needs the trace's history, for steps back to where a number was made."""
        filters = self._host.breakpoints.exception_filters
        return self._host.options.compile_time and not _WITH_HISTORY.isdisjoint(filters)

    def close(self) -> None:
        """Stop observing."""
        HOOKS.want(self, ())

    def _is_on(self, name: str) -> bool:
        return name in self._host.breakpoints.exception_filters and not self._host.is_holding

    @property
    def _python_filters(self) -> frozenset[str]:
        return self._host.eager_debugger.exception_filters & PYTHON_FILTERS

    # -- graph breaks ----------------------------------------------------------------------------------------------

    def graph_broke(self, frame: TracedFrame, reason: str, exception: object) -> None:
        """Stop at the line of the break as soon as torch reports it, while every function still has its state."""
        compiling = HOOKS.current
        if compiling is None:
            return
        self._of(compiling).has_broken = True
        facts = facts_of_break(exception)
        self._break(GRAPH_BREAK, exception, frame, facts, effect_of_break(frame, reason, facts))

    def trace_failed(self, frame: TracedFrame, exception: Exception) -> None:
        """Stop for a graph break that is an error, for data-dependent numbers not returned, or for the user's error."""
        compiling = HOOKS.current
        if compiling is None:
            return
        if is_graph_break(exception) and is_error(frame):
            self._of(compiling).has_broken = True
            self._break(UNSUPPORTED, exception, frame, facts_of_break(exception), ERROR_EFFECT)
            if is_raised_by_user(exception):
                self._raised(compiling, frame, exception, error_being_raised(frame))
        elif self._is_on(UNSUPPORTED) and (pending := pending_symbols_of(exception, frame)):
            self._of(compiling).has_failed = True
            raised = pending_symbols(exception, pending)
            innermost = frame_of_break(exception) or frame
            # Torch's own code may call the operation, for example in its wrapper of a custom operator.
            self._stop_in_trace(UNSUPPORTED, user_frame(innermost), raised, {"__reason__": raised.headline})
        elif is_error_of_program(exception):
            self._raised(compiling, frame, exception, error_behind(exception))

    def _break(self, name: str, exception: Any, frame: TracedFrame, facts: BreakFacts, effect: str) -> None:
        compiling = HOOKS.current
        innermost = frame_of_break(exception) or frame
        if compiling is None or not self._is_on(name):
            return
        if self._is_new(compiling, (name, *_where(innermost), facts.kind)):
            user = user_frame(innermost) if self._host.options.just_my_code else innermost
            dependence = data_dependence_of(exception, user)
            is_in_library = user != innermost
            obstacle = obstacle_of(facts, dependence, is_in_library=is_in_library)
            facts = explained(facts, dependence, innermost if is_in_library else None)
            self._of(compiling).place = _where(innermost)
            error = error_being_raised(frame) if is_raised_by_user(exception) else None
            values = [] if dependence is None else self._values_in_call(dependence, innermost)
            raised = replace(graph_break(exception, facts, effect, error, values), obstacle=obstacle)
            self._stop_in_trace(name, innermost if dependence is None else user, raised, _names_of(facts))

    def _values_in_call(self, dependence: DataDependence, frame: TracedFrame) -> list[str]:
        """Return the numbers of a data-dependent branch in the traced call: ``n = 3``."""
        with self._host.holding():
            values = [(symbol, value_in_call(symbol, frame)) for symbol in dependence.symbols]
        return [_value_text(symbol, value) for symbol, value in values if value is not None]

    # -- exceptions of user code -----------------------------------------------------------------------------------

    def exception_met(self, frame: TracedFrame, exception: object) -> None:
        """Stop at an exception that traced code raises and catches: debugpy never sees it."""
        compiling = HOOKS.current
        if compiling is None or self._of(compiling).raised is exception or self._host.is_holding:
            return
        if self._host.options.just_my_code and not is_user_file(frame.path):
            return
        # Each function between the raise and the handler reports the exception again.
        self._of(compiling).raised = exception
        error = error_being_raised(frame)
        if error is None or not is_caught_in_trace(frame.running(sys._getframe()), error.kind):
            return
        if self._is_new(compiling, (RAISED, *_where(frame))):
            self._stop_trace(frame, user_error(error, None), filters={RAISED})

    def _raised(
        self, compiling: FrameCompile, frame: TracedFrame, exception: BaseException, error: UserError | None
    ) -> None:
        """Stop for an exception that leaves the trace, if debugpy would stop for it."""
        innermost = frame_of_break(exception) or frame
        if error is None or not self._python_filters or self._host.is_holding:
            return
        below = frame_below_trace(sys._getframe())
        met = filters_met(innermost.with_callers(), below, type(exception)) & self._python_filters
        if not met:
            return
        self._host.eager_debugger.stopped_for(exception, met)
        # If graph breaks are errors, the thread may have stopped for this exception already.
        if self._of(compiling).place != _where(innermost) and self._is_new(compiling, (RAISED, *_where(innermost))):
            break_mode = "unhandled" if UNCAUGHT in met else "always"
            self._stop_trace(innermost, replace(user_error(error, exception), break_mode=break_mode), filters=met)

    def compile_ended(self, compiling: FrameCompile, result: CompileResult, problem: BaseException | None) -> None:
        """Stop for an error of Dynamo, and for a graph break that belongs to no line of the function.

        Such a function runs eagerly as a whole. A function that torch skips for another reason (it has nothing to
        compile) has no graph break.
        """
        if problem is None or compiling.frame is None:
            return
        is_new = not self._of(compiling).has_failed
        if is_failure_of_dynamo(problem) and is_new and self._is_on(BACKEND_FAILURE):
            names: dict[str, object] = {"__reason__": str(problem), "__step__": "Dynamo"}
            self._stop_before(BACKEND_FAILURE, compiling, dynamo_failed(compiling, problem), names)
        if not is_graph_break(problem) or compiling.one_graph or compiling.limit is not None:
            return
        if self._of(compiling).has_broken:
            return
        if self._is_on(GRAPH_BREAK):
            facts = facts_of_break(problem)
            self._stop_before(GRAPH_BREAK, compiling, graph_break(problem, facts, SKIPPED_EFFECT), _names_of(facts))

    # -- before a trace --------------------------------------------------------------------------------------------

    def recompiles(self, compiling: FrameCompile, entries: list[object], reasons: list[str]) -> None:
        """Stop before the new trace."""
        if not self._is_on(RECOMPILE) or compiling.frame is None:
            return
        failures = failures_of(compiling.code, entries, reasons)
        raised = recompiled(compiling, failures)
        names: dict[str, object] = {"__reason__": "\n".join(reasons), "__count__": len(entries)}
        self._stop_before(RECOMPILE, compiling, raised, names, list(zip(failures, entries, strict=False)))

    def limit_exceeded(self, compiling: FrameCompile, limit: str) -> None:
        """Stop before a function that exceeds a limit of torch, and therefore runs eagerly."""
        if compiling.frame is not None and self._is_on(LIMIT):
            self._stop_before(LIMIT, compiling, limit_reached(compiling, limit), {"__limit__": limit})

    # -- CUDA graphs -----------------------------------------------------------------------------------------------

    def cuda_graph_event(self, compiling: FrameCompile | None, facts: CudaGraphFacts) -> None:
        """Stop in the trace of a skipped graph, and in a call that records again or overwrites an output."""
        if facts.outcome == RECORDED or facts.cause == FORWARD or not self._is_on(CUDA_GRAPH):
            return
        names: dict[str, object] = {
            "__outcome__": facts.outcome,
            "__cause__": facts.cause,
            "__reason__": facts.text,
        }
        frame = None if compiling is None else running_frame(sys._getframe())
        if compiling is None or frame is None:
            self._stop_in_call(CUDA_GRAPH, cuda_graph(facts), names)
        elif self._is_new(compiling, (CUDA_GRAPH, facts.outcome, facts.cause, facts.place)):
            self._stop_in_trace(CUDA_GRAPH, frame, cuda_graph(facts), names)

    # -- inside a trace --------------------------------------------------------------------------------------------

    def backend_failed(self, frame: TracedFrame, graph: Graph, problem: BaseException) -> None:
        """Stop at the call of the backend, with the backend's graph."""
        failure = failure_of(problem)
        if failure is None or not self._is_on(BACKEND_FAILURE):
            return
        names: dict[str, object] = {"__reason__": str(failure.inner), "__step__": failure.step}
        raised = backend_failure(failure, len(nodes_of(graph)))
        self._stop_in_trace(BACKEND_FAILURE, frame, raised, names)

    def specialized(self, facts: SpecializationFacts, message: str) -> None:
        """Stop when a size of an input became a constant."""
        compiling = HOOKS.current
        frame = running_frame(sys._getframe()) if self._is_on(SPECIALIZE) else None
        if compiling is None or frame is None:
            return
        if self._is_new(compiling, (SPECIALIZE, *_where(frame), facts.source)):
            names: dict[str, object] = {"__source__": facts.source, "__value__": facts.value}
            self._stop_in_trace(SPECIALIZE, frame, specialized(facts, message), names)

    def guard_added(self, guard: RequestedGuard) -> None:
        """Stop when Dynamo installs a guard."""
        compiling = HOOKS.current
        watched = self._watched(compiling)
        is_wanted = self._is_on(GUARD) or (watched and not self._host.is_holding)
        frame = running_frame(sys._getframe()) if is_wanted else None
        if compiling is None or frame is None:
            return
        watching = [entry for entry in watched if entry.variable.is_source(guard.readable)]
        if watching and self._is_new(compiling, ("watched", guard.check, guard.name)):
            self._stop_trace(frame, guard_about_to_be_installed(guard), watching)
        if self._is_on(GUARD) and self._is_new(compiling, (GUARD, guard.check, guard.name)):
            names: dict[str, object] = {"__source__": guard.readable, "__type__": guard.check}
            self._stop_in_trace(GUARD, frame, guard_about_to_be_installed(guard), names)

    def _watched(self, compiling: FrameCompile | None) -> list[DataEntry]:
        """Return the data breakpoints on guards of variables of the function being compiled."""
        entries = [entry for entry in self._host.breakpoints.data if entry.access != CHANGED]
        if not entries or compiling is None:
            return []
        code = user_function_of(compiling.code)
        return [entry for entry in entries if entry.variable.belongs_to(code)]

    # -- stopping --------------------------------------------------------------------------------------------------

    def _is_new(self, compiling: FrameCompile, key: Hashable) -> bool:
        keys = self._of(compiling).keys
        is_new = key not in keys
        keys.add(key)
        return is_new

    def _of(self, compiling: FrameCompile) -> _Stopped:
        return self._stopped.setdefault(compiling, _Stopped())

    def _stop_in_trace(self, name: str, frame: TracedFrame, raised: RaisedException, names: dict[str, object]) -> None:
        if self._holds(name, lambda condition: bool(evaluate_to_python(frame, condition, names))):
            self._stop_trace(frame, raised, filters={name})

    def _stop_in_call(self, name: str, raised: RaisedException, names: dict[str, object]) -> None:
        """Stop in ordinary Python, at the line of the call."""
        top = frame_of_caller(sys._getframe())
        if top is None:
            self._host.print(f"{raised.headline}\n{raised.text}\n", "important")
        # A condition must not read the frame's locals: before Python 3.13, that keeps outputs alive.
        elif self._holds(name, lambda condition: is_true_python(condition, top.f_globals, names)):
            self._host.hold(
                Stop(
                    engine=self._engine_name,
                    reason="exception",
                    frames=lambda: self._host.python_stack(top),
                    description=raised.headline,
                    text=raised.text,
                    exception=raised,
                )
            )

    def _stop_before(
        self,
        name: str,
        compiling: FrameCompile,
        raised: RaisedException,
        names: dict[str, object],
        failures: list[tuple[Failure, object]] | None = None,
    ) -> None:
        top = caller_frame()

        def frame() -> FunctionFrame:
            return FunctionFrame(compiling.frame, self._host.print, failures or (), names)

        def frames() -> list[Frame]:
            return [frame(), *self._host.python_stack(frame_below_trace(top))]

        if self._holds(name, lambda condition: frame().is_true(condition)):
            self._host.hold(
                Stop(
                    engine=self._engine_name,
                    reason="exception",
                    frames=frames,
                    description=raised.headline,
                    text=raised.text,
                    exception=raised,
                )
            )

    def _holds(self, name: str, is_true: Callable[[str], bool]) -> bool:
        condition = self._host.breakpoints.exception_filters.get(name)
        if not condition:
            return True
        try:
            with self._host.holding():
                return is_true(condition)
        except BaseException as error:  # noqa: BLE001  (the user's expression may raise anything)
            self._host.print(f"The condition {condition!r} of '{name}' failed: {text_of_raised(error)}\n", "important")
            return True


def _value_text(symbol: DataSymbol, value: float) -> str:
    """Return a number with torch's bounds: ``n = 3 (0 … 6)``."""
    known = "" if symbol.range is None else f" ({symbol.range})"
    return f"{symbol.user_name or symbol.name} = {value}{known}"


def _where(frame: TracedFrame) -> tuple[int, int]:
    return id(frame.code), frame.index


def _names_of(facts: BreakFacts) -> dict[str, object]:
    """Return the names that describe a break in conditions."""
    return {"__reason__": facts.kind, "__id__": facts.identifier, "__explanation__": facts.explanation}
