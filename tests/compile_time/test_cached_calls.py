"""Stops in cached calls, which are replayed: the program does not notice it."""

from __future__ import annotations

import gc
import inspect
import types
import weakref
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import pytest
import torch
import torch._dynamo

from dynamo_dap.debuggee.agent.engine import NoEagerDebugger
from dynamo_dap.debuggee.composition import cached_calls
from dynamo_dap.debuggee.composition.cached_calls import CachedCallStops, TracedCall
from dynamo_dap.debuggee.composition.compile_time_engine import CompileTimeEngine
from dynamo_dap.debuggee.generated.cached_calls import CallEntries
from dynamo_dap.debuggee.generated.call_interfaces import CallFacts
from dynamo_dap.debuggee.generated.engine import RunTimeEngine
from dynamo_dap.debuggee.history.attempts import Attempt
from dynamo_dap.debuggee.history.saved_traces import CannotReuse
from dynamo_dap.debuggee.history.state_logs import StateLogs
from dynamo_dap.debuggee.history.time_travel import TraceHistory
from dynamo_dap.debuggee.torch_api.cache.cache_entries import forget_entry
from dynamo_dap.debuggee.torch_api.code_objects.generated_code import live_entries
from dynamo_dap.debuggee.torch_api.graphs.graph_runs import NoRealValue
from dynamo_dap.debuggee.torch_api.graphs.saved_graphs import SavedGraph, SavedGraphInCall
from dynamo_dap.debuggee.torch_api.traced.replays import (
    CachedCall,
    CompleteTrace,
    Replay,
    clear,
    replayed_call,
    run_replay,
)
from dynamo_dap.debuggee.torch_api.traced.traced_frame import TracedFrame
from dynamo_dap.debuggee.torch_api.traced.tracing_hooks import add_line_hook
from dynamo_dap.debuggee.torch_api.traced.translator import CompileIdentity
from dynamo_dap.debuggee.trace.code_facts import CodeFactsCache
from dynamo_dap.debuggee.trace.runs import ProgressOfTraces, ReplayRun, SilentRun, TraceProgress
from dynamo_dap.debuggee.wrapping.patches import Patches
from dynamo_dap.protocol.wire.types import SourceBreakpoint
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


class Scaler(torch.nn.Module):
    """Reads one number attribute and stores another."""

    def __init__(self) -> None:
        super().__init__()
        self.factor = 2.0
        self.last = 0.0

    def forward(self, x: torch.Tensor, step: int) -> torch.Tensor:
        y = x * self.factor  # line 1
        parts = [x, y]
        self.last = self.factor
        return parts[1] + step  # line 2


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


@pytest.fixture
def nothing_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Prevent saved traces, as if a value of the call could not be found again."""

    def refuse(trace: CompleteTrace, *_: object) -> NoReturn:
        clear(trace.output)
        raise CannotReuse("for a test")

    monkeypatch.setattr(cached_calls, "SavedTrace", refuse)


CONDITIONS = [
    ("line 1", "step == 100", 1),
    ("line 1", "step > 3 and self.factor == 3.0", 1),
    ("line 1", "self.training is False or step < 0", 1),
    ("line 1", "NUMBER == 1", 1),
    ("line 1", "x.sum() > 1e9", 1),
    ("line 1", "x.isnan().any() or x[:2].mean().item() == 77", 1),
    ("line 1", "torch.isinf(x).any().item()", 1),
    ("line 1", "x.shape[0] == 7 and x.dtype == torch.float64", 1),
    ("line 1", "x.shape[0] == 7 and x.dim() == 2", 1),
    ("line 2", "y.max() > 1e9 and (y / 0).isinf().all()", 1),
    ("line 2", "self.factor > 5 and y.sum() > 1e9", 5),
    ("line 1", "max(step, 3) == 100 or len(x) == 100", 1),
    ("line 1", "x.data_ptr() == 0", 5),
    ("line 1", "x.requires_grad", 5),
    ("line 1", "len(str(step)) == 5", 5),
    ("line 1", "getattr(self, 'factor') == 3.0", 5),
    ("line 2", "step == 100", 1),
    ("line 2", "self.factor == 3.0", 5),
]
"""A line, a false condition, and how many of 5 cached calls are replayed for it if no trace is saved."""


@pytest.mark.usefixtures("nothing_kept")
@pytest.mark.parametrize(("line", "condition", "traces"), CONDITIONS)
def test_a_false_condition_needs_no_trace(line: str, condition: str, traces: int, scaler: Calls) -> None:
    """Only the first of 5 cached calls is replayed, except for calls of the program's functions and changed values."""
    scaler.run(SourceBreakpoint(line=scaler.line(line), condition=condition))
    assert scaler.traced == traces
    assert not scaler.stops


