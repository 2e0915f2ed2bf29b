"""Stops in cached calls, which are replayed: the program does not notice it.

The tests replay every cached call of many small programs, and look at each line of each. In real sessions that would
take hours, and no client sees traces that end early. So subclasses of ``CachedCallStops`` replace its decisions.
"""

from __future__ import annotations

import gc
import inspect
import types
import weakref
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

import pytest
import torch
import torch._dynamo

from dynamo_dap.debuggee.composition.cached_calls import CachedCallStops, TracedCall
from dynamo_dap.debuggee.generated.call_interfaces import CallFacts
from dynamo_dap.debuggee.generated.engine import RunTimeEngine
from dynamo_dap.debuggee.history.attempts import Attempt
from dynamo_dap.debuggee.history.state_logs import StateLogs
from dynamo_dap.debuggee.history.time_travel import TraceHistory
from dynamo_dap.debuggee.torch_api.cache.cache_entries import forget_entry
from dynamo_dap.debuggee.torch_api.code_objects.generated_code import live_entries
from dynamo_dap.debuggee.torch_api.graphs.graph_runs import NoRealValue
from dynamo_dap.debuggee.torch_api.graphs.saved_graphs import SavedGraph, SavedGraphInCall
from dynamo_dap.debuggee.torch_api.traced.replays import (
    CachedCall,
    replayed_call,
    run_replay,
)
from dynamo_dap.debuggee.torch_api.traced.traced_frame import TracedFrame
from dynamo_dap.debuggee.torch_api.traced.tracing_hooks import add_line_hook
from dynamo_dap.debuggee.torch_api.traced.translator import CompileIdentity
from dynamo_dap.debuggee.trace.code_facts import CodeFactsCache
from dynamo_dap.debuggee.trace.runs import ProgressOfTraces, ReplayRun, SilentRun, TraceProgress
from dynamo_dap.debuggee.wrapping.patches import Patches
from tests.compile_time.observation import Observation, observe
from tests.compile_time.programs import PROGRAMS, contexts, tensors, transforms
from tests.compile_time.samples import Once
from tests.compile_time.test_real_values import tensors_of
from tests.compile_time.watching import EachLine, Looker
from tests.run_time.in_process import ScriptedHost

pytestmark = pytest.mark.timeout(600)


class EveryCall(CachedCallStops):
    """Replays every cached call, even without breakpoints."""

    def __init__(self, host: Any) -> None:
        self.logs = StateLogs(CodeFactsCache(), lambda: False)
        self.visits = ProgressOfTraces()
        stops: Any = self
        super().__init__(host, self.logs, stops, lambda call: None)
        self.followed = 0

    def walk(self, attempt: Attempt) -> None:
        """Walk through a saved trace."""

    def are_wanted(self) -> bool:
        return True

    def may_stop(self, lines: Mapping[str, frozenset[int]], functions: Collection[str]) -> bool:
        return True

    def stop_in(self, call: CachedCall, known: CallFacts | None) -> CallFacts | None:
        self.followed += 1
        return super().stop_in(call, None)

    def _report_failure(self, call: CachedCall, problem: Exception) -> None:
        raise AssertionError(f"{call.code.co_name} could not be traced again") from problem


Kind = TypeVar("Kind", bound=EveryCall)


@contextmanager
def every_cached_call(kind: type[Kind]) -> Iterator[Kind]:
    """Replay every cached call."""
    host: Any = ScriptedHost(lambda stop: None, mode="both")
    calls = kind(host)
    engine = host.engine = RunTimeEngine(host, None, calls)
    engine.update_hooks()
    try:
        yield calls
    finally:
        engine.close()


def parts(seen: Observation) -> dict[str, Any]:
    """Return the observed facts of a run by name, without the number of traced instructions."""
    return {name: value for name, value in vars(seen).items() if name not in ("steps", "lines")}


SERVED = [program for program in PROGRAMS if program is not contexts]
"""Without ``contexts``, which recompiles in each run, because it makes new objects."""


