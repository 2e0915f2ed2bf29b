"""Stops in cached calls by a replay that is discarded afterwards.

Dynamo traces a function once for each cache entry, so a breakpoint in it would be hit only once. A call that reaches a
line with a breakpoint is replayed in isolation (``torch_api.traced.replays``) on its own arguments, before its
generated code runs. The thread is held in that trace like in any other. A newly compiled call is replayed without a
stop if its trace before a graph break is lost: at a branch on a tensor's data, where Dynamo does not restart. With
``cachedCalls`` ``eager`` the function runs eagerly while it has breakpoints. One for each process; the decisions run
where calls begin, on the program's threads.
"""

from __future__ import annotations

import contextlib
import types
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from dynamo_dap.debuggee.agent.breakpoints import LineBreakpoint
from dynamo_dap.debuggee.agent.engine import Host
from dynamo_dap.debuggee.agent.frames import Frame
from dynamo_dap.debuggee.agent.log import log_exception, log_problem
from dynamo_dap.debuggee.agent.stepping import Step
from dynamo_dap.debuggee.generated.call_interfaces import CallFacts
from dynamo_dap.debuggee.history.attempts import Attempt
from dynamo_dap.debuggee.history.saved_traces import CannotReuse, SavedTrace
from dynamo_dap.debuggee.history.state_logs import SavedTraces, StateLogs
from dynamo_dap.debuggee.history.trace_stops import TraceStops
from dynamo_dap.debuggee.recording.function_names import name_of_call
from dynamo_dap.debuggee.replay.breakpoint_prediction import NotPredictable, Visit, evaluating_visits, reached_in
from dynamo_dap.debuggee.replay.one_time_code import serves_another_graph
from dynamo_dap.debuggee.torch_api.code_objects.dynamo_names import calls_resume_function, user_function_name
from dynamo_dap.debuggee.torch_api.code_objects.generated_code import AS_PYTHON_CALLS, run_as_python
from dynamo_dap.debuggee.torch_api.features import FeatureMissing
from dynamo_dap.debuggee.torch_api.graphs.saved_graphs import SavedGraph
from dynamo_dap.debuggee.torch_api.graphs.unproven_values import UNPROVEN
from dynamo_dap.debuggee.torch_api.traced.replays import REPLAYS, CachedCall, NoFrame, clear, run_replay
from dynamo_dap.debuggee.torch_api.traced.traced_frame import TracedFrame
from dynamo_dap.debuggee.torch_api.traced.traced_paths import PATHS, NotValid
from dynamo_dap.debuggee.trace.frames import TracedFunction
from dynamo_dap.debuggee.trace.runs import Decision, ReplayRun, TracePoint, TraceProgress
from dynamo_dap.debuggee.trace.runs import Visit as VisitKey
from dynamo_dap.protocol.requests.contract import COMPILE_TIME, RUN_TIME
from dynamo_dap.protocol.requests.options import AS_PYTHON, REPLAY
from dynamo_dap.protocol.texts import first_line_of, named_first_line_of