@pytest.mark.parametrize(("line", "condition"), [(line, condition) for line, condition, _ in CONDITIONS])
def test_a_false_condition_needs_one_trace_at_most(line: str, condition: str, scaler: Calls) -> None:
    """Only the first of 5 cached calls is replayed: its saved trace can evaluate every condition."""
    scaler.run(SourceBreakpoint(line=scaler.line(line), condition=condition))
    assert scaler.traced == 1
    assert not scaler.stops


def test_hits_are_counted_without_a_trace(scaler: Calls) -> None:
    """The first cached call is replayed, the call that stops is not: the compile was hit 1, the stop is hit 5."""
    scaler.run(SourceBreakpoint(line=scaler.line("line 1"), condition="y is None or x.sum() > 0", hit_condition="5"))
    scaler.run(SourceBreakpoint(line=scaler.line("line 2"), condition="y.sum() > 13", hit_condition="2"))
    assert scaler.traced == 1
    assert scaler.stops == ["Call 5 of Scaler.forward [0/0]", "Call 3 of Scaler.forward [0/0]"]


def test_messages_are_logged_without_a_trace(scaler: Calls) -> None:
    message = "{step}: {y.sum().item()} of {self.last} {y.tolist()[0]}"
    scaler.run(SourceBreakpoint(line=scaler.line("line 2"), log_message=message))
    assert scaler.traced == 1
    logged = [body.output.strip() for event, body in scaler.host.events if event == "output"]
    assert logged[1:] == [f"{step}: {step * 6.0} of 2.0 {step * 2.0}" for step in range(3, 8)]


@pytest.mark.usefixtures("nothing_kept")
def test_tensors_are_logged_without_a_trace(scaler: Calls) -> None:
    """The message shows the elements of small tensors. The text of any other tensor is the same in every call."""
    scaler.run(SourceBreakpoint(line=scaler.line("line 2"), log_message="{y} {y.sum()}"))
    assert scaler.traced == 1
    logged = [body.output.strip() for event, body in scaler.host.events if event == "output"]
    assert [text.rpartition(" = ")[2] for text in logged[1:]] == [f"{step * 6.0}" for step in range(3, 8)]
    assert all(text.count("Tensor f32[") == 2 for text in logged)


@pytest.mark.usefixtures("nothing_kept")
def test_the_elements_of_a_logged_tensor_are_those_of_the_call(scaler: Calls) -> None:
    scaler.dynamic = None
    scaler.run(SourceBreakpoint(line=scaler.line("line 2"), log_message="{y}"))
    logged = [body.output.strip() for event, body in scaler.host.events if event == "output"]
    assert scaler.traced == 1
    assert [text.rpartition(" = ")[2] for text in logged[-2:]] == ["[12.0, 12.0, 12.0]", "[14.0, 14.0, 14.0]"]


def test_a_tensor_that_a_log_message_chooses_is_that_of_the_call(scaler: Calls) -> None:
    """The tensor is too large to show elements, but the rest of its text differs between calls."""
    scaler.size_at = lambda step: 100 + step
    message = "{y if y.sum() > 1000 else y.double()}"
    scaler.run(SourceBreakpoint(line=scaler.line("line 2"), log_message=message))
    logged = [body.output.strip() for event, body in scaler.host.events if event == "output"]
    assert len(logged) == 6
    assert ["f64" if "f64" in text else "f32" for text in logged[1:]] == ["f64", "f64", "f32", "f32", "f32"]


def test_a_log_message_that_fails_in_a_later_call_says_so(scaler: Calls) -> None:
    """The tensor has three elements: the index is too large when ``step`` is 5."""
    scaler.run(SourceBreakpoint(line=scaler.line("line 2"), log_message="{x[step - 2].sum()}"))
    logged = [body.output.strip() for event, body in scaler.host.events if event == "output"]
    assert len(logged) == 6
    assert [text.rpartition(" = ")[2] for text in logged[1:3]] == ["3.0", "4.0"]
    assert all("IndexError" in text for text in logged[3:])


