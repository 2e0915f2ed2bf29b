"""Models a thread's stop, and the step by which the user resumes the thread.

Engines read and finish a step on the stepping thread. Other threads only check whether a step is in progress.
"""

from __future__ import annotations

import threading
import types
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Protocol, runtime_checkable

from dynamo_dap.debuggee.agent.frames import Frame
from dynamo_dap.debuggee.values.model import Value
from dynamo_dap.debuggee.wrapping.locks import Level, lock
from dynamo_dap.protocol.requests.contract import TimelineBody
from dynamo_dap.protocol.wire.types import ExceptionDetails


class StepKind(Enum):
    """The user's command that began a step; most are DAP requests."""

    OVER = "next"
    IN = "stepIn"
    OUT = "stepOut"
    BACK = "stepBack"
    BACK_TO_BREAKPOINT = "reverseContinue"
    RESTART_FRAME = "restartFrame"
    TO_SNAPSHOT = "to a snapshot"
    CHANGE = "a change"

    @property
    def goes_back(self) -> bool:
        """Whether the step goes back in a trace."""
        return self not in (StepKind.OVER, StepKind.IN, StepKind.OUT, StepKind.CHANGE)

    @property
    def leaves_thread(self) -> bool:
        """Whether the step resumes the program; all others only move in a held trace."""
        return self in (StepKind.OVER, StepKind.IN, StepKind.OUT)


@dataclass(frozen=True, slots=True)
class Assignment:
    """Statements that the user adds to a traced function at its present line."""

    text: str
    frame: Any
    """The function, as its engine knows it."""
    shown: str | None = None
    """The expression whose value the answer shows after the assignment."""


@dataclass(frozen=True, slots=True)
class Jump:
    """A jump in a traced function to another line."""

    line: int
    index: int
    """The target instruction's index, as the engine counts."""


class ChangesTrace(Exception):
    """Raised for a command that would change a held trace: the change is made in a separate trace."""

    def __init__(self, change: Assignment | Jump) -> None:
        super().__init__("this changes the trace")
        self.change = change


@dataclass(frozen=True, slots=True)
class RequestedChange:
    """A requested change of a trace, and the functions that answer the request.

    When the separate trace has made the change, its engine calls ``answer`` with the new value. If it cannot make the
    change, it calls ``refuse`` with the reason.
    """

    change: Assignment | Jump
    answer: Callable[[Value], None]
    refuse: Callable[[str], None]


@runtime_checkable
class TracedOrigin(Protocol):
    """The facts about the beginning of a step in a trace. Used on the stepping thread."""

    def continues_in(self, code: types.CodeType | None, *, is_out: bool) -> bool:
        """Return whether the step ends in ordinary Python that continues the compiled function ``code``."""


@dataclass(slots=True)
class Step:
    """A step in progress on one thread. It ends when the thread is held again, for whatever reason."""

    kind: StepKind
    granularity: str
    """DAP ``SteppingGranularity``: ``statement``, ``line`` or ``instruction``."""
    engine: str
    """The name of the engine whose frame was on top when the step began."""
    origin: object = None
    """The engine's facts about the step's beginning; other engines ignore them."""
    target: int = 0
    """The target of a step back.

    For ``RESTART_FRAME`` the function's depth in the stack, for ``TO_SNAPSHOT`` the snapshot's number.
    """
    asked: RequestedChange | None = None
    """The requested change, for ``CHANGE``."""


@dataclass(frozen=True, slots=True)
class RaisedException:
    """The answer to DAP's ``exceptionInfo`` request at an exception."""

    exception_id: str
    description: str
    break_mode: str = "always"
    details: ExceptionDetails | None = None
    obstacle: Any = None
    """The graph break or error for which fixes can be tried, as the engine knows it."""

    @property
    def headline(self) -> str:
        """The short form for the headline of a call stack: ``Graph break``."""
        return self.exception_id.partition(":")[0]

    @property
    def text(self) -> str:
        """The whole report."""
        links = self.details.stack_trace if self.details is not None else None
        return "\n".join(dict.fromkeys(part for part in (self.exception_id, self.description, links) if part))


class History(Protocol):
    """The history before a stop, kept by the engine that stopped. Used on the held thread."""

    def timeline(self, start: int | None, count: int) -> TimelineBody:
        """Return ``count`` visited statements from number ``start`` on; None: those around the present snapshot."""

    def origin(self, depth: int, name: str, what: str) -> int:
        """Return the number of the snapshot in which the value of ``name`` has its origin.

        ``depth`` is the function's depth in the stack. ``what`` is the kind of origin, one of ``ORIGINS``. Raises
        ``RequestError`` if the history has no such snapshot.
        """


