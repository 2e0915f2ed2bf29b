"""What the user asked a thread to do next, and why a thread stops.

``Step`` objects are made by the agent when a held thread resumes, on that thread. Engines read and finish a step on the
stepping thread; other threads only check whether there is one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from dynamo_dap.debuggee.agent.frames import Frame
from dynamo_dap.protocol.types import ExceptionDetails


class StepKind(Enum):
    """The DAP request that began a step."""

    OVER = "next"
    IN = "stepIn"
    OUT = "stepOut"


@dataclass(slots=True)
class Step:
    """A step in progress on one thread. It ends when an engine holds the thread again, for whatever reason."""

    kind: StepKind
    granularity: str
    """DAP ``SteppingGranularity``: ``statement``, ``line`` or ``instruction``."""
    engine: str
    """Name of the engine whose frame was on top when the step began."""
    origin: Any = None
    """What that engine needs to know of where the step began; other engines leave it alone."""


@dataclass(frozen=True, slots=True)
class RaisedException:
    """What the DAP ``exceptionInfo`` request tells of a stop at an exception."""

    exception_id: str
    description: str
    break_mode: str = "always"
    details: ExceptionDetails | None = None

    @property
    def headline(self) -> str:
        """What fits into the headline of a call stack: ``Graph break``."""
        return self.exception_id.partition(":")[0]

    @property
    def text(self) -> str:
        """All that there is to tell."""
        links = self.details.stack_trace if self.details is not None else None
        return "\n".join(part for part in (self.exception_id, self.description, links) if part)


@dataclass(frozen=True)
class Stop:
    """A thread stopping now. ``frames`` is called once, on the held thread, when the stack is first asked for."""

    engine: str
    reason: str
    """DAP ``stopped.reason``: ``breakpoint``, ``step``, ``pause``, ``exception``, ``entry`` ..."""
    frames: Callable[[], Sequence[Frame]]
    description: str | None = None
    """Shown to the user in place of the reason: ``Paused on breakpoint while tracing (attempt 2)``."""
    text: str | None = None
    hit_breakpoint_ids: list[int] = field(default_factory=list)
    exception: RaisedException | None = None
    origin: Any = None
    """Becomes ``Step.origin`` when a step begins from this stop."""