@pytest.mark.parametrize("name", ["on_instruction", "begins"])
def test_a_hit_count_needs_no_frame(name: str, scaler: Calls, monkeypatch: pytest.MonkeyPatch) -> None:
    """The debugger inspects two cached calls, to learn which lines they reach. It only counts the others."""
    seen: list[int] = []
    owner: Any = RunTimeEngine if name == "on_instruction" else CallEntries
    original = getattr(owner, name)
    calls: list[None] = []

    def note(*arguments: Any) -> Any:
        seen.append(len(calls))
        return original(*arguments)

    monkeypatch.setattr(owner, name, note)
    scaler.run(SourceBreakpoint(line=scaler.line("line 2"), hit_condition="5"), on_call=lambda: calls.append(None))
    assert {*seen} == {1, 2, 3, 5}
    assert scaler.stops == ["Call 5 of Scaler.forward [0/0]"]


def test_the_length_of_a_list_needs_no_graph(scaler: Calls, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SavedGraphInCall, "value_of", lambda *_: pytest.fail("the graph has run"))
    scaler.run(SourceBreakpoint(line=scaler.line("line 2"), condition="len(parts) == 3"))
    assert scaler.traced == 1
    assert not scaler.stops


def traced_lines(scaler: Calls) -> list[list[int]]:
    """Stop at line 1 of every call. Return the traced lines of each call."""
    lines: list[list[int]] = []

    def note(translator: Any) -> None:
        if replayed_call() is not None and translator.f_code.co_name == "forward":
            lines[-1].append(translator.lineno)

    patches = Patches("noting lines")
    add_line_hook(patches, note)
    try:
        scaler.run(SourceBreakpoint(line=scaler.line("line 1")), on_call=lambda: lines.append([]))
    finally:
        patches.remove()
    assert len(scaler.stops) == 6
    return lines


def test_later_calls_stop_without_a_trace(scaler: Calls) -> None:
    lines = traced_lines(scaler)
    assert [bool(each) for each in lines] == [False, True, False, False, False, False]


@pytest.mark.usefixtures("nothing_kept")
def test_a_call_is_traced_no_further_than_its_last_breakpoint(scaler: Calls) -> None:
    """Except in the first cached call, whose trace shows where the last breakpoint is."""
    lines = traced_lines(scaler)
    first, last = scaler.line("line 1"), scaler.line("line 2")
    assert [last in each for each in lines] == [False, True, False, False, False, False]
    assert all(first in each for each in lines[1:])


@dataclass(eq=False)
class Calls:
    """Runs the compiled ``Scaler`` six times, with breakpoints in it."""

    host: Any
    dynamic: bool | None = True
    size_at: Callable[[int], int] = lambda step: 3
    """The size of the tensor at a step."""
    traced: int = 0
    stops: list[str] = field(default_factory=list)

    def line(self, marker: str) -> int:
        """Return the number of the line that ends with the comment ``marker``."""
        lines = Path(__file__).read_text(encoding="utf-8").splitlines()
        return next(number for number, text in enumerate(lines, 1) if text.endswith(f"# {marker}"))

    def run(self, *breakpoints: SourceBreakpoint, on_call: Callable[[], None] = lambda: None) -> None:
        """Call the module with steps 2 to 7 and tensors of these values. The first call compiles it."""
        self.traced = 0
        host = self.host
        tracing = CompileTimeEngine(host)
        host.engine = RunTimeEngine(host, None, tracing.cached_calls)
        host.breakpoints.set_lines(__file__, breakpoints, host.options)
        tracing.update_hooks()
        host.engine.update_hooks()
        try:
            torch._dynamo.reset()
            compiled = torch.compile(Scaler(), backend="eager", dynamic=self.dynamic)
            for step in range(2, 8):
                on_call()
                compiled(torch.full((self.size_at(step),), float(step)), step)
        finally:
            host.engine.close()
            tracing.close()
        assert host.failure is None


@pytest.fixture
def scaler(monkeypatch: pytest.MonkeyPatch) -> Calls:
    host: Any = ScriptedHost(lambda stop: calls.stops.append(str(stop.stop.description)), mode="both")
    host.eager_debugger = NoEagerDebugger()
    calls = Calls(host)
    original = vars(cached_calls)["run_replay"]

    def run_replay(replay: Replay, **options: Any) -> Any:
        calls.traced += 1
        return original(replay, **options)

    monkeypatch.setattr(cached_calls, "run_replay", run_replay)
    return calls


NUMBER = 0
