"""Calls that the cache serves are stopped in by tracing them once more: nothing of that reaches the program."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
import torch._dynamo

from dynamo_dap.debuggee.agent.engine import CallFacts, NoEagerDebugger
from dynamo_dap.debuggee.compile_time import cached_calls
from dynamo_dap.debuggee.compile_time.cached_calls import ReplayedCalls
from dynamo_dap.debuggee.compile_time.engine import CompileTimeEngine
from dynamo_dap.debuggee.run_time.engine import RunTimeEngine
from dynamo_dap.debuggee.torch_internals.retracing import CachedCall, retraced_call
from dynamo_dap.protocol.types import SourceBreakpoint
from tests.compile_time.observation import Observation, observe
from tests.compile_time.programs import PROGRAMS, contexts
from tests.compile_time.watching import EachLine, Looker
from tests.run_time.in_process import ScriptedHost

pytestmark = pytest.mark.timeout(600)


class EveryCall(ReplayedCalls):
    """Traces every cached call once more, whatever is armed."""

    def __init__(self, host: Any) -> None:
        super().__init__(host)
        self.count = 0

    def are_wanted(self) -> bool:
        return True

    def may_stop(self, lines: Mapping[str, frozenset[int]], functions: Collection[str]) -> bool:
        return True

    def stop_in(self, call: CachedCall, known: CallFacts | None) -> CallFacts | None:
        self.count += 1
        return super().stop_in(call, None)

    def _tell_failure(self, call: CachedCall, problem: Exception) -> None:
        raise AssertionError(f"{call.code.co_name} could not be traced again") from problem


@contextmanager
def every_cached_call() -> Iterator[EveryCall]:
    """Have every call that the cache serves traced once more."""
    host: Any = ScriptedHost(lambda stop: None, mode="both")
    calls = EveryCall(host)
    engine = host.engine = RunTimeEngine(host, None, calls)
    engine.arm()
    try:
        yield calls
    finally:
        engine.close()


def parts(seen: Observation) -> dict[str, Any]:
    """Return what a run did, by name, but for how many instructions were traced."""
    return {name: value for name, value in vars(seen).items() if name not in ("steps", "lines")}


SERVED = [program for program in PROGRAMS if program is not contexts]
"""``contexts`` makes new objects at each run, for which it is compiled again."""


@pytest.mark.parametrize("program", SERVED, ids=lambda program: program.__name__)
def test_nothing_changes(program: Any) -> None:
    """Every scope is opened at every line of every call, with its values."""
    observe(program, runs=3)
    alone = parts(observe(program, runs=3))
    looker = Looker(lazy=True)
    seen = EachLine(lambda frame: looker(frame) if retraced_call() is not None else None)
    with every_cached_call() as calls:
        watched = parts(observe(program, watch=seen, runs=3))
    assert calls.count, "the cache served no call"
    assert looker.shown
    for name, value in alone.items():
        assert watched[name] == value, name


class Scaler(torch.nn.Module):
    """Has a number that its code reads, and one that it stores."""

    def __init__(self) -> None:
        super().__init__()
        self.factor = 2.0
        self.last = 0.0

    def forward(self, x: torch.Tensor, step: int) -> torch.Tensor:
        y = x * self.factor  # line 1
        self.last = self.factor
        return y + step  # line 2


@pytest.mark.parametrize(
    ("line", "condition", "traces"),
    [
        ("line 1", "step == 100", 1),
        ("line 1", "step > 3 and self.factor == 3.0", 1),
        ("line 1", "self.training is False or step < 0", 1),
        ("line 1", "NUMBER == 1", 1),
        ("line 1", "x.sum() > 1e9", 5),
        ("line 1", "len(str(step)) == 5", 5),
        ("line 1", "getattr(self, 'factor') == 3.0", 5),
        ("line 2", "step == 100", 1),
        ("line 2", "self.factor == 3.0", 5),
    ],
)
def test_a_false_condition_on_plain_values_needs_no_trace(
    line: str, condition: str, traces: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 5 cached calls the first is traced; those on data, with a call, or after a store are left to the trace."""
    traced: list[CachedCall] = []
    original = cached_calls.trace_again

    def trace_again(call: CachedCall) -> None:
        traced.append(call)
        original(call)

    monkeypatch.setattr(cached_calls, "trace_again", trace_again)
    stops: list[Any] = []
    host: Any = ScriptedHost(stops.append, mode="both")
    host.eager_debugger = NoEagerDebugger()
    tracing = CompileTimeEngine(host)
    host.engine = RunTimeEngine(host, None, tracing.cached_calls)
    number = next(i for i, text in enumerate(Path(__file__).read_text().splitlines(), 1) if text.endswith(f"# {line}"))
    host.breakpoints.set_lines(__file__, [SourceBreakpoint(line=number, condition=condition)], host.options)
    tracing.arm()
    host.engine.arm()
    try:
        torch._dynamo.reset()
        compiled = torch.compile(Scaler(), backend="eager", dynamic=True)
        for step in range(2, 8):
            compiled(torch.ones(3), step)
    finally:
        host.engine.close()
        tracing.close()
    assert len(traced) == traces
    assert not stops
    assert host.failure is None


NUMBER = 0