@pytest.mark.parametrize("program", SERVED, ids=lambda program: program.__name__)
def test_nothing_changes(program: Any) -> None:
    """Opening every scope at every line of every call, with its values, has no effect."""
    observe(program, runs=3)
    alone = parts(observe(program, runs=3))
    looker = Looker(lazy=True)
    seen = EachLine(lambda frame: looker(frame) if replayed_call() is not None else None)
    with every_cached_call(EveryCall) as calls:
        watched = parts(observe(program, watch=seen, runs=3))
    assert calls.followed, "the cache served no call"
    assert looker.shown
    for name, value in alone.items():
        assert watched[name] == value, name


@pytest.mark.parametrize("program", SERVED, ids=lambda program: program.__name__)
def test_nothing_changes_when_traces_end_early(program: Any) -> None:
    """Each trace ends one line later than the previous one, so also in bodies, inlined functions and transforms."""
    observe(program, runs=6)
    alone = parts(observe(program, runs=6))
    count = ended = limit = 0

    def look(frame: TracedFrame) -> None:
        nonlocal count, ended, limit
        if replayed_call() is None:
            return
        if calls.followed > limit:
            count, limit = 0, calls.followed
        count += 1
        if count == limit:
            ended += 1
            frame.end_trace()

    with every_cached_call(EveryCall) as calls:
        watched = parts(observe(program, watch=EachLine(look), runs=6))
    assert ended >= 3
    for name, value in alone.items():
        assert watched[name] == value, name


class Predicting(EveryCall):
    """Computes the tensors at every line of each cached call from the graph of the first cached call's trace."""

    def __init__(self, host: Any) -> None:
        super().__init__(host)
        self.compared = 0
        self._graphs: dict[tuple[int, str], tuple[SavedGraph, list[Any]]] = {}
        self._attempt: object = None
        self._predicted: list[Any] = []

    def stop_in(self, call: CachedCall, known: CallFacts | None) -> CallFacts | None:
        key = id(call.code), call.compile_id
        self._predicted = []
        if key in self._graphs:
            graph, visits = self._graphs[key]
            in_call = SavedGraphInCall(graph, call)
            for node, count in visits:
                self._predicted.append(_value(lambda node=node, count=count: in_call.value_of(node, count)))
            # The next run keeps and compares its own values.
        self._visits: list[Any] = []
        self._graph, self._at = SavedGraph(), 0
        try:
            return super().stop_in(call, known)
        finally:
            self._graph.close()
            self._graphs[key] = self._graph, self._visits
            self._attempt = None

    def look(self, frame: TracedFrame) -> None:
        """Keep and compare the local variables of ``frame``."""
        if self._attempt is not frame.attempt:  # the first attempt, or a restart
            self._graph.close()
            self._attempt, self._graph, self._visits, self._at = frame.attempt, SavedGraph(), [], 0
        count = frame.keep_graph(self._graph)
        for _, node in tensors_of(frame):
            try:
                copy = self._graph.wanted_copy(node)
            except NoRealValue:  # in the body of a higher-order operator
                continue
            self._visits.append((copy, count))
            if self._predicted:
                predicted, traced = self._predicted[self._at], _value(lambda node=node: frame.real_value(node))
                self._at += 1
                assert type(predicted) is type(traced), (predicted, traced)
                same = torch.equal(predicted, traced) if isinstance(traced, torch.Tensor) else predicted == traced
                assert same or "NaN" in str(traced).replace("nan", "NaN"), (frame.line, predicted, traced)
                self.compared += 1