class CachedCallStops:
    """Replays cached calls that may have to stop: each is traced again, on its own inputs."""

    def __init__(
        self,
        host: Host,
        logs: StateLogs,
        stops: TraceStops,
        check_after_return: Callable[[CachedCall], None],
    ) -> None:
        """Work for the agent ``host``.

        ``logs`` has the running trace's log, ``stops`` stops in a saved trace. ``check_after_return`` gets each call
        whose values were shown.
        """
        self._check_after_return = check_after_return
        self._host = host
        self._logs = logs
        self._stops = stops
        self._as_python: dict[int, types.CodeType] = {}
        """Code that runs eagerly for now, by identity: code with some constants cannot be hashed."""
        self._failed: set[tuple[str, str]] = set()
        self._not_valid: set[tuple[str, str, str]] = set()
        """Reported reasons why a cache entry is not valid for its call."""
        self._saved = SavedTraces()
        if REPLAYS.problem is not None:
            host.print(f"dynamo-dap: {REPLAYS.problem}\n", "important")

    def are_wanted(self) -> bool:
        """Return whether a breakpoint or a step may stop in a cached call."""
        options, breakpoints = self._host.options, self._host.breakpoints
        if not options.compile_time or options.cached_calls not in (REPLAY, AS_PYTHON):
            return False
        if (REPLAYS if options.cached_calls == REPLAY else AS_PYTHON_CALLS).problem is not None:
            return False
        return breakpoints.any_line_without_mode() or bool(breakpoints.functions) or bool(breakpoints.data_in_traces)

    def would_judge(self, breakpoint: LineBreakpoint) -> bool:
        """Return whether cached calls evaluate the condition of ``breakpoint``, too."""
        return breakpoint.mode is None and self.are_wanted()

    def may_stop(self, lines: Mapping[str, frozenset[int]], functions: Collection[str]) -> bool:
        """Return whether a breakpoint is on one of the lines, or on one of the functions."""
        breakpoints = self._host.breakpoints
        for path, traced in lines.items():
            by_line = breakpoints.lines_in(path)
            if by_line and any(one.mode is None for line in by_line.keys() & traced for one in by_line[line]):
                return True
        names = {_last_part(name) for name in functions}
        if any(_last_part(entry.name) in names for entry in breakpoints.functions):
            return True
        return any(entry.variable.function in functions for entry in breakpoints.data_in_traces)

    def prepare(self, code: types.CodeType, *, may_stop: bool) -> None:
        """Make a function run eagerly while it has breakpoints, if the option ``cachedCalls`` is ``eager``."""
        if self._host.options.cached_calls != AS_PYTHON or may_stop == (id(code) in self._as_python):
            return
        run_as_python(code, wanted=may_stop)
        name = user_function_name(code)
        if may_stop:
            self._as_python[id(code)] = code
            self._host.print(f"dynamo-dap: {name} runs as ordinary Python while it has breakpoints\n", "important")
        else:
            del self._as_python[id(code)]

    def release(self) -> None:
        """Let all calls run compiled again, and forget begun calls."""
        while self._as_python:
            run_as_python(self._as_python.popitem()[1], wanted=False)
        self._logs.begun.clear()
        self._saved.close()

    def are_traced(self) -> bool:
        """Return whether cached calls are replayed."""
        options = self._host.options
        return REPLAYS.problem is None and options.compile_time and options.cached_calls == REPLAY

    def wants_step(self, step: Step) -> bool:
        """Return whether a step may end in a cached call: one that began in generated code stays there."""
        return step.engine != RUN_TIME

    def stop_in(self, call: CachedCall, known: CallFacts | None) -> CallFacts | None:
        """Replay the call if something may stop in it; return its facts for the next call."""
        version = self._host.breakpoints.version
        before = known if isinstance(known, TracedCall) else None
        known_call = before if before is not None and before.version == version else None
        is_owed = self._stops.visits.may_reach_reported(call.frame.f_back)
        if known_call is not None and not is_owed and self._passes(call, known_call):
            self._note_begun(call, known_call)
            return known_call
        # An earlier trace of this entry has the facts of this call, too: do not note them again.
        traced = TracedCall(version, call, before) if known_call is None else None
        attempt = self._attempt_before(call)
        UNPROVEN.take_shown()  # values shown in earlier calls
        try:
            self._report_not_valid(call, PATHS.why_not_valid(call))
            run = CallRun(self._host, call, traced)
            with self._learning(traced), self._logs.continuing(attempt):
                if not self._walk_saved_trace(run, before, attempt):
                    self._trace(run, before)
            self._note_begun(call, traced or known_call)
            if UNPROVEN.take_shown() and not serves_another_graph(call):
                self._check_after_return(call)
            return traced or known_call
        except Exception as problem:  # noqa: BLE001  (whatever it is, the call itself must run)
            self._report_failure(call, problem)
            return None

    @contextlib.contextmanager
    def _learning(self, traced: TracedCall | None) -> Iterator[None]:
        """Forget the trace at the end, and the call in its ``traced`` facts."""
        try:
            yield
        finally:
            self._logs.forget()
            if traced is not None:
                traced.is_over()

    # -- calls that were compiled just now -------------------------------------------------------------------------

    def may_replay_compiled(self) -> bool:
        """Return whether a newly compiled call may need a replay from a graph break on."""
        host = self._host
        return self.are_traced() and (host.steps.any_step or host.breakpoints.any_line(COMPILE_TIME))

    def must_replay_compiled(self, code: types.CodeType) -> bool:
        """Return whether to replay the call whose compile generated ``code``."""
        return self._logs.take_unsaved(code) and self.may_replay_compiled()

    def replay_compiled(self, call: CachedCall) -> CallFacts | None:
        """Replay the part before the graph break, without a stop: the call has stopped there already."""
        # The breakpoints have stopped, counted and logged this call already: predictions are learned in the next one.
        traced = TracedCall(_NEVER, call, None)
        try:
            with self._learning(traced), self._logs.continuing(self._attempt_before(call)):
                self._trace(CallRun(self._host, call, traced, stops=False), None)
            self._note_begun(call, traced)
        except FeatureMissing as problem:
            self._report_failure(call, problem)
            return None
        except Exception:  # noqa: BLE001  (the program's call must not fail)
            log_exception("replaying a call that was compiled")
            return None
        return traced

    def _walk_saved_trace(self, run: ReplayRun, known: TracedCall | None, before: Attempt | None) -> bool:
        """Walk through the saved trace of the cache entry instead of a replay; False if none fits."""
        kept, call = known.kept if known is not None else None, run.call
        if kept is None or kept.is_dropped:
            return False
        try:
            with kept.used_for(kept.objects_of(call), run):
                self._stops.walk(Attempt(kept.history, before=before))
        except CannotReuse as problem:
            log_problem(f"the saved trace of {name_of_call(call)} cannot be used: {problem}")
            return False
        return True

    def _trace(self, run: CallRun, known: TracedCall | None) -> None:
        """Trace the call, and keep the trace if its cache entry has none."""
        call, traced = run.call, run.traced
        run.rest = None if traced is not None or known is None else _Rest(known.version, known.visited)
        complete = run_replay(run, keep=traced is not None and traced.kept is None)
        final = self._stops.visits.final_visits()
        if traced is not None and final is not None:
            traced.drop_abandoned_visits(final)
        if complete is None or traced is None:
            return
        taken = self._logs.take(complete.output)
        if taken is None:
            clear(complete.output)
            return
        problem = PATHS.why_trace_not_valid(call, complete)
        if problem is not None and problem.position is not None:
            # Later calls of the entry run the compiled code, even if this call leaves it.
            self._report_not_valid(call, problem)
            taken[1].close()
            clear(complete.output)
            return
        try:
            saved = SavedTrace(complete, *taken, call)
        except CannotReuse as problem:
            log_problem(f"the trace of {name_of_call(call)} cannot be kept: {problem}")
            return
        traced.take(saved)
        self._saved.add(saved, call.frame.f_code if isinstance(call.frame, types.FrameType) else None)

    # -- calls before graph breaks -------------------------------------------------------------------------

    def _note_begun(self, call: CachedCall, known_call: TracedCall | None) -> None:
        """Note the inputs of a call that reaches a graph break: steps back after the break lead there."""
        kept = known_call.kept if known_call is not None else None
        frame = call.frame
        if kept is None or kept.is_dropped or not isinstance(frame, types.FrameType):
            return
        if not calls_resume_function(frame.f_code):
            return
        before = self._attempt_before(call)
        try:
            # The frame would keep objects alive that the program drops after the call.
            given = kept.objects_of(replace(call, frame=NoFrame(frame.f_globals, frame.f_builtins)), outlives_call=True)
        except CannotReuse as problem:
            log_problem(f"the inputs of {name_of_call(call)} cannot be found again: {problem}")
            return
        self._logs.begun.note(frame, kept, given, before)

    def has_begun(self, code: types.CodeType) -> bool:
        """Return whether a call of ``code`` has begun whose end matters to a step or to the history."""
        return self._logs.begun.has(code) or self._logs.is_continued_by(code)

    def ended(self, frame: types.FrameType) -> None:
        """Forget the call that ``frame`` ran, and the calls inside it."""
        self._logs.ended(frame.f_code)
        self._logs.begun.ended(frame)

    def _attempt_before(self, call: CachedCall) -> Attempt | None:
        """Return the part before the resume function's graph break."""
        return self._logs.attempt_before(call.code, call.frame.f_back)

    def only_counts(self, code: types.CodeType, known: CallFacts | None) -> bool:
        """Return whether the call's breakpoints only count hits."""
        if not isinstance(known, TracedCall) or known.version != self._host.breakpoints.version:
            return False
        # Steps back over a graph break lead to the inputs of such a call.
        return known.only_counts and not calls_resume_function(code)

    def count(self, known: CallFacts) -> bool:
        """Count the hits of a call that is about to run; return False if it must be replayed."""
        if self._may_stop_elsewhere or not isinstance(known, TracedCall) or not known.only_counts:
            return False
        return self._host.count([visit.breakpoint for visit in known.visits])

    @property
    def _may_stop_elsewhere(self) -> bool:
        """Return whether a call may stop at anything but line breakpoints."""
        host = self._host
        return host.steps.current() is not None or host.steps.any_pause_request or bool(host.breakpoints.data_in_traces)

    def _passes(self, call: CachedCall, known_call: TracedCall) -> bool:
        """Return whether ``call`` certainly stops nowhere; its breakpoints have then counted and logged it."""
        host = self._host
        if self._may_stop_elsewhere:
            return False
        if known_call.must_be_traced:
            return False
        try:
            with evaluating_visits(known_call.visits):
                return host.passes(reached_in(known_call.visits, call))
        except NotPredictable:
            return False

    def _report_not_valid(self, call: CachedCall, problem: NotValid | None) -> None:
        """Report, once per cause, that the cache entry is not valid for this call."""
        if problem is None:
            return
        name = name_of_call(call)
        cause = name, call.compile_id, problem.text
        if cause not in self._not_valid:
            self._not_valid.add(cause)
            self._host.print(
                f"dynamo-dap: warning: {name}, cache entry {call.compile_id}: {problem.text}\n", "important"
            )

    def _report_failure(self, call: CachedCall, problem: Exception) -> None:
        for breakpoint in self._host.breakpoints.set_before_program():
            # Later calls run the compiled code: any breakpoint that traces have reached may be in it.
            breakpoint.unjudged |= breakpoint.seen
        name = name_of_call(call)
        if (name, call.compile_id) in self._failed:
            return
        self._failed.add((name, call.compile_id))
        reason = first_line_of(problem)
        if not isinstance(problem, FeatureMissing):
            log_exception("tracing a cached call")
            reason = named_first_line_of(problem)
        self._host.print(
            f"dynamo-dap: breakpoints in {name} won't be hit in cached calls (entry {call.compile_id}): {reason}\n",
            "important",
        )


