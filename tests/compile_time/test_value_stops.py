"""Every call is examined as if its result were wrong, and the program does not notice it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from dynamo_dap.debuggee.agent.engine import NoEagerDebugger
from dynamo_dap.debuggee.composition.compile_time_engine import CompileTimeEngine
from dynamo_dap.debuggee.numerics.stops import value_stops
from tests.compile_time.observation import observe
from tests.compile_time.programs import PROGRAMS, functions, transforms
from tests.compile_time.test_cached_calls import parts
from tests.run_time.in_process import ScriptedHost

pytestmark = pytest.mark.timeout(600)


@contextmanager
def every_call_examined(*filters: str) -> Iterator[ScriptedHost]:
    """Examine every call. The host has the output and the stops."""
    host: Any = ScriptedHost(lambda stop: None, mode="both")
    host.eager_debugger = NoEagerDebugger()
    host.comparison = None
    host.breakpoints.set_exception_filters(dict.fromkeys(filters))
    engine = CompileTimeEngine(host)
    engine.update_hooks()
    try:
        yield host
    finally:
        engine.close()


EXAMINED = [program for program in PROGRAMS if program is not functions]
"""Without ``functions``, which compiles a weak reference's callback where the object dies: inspection may move that."""


@pytest.mark.parametrize("program", EXAMINED, ids=lambda program: program.__name__)
def test_nothing_changes(program: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each call is replayed and its graph is run. If the function has one graph, it also runs as ordinary Python."""
    problems: list[str] = []
    examined: list[Any] = []
    examine = value_stops.ValueStops.returned
    monkeypatch.setattr(value_stops, "may_have_any", lambda outputs: True)
    monkeypatch.setattr(value_stops, "log_exception", problems.append)
    monkeypatch.setattr(
        value_stops.ValueStops, "returned", lambda self, call: (examined.append(call.graph), examine(self, call))
    )
    observe(program, runs=3)
    alone = parts(observe(program, runs=3))
    with every_call_examined("nan", "mismatch") as host:
        watched = parts(observe(program, runs=3))
    assert examined, "no call was inspected"
    if program is transforms:
        assert all("transforms of torch.func" in text for text in host.printed), host.printed
    else:
        assert problems == [], host.printed
    for name, value in alone.items():
        assert watched[name] == value, name
