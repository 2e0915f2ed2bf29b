"""Models the user's next command for a thread, and the reason for a stop.

``Step`` objects are made when a held thread resumes, on that thread. Engines read and finish a step on the stepping
thread; other threads only check whether there is one.
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
from dynamo_dap.protocol.contract import TimelineBody
from dynamo_dap.protocol.types import ExceptionDetails


class StepKind(Enum):
    """The DAP request that began a step."""

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
        """Whether it goes back."""
        return self not in (StepKind.OVER, StepKind.IN, StepKind.OUT, StepKind.CHANGE)

    @property
    def leaves_thread(self) -> bool:
        """Whether it resumes the program."""
        return self in (StepKind.OVER, StepKind.IN, StepKind.OUT)


@dataclass(frozen=True, slots=True)
class Assignment:
    """Statements that the user adds to a traced function at its present line."""

    text: str
    frame: Any
    """The function, as its engine knows it."""
    shown: str | None = None
    """The expression whose value is then shown."""


@dataclass(frozen=True, slots=True)
class Jump:
    """Another line of a traced function, at which to continue."""

    line: int
    index: int
    """Index of the instruction, as the engine counts."""


class ChangesTrace(Exception):
    """Raised by a command that changes a held trace: the change needs a separate trace."""

    def __init__(self, change: Assignment | Jump) -> None:
        super().__init__("this changes the trace")
        self.change = change


@dataclass(frozen=True, slots=True)
class RequestedChange:
    """A requested change. ``answer`` is called when the changed trace has reached it, or else ``refuse``."""

    change: Assignment | Jump
    answer: Callable[[Value], None]
    refuse: Callable[[str], None]


@runtime_checkable
class TracedOrigin(Protocol):
    """The origin of a step in a trace. Used on the stepping thread."""

    def continues_in(self, code: types.CodeType | None, *, is_out: bool) -> bool:
        """Return whether the step ends in ordinary Python that continues the compiled function ``code``."""


@dataclass(slots=True)
class Step:
    """A step in progress on one thread. It ends when an engine holds the thread again, for whatever reason."""

    kind: StepKind
    granularity: str
    """DAP ``SteppingGranularity``: ``statement``, ``line`` or ``instruction``."""
    engine: str
    """Name of the engine whose frame was on top when the step began."""
    origin: object = None
    """The engine's facts about the step's beginning; other engines ignore them."""
    target: int = 0
    """The target of a step back.

    For ``RESTART_FRAME`` the function's depth in the stack, for ``TO_SNAPSHOT`` the snapshot's number.
    """
    asked: RequestedChange | None = None
    """For ``CHANGE``."""


@dataclass(frozen=True, slots=True)
class RaisedException:
    """The answer to DAP's ``exceptionInfo`` request at an exception."""

    exception_id: str
    description: str
    break_mode: str = "always"
    details: ExceptionDetails | None = None
    obstacle: Any = None
    """What fixes can be tried for, as the engine knows it."""

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
    """The history before a stop, from the engine that stopped. Used on the held thread."""

    def timeline(self, start: int | None, count: int) -> TimelineBody:
        """Return the visited statements from a given one on; None: those around the present snapshot."""

    def origin(self, depth: int, name: str, what: str) -> int:
        """Return the snapshot of an origin in the function at stack ``depth``.

        ``what`` is one of ``ORIGINS``. Raises ``RequestError`` if the history has no such snapshot.
        """


class Changes(Protocol):
    """The changed trace in which a thread is held. Used on the held thread."""

    def look(self) -> None:
        """Return its progress: see ``Host.what_if``."""

    def keep(self) -> None:
        """Make the program's call run its result. Raises ``RequestError`` if that is impossible."""


@dataclass(frozen=True)
class Stop:
    """A thread that stops now. ``frames`` is called once, on the held thread, at the first request for the stack."""

    engine: str
    reason: str
    """DAP ``stopped.reason``: ``breakpoint``, ``step``, ``pause``, ``exception``, ``entry`` ..."""
    frames: Callable[[], Sequence[Frame]]
    description: str | None = None
    """Shown to the user instead of the reason: ``Paused on breakpoint while tracing (attempt 2)``."""
    text: str | None = None
    hit_breakpoint_ids: list[int] = field(default_factory=list)
    exception: RaisedException | None = None
    origin: object = None
    """Becomes ``Step.origin`` when a step begins from this stop."""
    history: History | None = None
    """The history; None if the engine cannot go back."""
    no_history: str = "stepping back works in a trace only: ordinary Python and generated code have no history"
    """The reason, if ``history`` is None."""
    changes: Changes | None = None
    """The changed trace, or None."""
    ordinary: types.FrameType | None = None
    """The stopped frame of ordinary Python; None if a frame of the agent's has stopped."""


class Steps:
    """The user's steps and pause requests for running threads, by Python's identifiers. Runs on any thread."""

    def __init__(self, on_change: Callable[[], None], on_pause_taken: Callable[[], None]) -> None:
        """Call ``on_change`` when engines need other hooks, and ``on_pause_taken`` when a thread pauses."""
        self._on_change = on_change
        self._on_pause_taken = on_pause_taken
        self.forget()

    def forget(self) -> None:
        """Forget everything, and report nothing: the client has disconnected, or this is a forked process."""
        # A lock that another thread of the parent held would never be free here.
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
        """Return whether the user asked to pause the calling thread; this consumes the request."""
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
        """Return whether any thread has a step in progress: an engine then keeps the hooks that steps need."""
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
