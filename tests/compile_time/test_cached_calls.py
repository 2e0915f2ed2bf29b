"""Calls that the cache serves are stopped in by tracing them once more: nothing of that reaches the program."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest

from dynamo_dap.debuggee.compile_time.cached_calls import ReplayedCalls
from dynamo_dap.debuggee.run_time.engine import RunTimeEngine
from dynamo_dap.debuggee.torch_internals.retracing import CachedCall, retraced_call
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

    def stop_in(self, call: CachedCall) -> Mapping[str, frozenset[int]] | None:
        self.count += 1
        return super().stop_in(call)

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
