"""Predictions of breakpoints in cached calls: a call in which none stops is not traced again."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NoReturn

import pytest
import torch
import torch._dynamo

from dynamo_dap.debuggee.agent import own_rank
from dynamo_dap.debuggee.agent.engine import NoEagerDebugger
from dynamo_dap.debuggee.composition import cached_calls
from dynamo_dap.debuggee.composition.compile_time_engine import CompileTimeEngine
from dynamo_dap.debuggee.generated.cached_calls import CallEntries
from dynamo_dap.debuggee.generated.engine import RunTimeEngine
from dynamo_dap.debuggee.history.saved_traces import CannotReuse
from dynamo_dap.debuggee.replay import breakpoint_prediction
from dynamo_dap.debuggee.torch_api.graphs.graph_runs import evaluating_on_real_values
from dynamo_dap.debuggee.torch_api.traced.replays import CompleteTrace, clear, current_replay
from dynamo_dap.debuggee.torch_api.traced.tracing_hooks import add_line_hook
from dynamo_dap.debuggee.trace.runs import SilentRun
from dynamo_dap.debuggee.wrapping.patches import Patches
from dynamo_dap.protocol.requests.ranks import Rank
from dynamo_dap.protocol.wire.types import SourceBreakpoint
from tests.run_time.in_process import ScriptedHost

pytestmark = pytest.mark.timeout(600)


class Scaler(torch.nn.Module):
    """Reads one number attribute and stores another."""

    def __init__(self) -> None:
        super().__init__()
        self.factor = 2.0
        self.last = 0.0
        self.powers = [1, 2]

    def forward(self, x: torch.Tensor, step: int) -> torch.Tensor:
        y = x * self.factor  # line 1
        parts = [x, y]
        both = (x, y)
        twice = step * 2
        self.last = self.factor
        return parts[1] + both[0] * 0 + twice - step  # line 2


_runs: list[None] = []


@torch.library.custom_op("dynamo_dap_tests::counted", mutates_args=())
def counted(x: torch.Tensor) -> torch.Tensor:
    """Count the runs of a graph."""
    _runs.append(None)
    return x.clone()


@counted.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


class Counting(Scaler):
    """Counts how often its graph runs."""

    def forward(self, x: torch.Tensor, step: int) -> torch.Tensor:
        y = counted(x)
        parts = [x, y]
        return parts[1] + step  # line 2


class Noisy(Scaler):
    """Computes a value from random numbers."""

    def forward(self, x: torch.Tensor, step: int) -> torch.Tensor:
        y = torch.rand(2) + x[:2]
        return y * step  # line 2


class Ranked(Scaler):
    """Has a variable with the name that conditions use for the rank of the process."""

    def forward(self, x: torch.Tensor, step: int) -> torch.Tensor:
        rank = step * 2
        return x + rank  # line 2


@dataclass(eq=False)
class Calls:
    """Runs a compiled module six times, with breakpoints in it."""

    module: type[Scaler]
    dynamic: bool | None = True
    backend: str = "eager"
    size_at: Callable[[int], int] = lambda step: 3
    """The size of the tensor at a step."""
    lines: list[list[int]] = field(default_factory=list)
    """The lines that a replay traced, for each call."""
    stops: list[str] = field(default_factory=list)
    logged: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        host: Any = ScriptedHost(lambda stop: self.stops.append(str(stop.stop.description)), mode="both")
        host.eager_debugger = NoEagerDebugger()
        self._host = host

    @property
    def traced(self) -> int:
        """The number of cached calls that were replayed."""
        return sum(map(bool, self.lines))

    def line(self, marker: str) -> int:
        """Return the number of the module's line that ends with the comment ``marker``."""
        lines, first = inspect.getsourcelines(self.module.forward)
        return next(number for number, text in enumerate(lines, first) if text.endswith(f"# {marker}\n"))

    def run(self, *breakpoints: SourceBreakpoint, on_call: Callable[[], None] = lambda: None) -> None:
        """Call the module with steps 2 to 7 and tensors of these values. The first call compiles it."""
        host = self._host
        self.lines, patches = [], Patches("noting lines")
        add_line_hook(patches, self._note)  # before the engine's, which ends traces
        tracing = CompileTimeEngine(host)
        host.engine = RunTimeEngine(host, None, tracing.cached_calls)
        host.breakpoints.set_lines(__file__, breakpoints, host.options)
        tracing.update_hooks()
        host.engine.update_hooks()
        try:
            torch._dynamo.reset()
            compiled = torch.compile(self.module(), backend=self.backend, dynamic=self.dynamic)
            for step in range(2, 8):
                self.lines.append([])
                on_call()
                compiled(torch.full((self.size_at(step),), float(step)), step)
        finally:
            patches.remove()
            host.engine.close()
            tracing.close()
        assert host.failure is None
        self.logged += [body.output.strip() for event, body in host.events if event == "output"]

    def _note(self, translator: Any) -> None:
        replay = current_replay()
        # Silent runs compare values that a condition has used with those of the call, after the call.
        is_counted = replay is not None and not isinstance(replay, SilentRun)
        if is_counted and translator.f_code.co_name == "forward":
            self.lines[-1].append(translator.lineno)