class Keeping(EveryCall):
    """Keeps the trace of each entry's first cached call, and inspects that trace instead of those of later calls.

    Later calls are replayed as well, to compare the saved trace with them: the values of each call, and every scope of
    the first one (in ``make walks``, of each).
    """

    def __init__(self, host: Any) -> None:
        super().__init__(host)
        self.looker = Looker(depth=2, lazy=True)
        self.compared = self.lent = 0
        self.refused: list[str] = []
        self.failures: list[BaseException] = []
        """Errors at the beginning of the program's calls, which would otherwise be lost."""
        self._is_tracing_only = self._is_looking = False
        self._once = Once()
        self._attempt: object = None
        self._progress = TraceProgress(CompileIdentity("0/0", 0), began_at_start=True)
        self._seen: list[Any] = []

    def stop_in(self, call: CachedCall, known: CallFacts | None) -> CallFacts | None:
        self.followed += 1
        if not isinstance(known, TracedCall):
            return CachedCallStops.stop_in(self, call, known)
        self._is_looking = self._once.is_new((call.code, call.compile_id))
        self._is_tracing_only = True
        run_replay(SilentRun(call))
        self.logs.forget()
        self._is_tracing_only, self._attempt = False, None
        if known.kept is None:
            self.refused.append(call.code.co_name)
        elif not self._walk_saved_trace(ReplayRun(call), known, None):
            self.refused.append(f"{call.code.co_name} when lent")
        return known

    def look_if_cached(self, frame: TracedFrame) -> None:
        """Inspect a frame, unless its trace is a real compile."""
        if replayed_call() is not None:
            self.look(frame)

    def look(self, frame: TracedFrame) -> None:
        """Inspect a frame whose trace has reached a line."""
        if self._attempt is not frame.attempt:
            self._attempt, self._seen = frame.attempt, []
        if self._is_tracing_only:
            self._seen.append(_shown(frame))
        self.logs.note(frame, self._progress)

    def walk(self, attempt: Attempt) -> None:
        try:
            self._compare(attempt.history)
        except BaseException as problem:
            self.failures.append(problem)
            raise

    def _compare(self, history: TraceHistory) -> None:
        # Torch 2.15 runs unfinished generators to their end when it generates code for them.
        later = {code_flags for *_, code_flags in self._seen[history.end :]}
        assert history.end == len(self._seen) or all(flags & inspect.CO_GENERATOR for flags in later)
        for at in range(history.end):
            history.show(at)
            frame = history.chain(at)[0]
            if self._is_looking:
                self.looker(frame)
            found, expected = _shown(frame), self._seen[at]
            assert found[:2] == expected[:2], at
            assert found[2].keys() == expected[2].keys(), (at, frame.line)
            for name, value in expected[2].items():
                assert _are_equal(found[2][name], value), (at, frame.line, name, found[2][name], value)
                self.compared += 1
        self.lent += 1
        self._seen = []


class Setting:
    """An argument that is not a tensor."""

    def __init__(self, factor: float) -> None:
        self.factor = factor
        self.history: list[torch.Tensor] = []


def test_a_kept_trace_holds_nothing_of_the_program() -> None:
    """The arguments of a call die when the program releases them, without a garbage collection."""

    def fn(setting: Setting, tensors: list[torch.Tensor], names: dict[str, torch.Tensor], step: int) -> torch.Tensor:
        total = tensors[0] * setting.factor
        for tensor in tensors[1:]:
            total = total + tensor
        setting.history.append(total)
        return total * names["scale"] + step

    compiled, lines = torch.compile(fn, backend="eager", dynamic=True), Patches("inspecting lines")
    gc.disable()
    try:
        with every_cached_call(Keeping) as calls:
            calls.logs.want(True)
            add_line_hook(lines, lambda translator: calls.look_if_cached(TracedFrame(translator)))
            for step in range(6):
                setting, tensors = Setting(2.0), [torch.ones(4), torch.ones(4)]
                names = {"scale": torch.full((1,), 3.0)}
                compiled(setting, tensors, names, step + 5)
                objects = [weakref.ref(each) for each in (setting, *tensors, names["scale"], *setting.history)]
                del setting, tensors, names
                assert [each() for each in objects] == [None] * len(objects), step
            assert calls.lent >= 3
            calls.release()
    finally:
        gc.enable()
        lines.remove()
        calls.logs.want(False)
        torch._dynamo.reset()


def _forget(code: types.CodeType) -> None:
    for entry in live_entries(code):
        forget_entry(entry)