@dataclass
class _Rest:
    """How many breakpoints a trace has yet to reach."""

    version: int
    """The version of the breakpoints."""
    count: int


_NEVER = -1
"""No version of the breakpoints."""


class CallRun(ReplayRun):
    """A replay of a cached call, or a walk through the saved trace of its cache entry."""

    def __init__(self, host: Host, call: CachedCall, traced: TracedCall | None, *, stops: bool = True) -> None:
        """Note what ``call`` reaches in ``traced``; without ``stops`` do nothing else."""
        super().__init__(call)
        self._host = host
        self.traced = traced
        self.stops = stops
        self.rest: _Rest | None = None
        """The breakpoints that the call has yet to reach."""

    def on_line(self, frame: TracedFrame, progress: TraceProgress, point: Callable[[], TracePoint]) -> Decision:
        """Note the line."""
        if self.traced is not None:
            self.traced.on_reached(frame.path, frame.line)
        return Decision.ASK if self.stops else Decision.CONTINUE

    def reaches(self, frame: TracedFrame, breakpoints: Sequence[LineBreakpoint]) -> None:
        """Note the dependencies of breakpoints at ``frame``."""
        if self.traced is not None and breakpoints:
            with self._host.holding():
                self.traced.reached(frame, breakpoints, TracedFunction(frame, 0, {}, self._host))
        if self.rest is not None:
            self.rest.count -= len(breakpoints)

    def is_over(self) -> bool:
        """Return whether the call certainly reaches no further breakpoint."""
        rest, host = self.rest, self._host
        if rest is None or rest.count != 0:
            return False
        is_stepping = host.steps.current() is not None or host.steps.any_pause_request
        return not is_stepping and not host.breakpoints.data_in_traces and host.breakpoints.version == rest.version


