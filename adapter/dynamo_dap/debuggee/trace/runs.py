"""Why a trace runs: the program compiles, or the debugger replays a call for some purpose.

Whoever starts a trace makes its ``TraceRun``, which decides what happens at each line. The engine asks
``current_run()`` and nothing else about the purpose. A run belongs to one thread, and lives as long as its trace; the
program's own traces on a thread share one.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from enum import Enum

from dynamo_dap.debuggee.agent.breakpoints import LineBreakpoint
from dynamo_dap.debuggee.agent.stepping import Changes
from dynamo_dap.debuggee.torch_api.retracing import CachedCall, current_replay
from dynamo_dap.debuggee.torch_api.traced_frame import TracedFrame
from dynamo_dap.debuggee.torch_api.translator import CompileIdentity
from dynamo_dap.debuggee.trace.progress import ProgressOfTraces, TracePoint, TraceProgress
from dynamo_dap.protocol.contract import COMPILE_TIME


class Decision(Enum):
    """The decision on a line that a trace has reached."""

    GO_ON = "go on"
    ASK = "hold if a breakpoint, a step or a request to pause says so"
    HOLD = "hold"


class TraceRun:
    """A trace of the program's own, and what the other kinds have in common with it."""

    call: CachedCall | None = None
    """The call that is replayed."""
    is_followed = True
    """Whether its lines count at all: not where Dynamo traces something else in between."""
    is_logged = True
    """Whether its history is kept for steps back."""
    stops = True
    """Whether the user can be stopped in it, so that the visits of its lines count as reported."""
    traces: ProgressOfTraces | None = None
    """Its own progress, where its visits must not count for the program's traces."""
    jumps = False
    """Whether the user has moved execution in it."""
    _silenced: str | None = None

    @property
    def changes(self) -> Changes | None:
        """What the user changed in it."""
        return None

    def applies(self, mode: str | None) -> bool:
        """Whether a breakpoint of ``mode`` stops in it."""
        return mode is None or (mode == COMPILE_TIME and self.call is None)

    def on_line(self, frame: TracedFrame, progress: TraceProgress, point: Callable[[], TracePoint]) -> Decision:
        """Decide on the line that ``frame`` has reached; ``point`` returns where that is."""
        return Decision.ASK

    def held(self, frame: TracedFrame) -> str:
        """Return the reason of a stop that ``Decision.HOLD`` makes."""
        raise NotImplementedError

    def reaches(self, frame: TracedFrame, breakpoints: Sequence[LineBreakpoint]) -> None:
        """Note that ``frame`` has reached breakpoints."""

    def next_index(self, frame: TracedFrame, index: int, progress: TraceProgress) -> int:
        """Return the instruction that comes next: ``index``, or the target of the user's jump."""
        return index

    def is_over(self) -> bool:
        """Whether nothing more of the trace is wanted, so that it can be ended."""
        return False

    def silence(self, compile_id: str | None) -> None:
        """Stop nowhere in the rest of this compile: the user has seen a changed trace of it. None: stop again."""
        self._silenced = compile_id

    def may_stop(self, identity: CompileIdentity) -> bool:
        """Whether anything stops in the trace."""
        return self.stops and self._silenced != identity.compile_id


class ReplayRun(TraceRun):
    """A replay of a call, which stops as the call does."""

    call: CachedCall

    def __init__(self, call: CachedCall) -> None:
        """Replay ``call``."""
        self.call = call


class SilentRun(ReplayRun):
    """A replay for its graph alone, or what Dynamo traces while a trace is changed."""

    is_followed = is_logged = stops = False


class _OfThread(threading.local):
    def __init__(self) -> None:
        self.own = TraceRun()


_thread = _OfThread()


def current_run() -> TraceRun:
    """Return why the calling thread traces, or shows a trace."""
    replay = current_replay()
    return replay if isinstance(replay, TraceRun) else _thread.own


class LineTraces:
    """Counts the traces that need the hooks of lines, whatever breakpoints there are. One for each engine."""

    def __init__(self, arm: Callable[[], None]) -> None:
        """Call ``arm`` when the needed hooks change."""
        self._arm = arm
        self._running: list[TraceRun] = []

    @property
    def are_lines_wanted(self) -> bool:
        """Whether traces have to report lines. Any thread."""
        return bool(self._running)

    @property
    def are_instructions_wanted(self) -> bool:
        """Whether traces have to report every instruction. Any thread."""
        return any(run.jumps for run in list(self._running))

    @contextlib.contextmanager
    def running(self, run: TraceRun) -> Iterator[None]:
        """Report the lines of ``run``, whose trace runs inside this context."""
        self._running.append(run)
        self._arm()
        try:
            yield
        finally:
            self._running.remove(run)
            self._arm()