class Changes(Protocol):
    """The changed trace in which a thread is held. Used on the held thread."""

    def look(self) -> None:
        """Update ``Host.what_if`` with the changed trace's graph so far."""

    def keep(self) -> None:
        """Make the program's call run the changed graph. Raises ``RequestError`` if that is impossible."""


@dataclass(frozen=True)
class Stop:
    """A stop of a thread. ``frames`` is called once, on the held thread, at the first request for the stack."""

    engine: str
    reason: str
    """DAP ``stopped.reason``: ``breakpoint``, ``step``, ``pause``, ``exception``, ``entry`` ..."""
    frames: Callable[[], Sequence[Frame]]
    description: str | None = None
    """The text that the user sees instead of the reason: ``Paused on breakpoint while tracing (attempt 2)``."""
    text: str | None = None
    hit_breakpoint_ids: list[int] = field(default_factory=list)
    exception: RaisedException | None = None
    origin: object = None
    """Becomes ``Step.origin`` when a step begins from this stop."""
    history: History | None = None
    """The history before the stop; None if the user cannot go back from it."""
    no_history: str = "stepping back works in a trace only: ordinary Python and generated code have no history"
    """The reason why the user cannot go back, if ``history`` is None."""
    changes: Changes | None = None
    """The changed trace in which the thread stops, if any."""
    ordinary: types.FrameType | None = None
    """The frame of ordinary Python that has stopped; None if a traced or generated frame has."""


class Steps:
    """The user's steps and pause requests for running threads, by Python's identifiers. Runs on any thread."""

    def __init__(self, on_change: Callable[[], None], on_pause_taken: Callable[[], None]) -> None:
        """Call ``on_change`` when engines need other hooks, and ``on_pause_taken`` when a thread pauses."""
        self._on_change = on_change
        self._on_pause_taken = on_pause_taken
        self.forget()

    def forget(self) -> None:
        """Forget everything without a report: the client has disconnected, or this is a forked process."""
        # Make a new lock: one that another thread of the parent held would never be free in a forked process.
        self._lock = lock("steps", Level.DATA)
        self._steps: dict[int, Step] = {}
        self._pause_requests: set[int] = set()

    # -- the calling thread ----------------------------------------------------------------------------------------

    def current(self) -> Step | None:
        """Return the step in progress on the calling thread."""
        return self._steps.get(threading.get_ident()) if self._steps else None

    def finish(self) -> None:
        """Drop the step in progress on the calling thread."""
        with self._lock:
            dropped = self._steps.pop(threading.get_ident(), None)
        if dropped is not None:
            self._on_change()

    def take_pause_request(self) -> bool:
        """Return whether the user asked to pause the calling thread; if so, drop the request."""
        ident = threading.get_ident()
        if ident not in self._pause_requests:
            return False
        with self._lock:
            self._pause_requests.discard(ident)
        self._on_pause_taken()
        return True

    # -- any thread ------------------------------------------------------------------------------------------------

    @property
    def any_step(self) -> bool:
        """Whether any thread has a step in progress."""
        return bool(self._steps)

    @property
    def any_pause_request(self) -> bool:
        """Whether a thread has a pause request."""
        return bool(self._pause_requests)

    def begin(self, ident: int, step: Step) -> None:
        """Make the thread step."""
        with self._lock:
            self._steps[ident] = step
        self._on_change()

    def request_pauses(self, idents: Iterable[int]) -> None:
        """Ask threads to pause as soon as they can."""
        with self._lock:
            self._pause_requests.update(idents)
        self._on_change()

    def is_asked_to_pause(self, ident: int) -> bool:
        """Return whether the thread has a pause request."""
        return ident in self._pause_requests

    def end(self, ident: int) -> None:
        """Drop the step and pause request of a thread: it is held."""
        with self._lock:
            self._steps.pop(ident, None)
            self._pause_requests.discard(ident)

    def drop(self, ident: int) -> None:
        """Drop the step and pause request of a thread: another debugger has served them."""
        if ident in self._steps or ident in self._pause_requests:
            self.end(ident)
            self._on_change()

    def withdraw_pauses(self) -> None:
        """Drop every pause request."""
        with self._lock:
            self._pause_requests.clear()
        self._on_change()
