"""A fast check of conditions, for breakpoints that are reached very often: skips those that are plainly false.

The agent's own decision about a breakpoint takes several times as long as most conditions do. Runs on the thread that
runs the code.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from types import FrameType

from dynamo_dap.debuggee.agent.breakpoints import LineBreakpoint
from dynamo_dap.debuggee.agent.engine import Host
from dynamo_dap.debuggee.agent.interruption import Guard
from dynamo_dap.debuggee.run_time.evaluation import is_surely_false
from dynamo_dap.debuggee.run_time.generated import GeneratedCode
from dynamo_dap.debuggee.values.model import Interrupted


class Conditions:
    """Quick answers, bounded in time like all evaluations."""

    def __init__(self, host: Host) -> None:
        """``host`` has the options, with the time that an evaluation may take."""
        self._host = host
        self._threads = threading.local()

    @property
    def are_evaluated(self) -> bool:
        """Whether this thread is evaluating a condition: what that runs must not stop."""
        guard: Guard | None = getattr(self._threads, "guard", None)
        return guard is not None and guard.is_busy

    def not_surely_false(
        self, breakpoints: Sequence[LineBreakpoint], generated: GeneratedCode, frame: FrameType, offset: int
    ) -> list[LineBreakpoint]:
        """Return those of ``breakpoints`` that may have to stop before the instruction at ``offset``."""
        guard: Guard | None = getattr(self._threads, "guard", None)
        if guard is None:
            guard = self._threads.guard = Guard()
        elif guard.is_busy:
            return []
        remaining: list[LineBreakpoint] = []
        try:
            guard.begin(self._host.options.evaluation_timeout)
            try:
                for breakpoint in breakpoints:
                    condition = breakpoint.conditions.condition
                    if condition is None or not is_surely_false(generated, frame, offset, condition):
                        remaining.append(breakpoint)
            finally:
                guard.end()
        except Interrupted:
            # It took too long; the agent will tell, having tried it again. It may have arrived on the way out.
            guard.end()
            return list(breakpoints)
        return remaining
