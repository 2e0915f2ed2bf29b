"""Backward passes of compiled calls, inspected in the test's own process with the real engines."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

from dynamo_dap.debuggee.agent.engine import NoEagerDebugger
from dynamo_dap.debuggee.composition.compile_time_engine import CompileTimeEngine
from dynamo_dap.debuggee.generated.engine import RunTimeEngine
from dynamo_dap.debuggee.numerics.gradients.gradient_run import GradientRun
from dynamo_dap.debuggee.numerics.stops.backward_passes import BackwardPasses, KeptCall
from dynamo_dap.debuggee.torch_api.traced.replays import CachedCall
from dynamo_dap.debuggee.trace.runs import LineTraces, ReplayRun
from dynamo_dap.protocol.wire.types import SourceBreakpoint
from tests.run_time.in_process import Action, ScriptedHost, SeenStop


class EveryLine(BackwardPasses):
    """Traces each call again in its backward pass, even without breakpoints."""

    def __init__(self, host: Any, address_of: Callable[..., int] = lambda frame, index: 0) -> None:
        super().__init__(host, address_of, LineTraces(lambda: None))
        self.count = 0

    def are_wanted(self) -> bool:
        return True

    def may_stop(self, lines: Mapping[str, frozenset[int]]) -> bool:
        return True

    def _may_stop_in(self, kept: KeptCall) -> bool:
        return True

    def _stop_in(self, kept: KeptCall, run: GradientRun) -> None:
        self.count += 1
        self._trace(kept, ReplayRun(self._in_backward(kept, run)))

    def _report_failure(self, call: CachedCall, problem: Exception) -> None:
        host: Any = self._host  # a scripted one
        host.failure = problem


@contextmanager
def _with_breakpoints(host: Any, tracing: CompileTimeEngine) -> Iterator[None]:
    engine = host.engine = RunTimeEngine(host, None, tracing.cached_calls, tracing.backward_passes)
    tracing.update_hooks()
    engine.update_hooks()
    try:
        yield
        assert host.failure is None, host.failure
    finally:
        engine.close()
        tracing.close()


Kind = TypeVar("Kind", bound=EveryLine)


@contextmanager
def every_backward_pass(kind: type[Kind] = EveryLine) -> Iterator[Kind]:  # type: ignore[assignment]
    """Inspect every compiled call in its backward pass."""
    host: Any = ScriptedHost(lambda stop: None, mode="both")
    host.eager_debugger = NoEagerDebugger()
    tracing = CompileTimeEngine(host)
    passes = tracing.backward_passes = kind(host)
    with _with_breakpoints(host, tracing):
        yield passes


@contextmanager
def backward_breakpoints(
    path: str,
    *breakpoints: SourceBreakpoint,
    script: Callable[[SeenStop], Action] = lambda stop: None,
    **options: Any,
) -> Iterator[ScriptedHost]:
    """Set breakpoints in a file; ``script`` says what to do at each stop."""
    host: Any = ScriptedHost(script, mode="both", **options)
    host.eager_debugger = NoEagerDebugger()
    tracing = CompileTimeEngine(host)
    host.breakpoints.set_lines(path, breakpoints, host.options)
    with _with_breakpoints(host, tracing):
        yield host