@pytest.mark.parametrize("drop", [lambda code: torch.compiler.reset(), _forget], ids=["reset", "forgotten"])
def test_a_kept_trace_goes_with_its_cache_entry(drop: Callable[[types.CodeType], None]) -> None:
    """It goes with all its FakeTensors. Traces of remaining entries stay. A new compile gets a new saved trace."""

    def fn(x: torch.Tensor) -> torch.Tensor:
        y = x + 1
        return y * 2

    def other(x: torch.Tensor) -> torch.Tensor:
        return x - 1

    lines = Patches("inspecting lines")
    with every_cached_call(Keeping) as calls:
        calls.logs.want(True)
        add_line_hook(lines, lambda translator: calls.look_if_cached(TracedFrame(translator)))
        try:
            for _ in range(2):
                compiled, beside = (torch.compile(each, backend="eager") for each in (fn, other))
                kept = _kept_of(calls, compiled)
                assert kept, "the trace of a cached call is kept"
                drop(fn.__code__)
                lasting = _kept_of(calls, beside)
                gc.collect()
                assert [each() for each in kept] == [None] * len(kept)
                assert lasting
                assert all(each() is not None for each in lasting)
                torch.compiler.reset()
            assert not calls.refused
        finally:
            lines.remove()
            calls.logs.want(False)
            calls.release()
            torch._dynamo.reset()


def _kept_of(calls: Keeping, compiled: Callable[[torch.Tensor], torch.Tensor]) -> list[weakref.ref[Any]]:
    """Call ``compiled`` three times, and return the newly kept objects: the FakeTensors of graphs, and the trace."""
    before = list(calls._saved.all)  # held, so that no new object gets the id of one that dies meanwhile
    for _ in range(3):
        compiled(torch.ones(3))
    found: list[weakref.ref[Any]] = []
    for each in calls._saved.all:
        if not any(each is other for other in before):
            nodes = each._output.graph.nodes
            found += [weakref.ref(node.meta["example_value"]) for node in nodes if "example_value" in node.meta]
            found += [weakref.ref(each), weakref.ref(each._output)]
    return found


def _shown(frame: TracedFrame) -> tuple[str, int, dict[str, Any], int]:
    values = {name: _value(lambda node=node: frame.real_value(node)) for name, node in tensors_of(frame)}
    return frame.code.co_name, frame.line, values, frame.code.co_flags


def _are_equal(one: object, other: object) -> bool:
    if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor) and one.dtype == other.dtype:
        return torch.equal(one, other) or bool(torch.equal(one.isnan(), other.isnan()) and one.isnan().any())
    return type(one) is type(other) and one == other


@pytest.mark.parametrize("program", SERVED, ids=lambda program: program.__name__)
def test_later_calls_are_seen_in_the_trace_of_the_first(program: Any) -> None:
    """The values equal those of a replay of the call itself. Opening every scope at every line changes nothing."""
    observe(program, runs=4)
    alone = parts(observe(program, runs=4))
    with every_cached_call(Keeping) as calls:
        calls.logs.want(True)
        try:
            watched = parts(observe(program, watch=calls.look_if_cached, runs=4))
            calls.release()
        finally:
            calls.logs.want(False)
    for failure in calls.failures:
        raise failure
    assert calls.lent or calls.refused
    # The generated code draws the program's random number, so no source leads to that number.
    assert set(calls.refused) <= {"numbers"} or program is tensors, calls.refused
    for name, value in alone.items():
        assert watched[name] == value, name


def _value(get: Any) -> Any:
    try:
        value = get()
    except NoRealValue as problem:
        return problem.args[0]
    return value.detach().clone() if isinstance(value, torch.Tensor) else value


@pytest.mark.parametrize("program", SERVED, ids=lambda program: program.__name__)
def test_later_calls_are_predicted_by_the_graph_of_the_first(program: Any) -> None:
    """This includes in-place writes, random numbers and sizes. Computing the values changes nothing."""
    observe(program, runs=4)
    alone = parts(observe(program, runs=4))
    with every_cached_call(Predicting) as calls:
        seen = EachLine(lambda frame: calls.look(frame) if replayed_call() is not None else None)
        watched = parts(observe(program, watch=seen, runs=4))
    assert calls.compared or program is transforms, "nothing was predicted"
    for name, value in alone.items():
        assert watched[name] == value, name