@pytest.fixture
def scaler() -> Calls:
    return Calls(Scaler)


@pytest.fixture
def nothing_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Prevent saved traces, as if a value of the call could not be found again.

    No program has both: values that cannot be found again, and conditions that are predicted with a graph.
    """

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
    ("line 1", "step == 100 and self.powers[0] == 1", 1),
    ("line 2", "step == 100", 1),
    ("line 2", "twice == 100", 1),
    ("line 2", "bool(parts) == 2", 1),
    ("line 2", "len(parts + [x]) == 9 or len(both + (x,)) == 9", 1),
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


@pytest.mark.parametrize(("line", "condition"), [each[:2] for each in CONDITIONS if each[2] > 1])
def test_the_saved_trace_evaluates_what_is_not_predicted(line: str, condition: str, scaler: Calls) -> None:
    """Only the first of 5 cached calls is replayed."""
    scaler.run(SourceBreakpoint(line=scaler.line(line), condition=condition))
    assert scaler.traced == 1
    assert not scaler.stops


@pytest.mark.parametrize(
    ("line", "condition", "hit", "call"),
    [("line 1", "y is None or x.sum() > 0", "5", 5), ("line 2", "y.sum() > 13", "2", 3)],
)
def test_hits_are_counted_without_a_trace(line: str, condition: str, hit: str, call: int, scaler: Calls) -> None:
    """Only the first cached call is replayed, not the call that stops. The compile was the first call."""
    scaler.run(SourceBreakpoint(line=scaler.line(line), condition=condition, hit_condition=hit))
    assert scaler.traced == 1
    assert scaler.stops == [f"Call {call} of Scaler.forward [0/0]"]


def test_messages_are_logged_without_a_trace(scaler: Calls) -> None:
    message = "{step}: {y.sum().item()} of {self.last} {y.tolist()[0]}"
    scaler.run(SourceBreakpoint(line=scaler.line("line 2"), log_message=message))
    assert scaler.traced == 1
    assert scaler.logged[1:] == [f"{step}: {step * 6.0} of 2.0 {step * 2.0}" for step in range(3, 8)]


@pytest.mark.usefixtures("nothing_kept")
def test_numbers_are_logged_without_a_trace(scaler: Calls) -> None:
    scaler.run(SourceBreakpoint(line=scaler.line("line 1"), log_message="{step}"))
    assert scaler.traced == 1
    assert scaler.logged[1:] == [str(step) for step in range(3, 8)]


@pytest.mark.usefixtures("nothing_kept")
def test_tensors_are_logged_without_a_trace(scaler: Calls) -> None:
    """The message shows the elements of small tensors. The text of any other tensor is the same in every call."""
    scaler.run(SourceBreakpoint(line=scaler.line("line 2"), log_message="{y} {y.sum()}"))
    assert scaler.traced == 1
    assert [text.rpartition(" = ")[2] for text in scaler.logged[1:]] == [f"{step * 6.0}" for step in range(3, 8)]
    assert all(text.count("Tensor f32[") == 2 for text in scaler.logged)


@pytest.mark.usefixtures("nothing_kept")
def test_the_elements_of_a_logged_tensor_are_those_of_the_call(scaler: Calls) -> None:
    scaler.dynamic = None
    scaler.run(SourceBreakpoint(line=scaler.line("line 2"), log_message="{y}"))
    assert scaler.traced == 1
    assert [text.rpartition(" = ")[2] for text in scaler.logged[-2:]] == ["[12.0, 12.0, 12.0]", "[14.0, 14.0, 14.0]"]


@pytest.mark.usefixtures("nothing_kept")
def test_logged_values_from_random_numbers_of_inductor_are_marked() -> None:
    """Inductor draws other numbers than eager. The marked texts are predicted, too."""
    noisy = Calls(Noisy, backend="inductor")
    noisy.run(SourceBreakpoint(line=noisy.line("line 2"), log_message="{y}; {y.sum().item()}; {x}"))
    assert noisy.traced == 1
    assert len({text.partition(";")[0] for text in noisy.logged}) == 6
    for text in noisy.logged:
        drawn, total, given = text.split("; ")
        assert drawn.endswith("] (not proven)")
        assert total.endswith(" (not proven)")
        assert "proven" not in given


@pytest.mark.parametrize(("size", "limit"), [(100, 1000), (0, 40)])
def test_a_tensor_that_a_log_message_chooses_is_that_of_the_call(size: int, limit: int, scaler: Calls) -> None:
    """A large tensor shows no elements, a small one does; the rest of the text differs between calls, too."""
    scaler.size_at = lambda step: size + step
    message = f"{{y if y.sum() > {limit} else y.double()}}"
    scaler.run(SourceBreakpoint(line=scaler.line("line 2"), log_message=message))
    assert len(scaler.logged) == 6
    assert ["f64" if "f64" in text else "f32" for text in scaler.logged[1:]] == ["f64", "f64", "f32", "f32", "f32"]


def test_a_log_message_that_fails_in_a_later_call_says_so(scaler: Calls) -> None:
    """The tensor has three elements: the index is too large when ``step`` is 5."""
    scaler.run(SourceBreakpoint(line=scaler.line("line 2"), log_message="{x[step - 2].sum()}"))
    assert len(scaler.logged) == 6
    assert [text.rpartition(" = ")[2] for text in scaler.logged[1:3]] == ["3.0", "4.0"]
    assert all("IndexError" in text for text in scaler.logged[3:])


@pytest.mark.parametrize("name", ["on_instruction", "begins"])
def test_a_hit_count_needs_no_frame(name: str, scaler: Calls, monkeypatch: pytest.MonkeyPatch) -> None:
    """The debugger inspects two cached calls, to learn which lines they reach. It only counts the others.

    The cost of a call shows nowhere but in these internal functions.
    """
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


RANK_CONDITIONS = [
    (Scaler, "rank == 1 and step == 5", ["Call 4 of Scaler.forward [0/0]"]),
    (Scaler, "rank == 2 or step == 100", []),
    (Ranked, "rank == 1", []),
    (Ranked, "rank == 8", ["Call 3 of Ranked.forward [0/0]"]),
]
"""Conditions in a process of rank 1, and their stops."""


@pytest.mark.usefixtures("nothing_kept")
@pytest.mark.parametrize(("module", "condition", "stops"), RANK_CONDITIONS)
def test_a_condition_on_the_rank(module: type[Scaler], condition: str, stops: list[str]) -> None:
    """The name stands for the rank of the process, unless the program has a variable of that name."""
    own_rank.be_spawned_as(Rank(1))
    try:
        calls = Calls(module)
        calls.run(SourceBreakpoint(line=calls.line("line 2"), condition=condition))
    finally:
        own_rank.be_spawned_as(None)
    assert calls.stops == stops
    assert calls.traced == 1 + len(stops)


PREDICTIONS = [
    ("line 1", {"condition": "step == 100"}, False),
    ("line 1", {"log_message": "{step}"}, False),
    ("line 1", {"condition": "x.sum() > 1e9"}, True),
    ("line 2", {"condition": "y.sum() > 1e9"}, True),
    ("line 2", {"log_message": "{y.sum()}"}, True),
]


@pytest.mark.usefixtures("nothing_kept")
@pytest.mark.parametrize(("line", "options", "is_isolated"), PREDICTIONS)
def test_only_operations_on_tensors_are_isolated(
    line: str, options: dict[str, Any], is_isolated: bool, scaler: Calls, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cost of isolation shows nowhere but in this internal function."""
    begun: list[None] = []

    def note() -> Any:
        begun.append(None)
        return evaluating_on_real_values()

    monkeypatch.setattr(breakpoint_prediction, "evaluating_on_real_values", note)
    scaler.run(SourceBreakpoint(line=scaler.line(line), **options))
    assert scaler.traced == 1
    assert len(begun) == (5 if is_isolated else 0)


def test_the_length_of_a_list_needs_no_graph() -> None:
    runs = {}
    for condition in ("len(parts) == 3", "y.sum() > 1e9"):
        counting = Calls(Counting)
        _runs.clear()
        counting.run(SourceBreakpoint(line=counting.line("line 2"), condition=condition))
        assert counting.traced == 1
        assert not counting.stops
        runs[condition] = len(_runs)
    assert runs["len(parts) == 3"] == 6, "those of the program"
    assert runs["y.sum() > 1e9"] > 6


def traced_lines(calls: Calls) -> list[list[int]]:
    """Stop at line 1 of every call. Return the traced lines of each call."""
    calls.run(SourceBreakpoint(line=calls.line("line 1")))
    assert len(calls.stops) == 6
    return calls.lines


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


NUMBER = 0