class TracedCall:
    """The facts from the replay of a cached call, as ``agent.engine.CallFacts``."""

    def __init__(self, version: int, call: CachedCall, before: TracedCall | None) -> None:
        """Collect the facts of ``call``, which is about to be replayed; ``version`` is the breakpoints'.

        ``before`` has the entry's facts from before the breakpoints changed.
        """
        self.version = version
        self.lines: dict[str, frozenset[int]] = {} if before is None else dict(before.lines)
        self.kept: SavedTrace | None = None
        if before is not None and before.kept is not None:
            self.take(before.kept)
        self.visits: list[Visit] = []
        """Predictions for the breakpoints that each call reaches, in order."""
        self._keys: list[VisitKey] = []
        """The key of each item of ``visits``."""
        self.visited = 0
        """How many breakpoints each call reaches."""
        self.must_be_traced = False
        """Whether some breakpoint cannot be predicted, so that each call must be traced."""
        self._call: CachedCall | None = call
        self._attempt: object = None
        self._graph = SavedGraph()

    def take(self, kept: SavedTrace) -> None:
        """Use this trace for later calls."""
        self.kept = kept
        kept.dependents.add(self)

    def drop(self) -> None:
        """Drop the facts and the trace: no call of the entry is expected. A later one is replayed again."""
        self.version = _NEVER
        self.visits, self._keys = [], []
        self.kept = None

    @property
    def only_counts(self) -> bool:
        """Return whether a call's breakpoints only count it, and perhaps stop."""
        return not self.must_be_traced and bool(self.visits) and all(visit.only_counts for visit in self.visits)

    def on_reached(self, path: str, line: int) -> None:
        """Note a line."""
        known = self.lines.get(path, frozenset())
        if line not in known:
            self.lines[path] = known | {line}

    def reached(self, frame: TracedFrame, breakpoints: Sequence[LineBreakpoint], shown: Frame) -> None:
        """Note predictions for ``breakpoints``, which ``frame`` has reached; ``shown`` evaluates in ``frame``."""
        if self._attempt is not frame.attempt:
            self._graph.close()
            self._attempt, self._graph = frame.attempt, SavedGraph()
        assert self._call is not None, "it is being traced"
        self.visited += len(breakpoints)
        for breakpoint in breakpoints:
            visit = Visit.predicted(breakpoint, frame, shown, self._graph, self._call)
            if visit is None:
                self.must_be_traced = True
            else:
                self.visits.append(visit)
                self._keys.append((breakpoint.id, id(frame.code), frame.index))

    def drop_abandoned_visits(self, final: Counter[VisitKey]) -> None:
        """Keep the visits of the last attempt: functions inlined only in earlier attempts are traced by themselves."""
        left = Counter(final)
        kept = []
        for key, visit in zip(self._keys, self.visits, strict=True):
            if left[key] > 0:
                left[key] -= 1
                kept.append((key, visit))
        self._keys, self.visits = [key for key, _ in kept], [visit for _, visit in kept]

    def is_over(self) -> None:
        """Forget the call, and its trace's own objects."""
        self._call = self._attempt = None
        self._graph.close()


def _last_part(name: str) -> str:
    return name.rpartition(".")[2]
