"""The events of compiles: a record file is a list of these.

``Session`` puts them together. Written by the debugged program, on whichever thread compiles.
"""

from __future__ import annotations

import msgspec

from dynamo_dap.record.model import (
    Graph,
    GraphBreak,
    Guard,
    GuardFailure,
    Place,
    SkippedFrame,
    Specialization,
    StackLine,
    Symbol,
    TracedFunction,
    Value,
)

VERSION = 1
"""Of the format. Readers refuse a newer one; fields may be added without a new version."""


class _Event(msgspec.Struct, rename="camel", omit_defaults=True, tag_field="event"):
    """Base of the events; the tag is the class's name in camelCase."""


class Started(_Event, tag="started"):
    """The program began to be recorded. The first line of a file."""

    version: int
    time: float
    """Seconds since the epoch."""
    process: int
    program: list[str]
    """``sys.argv`` at that time."""
    cwd: str
    python: str
    torch: str | None = None
    trace: str | None = None
    """The folder of torch's own trace (``TORCH_TRACE``), if one is taken."""
    module: str | None = None
    """What ``python -m`` was given, if the program was begun so; ``program`` begins with its file all the same."""


class CompileBegan(_Event, tag="compileBegan"):
    """Dynamo begins to compile a frame."""

    id: str
    name: str
    function: str
    """The user's function that the frame is, or the rest of."""
    place: Place
    function_place: Place
    time: float
    backend: str | None = None
    caller: Place | None = None
    """The user's line that called the function."""
    stack: list[StackLine] = []
    """Who called, torch left out, outermost first."""


class SourceRead(_Event, tag="sourceRead"):
    """A file of the user's, as it was when the program ran: tells lines that have changed since."""

    path: str
    digests: str
    """``zlib.crc32`` of each line, in UTF-8 without trailing whitespace, as 8 hexadecimal digits; empty when the file
    had changed before it was read."""
    is_library: bool = False
    """Whether it is an installed package's, not the user's."""


class Recompiled(_Event, tag="recompiled"):
    """None of the earlier compiles served: told before the new trace."""

    id: str
    failures: list[GuardFailure]


class AttemptRestarted(_Event, tag="attemptRestarted"):
    """The analysis starts again from the top."""

    id: str
    number: int
    reason: str


class BreakFound(_Event, tag="breakFound"):
    """A graph break."""

    id: str
    graph_break: GraphBreak


class SizeSpecialized(_Event, tag="sizeSpecialized"):
    """A symbolic size became a constant."""

    id: str
    specialization: Specialization


class LimitReached(_Event, tag="limitReached"):
    """There were too many compiles of the function: it runs eagerly."""

    id: str
    limit: str


class GraphMade(_Event, tag="graphMade"):
    """A graph is given to the backend."""

    id: str
    graph: Graph


class GuardsMade(_Event, tag="guardsMade"):
    """The guards of a compile are complete."""

    id: str
    count: int
    guards: list[Guard]
    symbols: list[Symbol] = []


class Traced(_Event, tag="traced"):
    """What the last attempt of a compile went through."""

    id: str
    functions: list[TracedFunction]
    values: list[Value]


class CompileEnded(_Event, tag="compileEnded"):
    """A compile is over."""

    id: str
    state: str
    seconds: float
    problem: str | None = None
    problem_place: Place | None = None
    """Where the user's code was that it failed at."""
    resumes: list[Place] = []
    phases: dict[str, float] = {}
    artifacts: list[str] = []
    kernels: list[str] = []
    caches: dict[str, int] = {}
    generated: str | None = None


class FilesWritten(_Event, tag="filesWritten"):
    """The backend wrote code outside of compiles: that of a backward pass, when it first ran."""

    files: list[str]
    kernels: list[str] = []


class FrameSkipped(_Event, tag="frameSkipped"):
    """Dynamo decided not to trace a function of the user's."""

    frame: SkippedFrame


class Truncated(_Event, tag="truncated"):
    """The bound of the file is reached: details (nodes, guards) are left out from here on."""


class Ended(_Event, tag="ended"):
    """The program ended in an orderly way. A file without this is of a program that crashed, or still runs."""

    time: float


Event = (
    Started
    | CompileBegan
    | SourceRead
    | Recompiled
    | AttemptRestarted
    | BreakFound
    | SizeSpecialized
    | LimitReached
    | GraphMade
    | GuardsMade
    | Traced
    | CompileEnded
    | FilesWritten
    | FrameSkipped
    | Truncated
    | Ended
)
