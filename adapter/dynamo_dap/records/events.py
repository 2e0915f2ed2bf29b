"""Defines the events that make up a record file, and the ``Record`` that they fill.

Each event applies itself to a record, and has a shorter form for a file that grows too large. Every thread that
compiles writes events. There is one ``Record`` per debugged program, or per file that is read; it has one lock. A
record is encoded under this lock, since its structs keep changing.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import ClassVar, TypeVar

import msgspec

from dynamo_dap.protocol.requests.ranks import Rank
from dynamo_dap.records.model import (
    Attempt,
    Bucket,
    CacheLookup,
    Compile,
    CompiledFunction,
    Counts,
    CudaGraph,
    ExportProblem,
    Graph,
    GraphBreak,
    Guard,
    GuardFailure,
    Place,
    ProfiledFunction,
    RaisedCall,
    Sharding,
    Size,
    SkippedFrame,
    Specialization,
    StackLine,
    Symbol,
    TracedFunction,
    TracedValue,
    counts_of,
)

VERSION = 1
"""Version of the format. Readers refuse a newer one; fields may be added without a new version."""


class _Event(msgspec.Struct, rename="camel", omit_defaults=True, tag_field="event"):
    """Base of the events; the tag is the class's name in camelCase."""

    is_shown: ClassVar[bool] = True
    """Whether views must be updated; not for an event that always comes right before another one that updates them."""

    def merge_into(self, record: Record) -> None:
        """Apply this event to the record."""
        raise NotImplementedError

    def without_details(self) -> Event:
        """Return the part that a large file keeps."""
        event: Event = self  # type: ignore[assignment]  # the class is one of Event
        return event


class _OfCompile(_Event):
    """Base of the events about one compile."""

    id: str

    def merge_into(self, record: Record) -> None:
        """Change the compile, if it is known."""
        compiled = record.find(self.id)
        if compiled is not None:
            self.merge(compiled)

    def merge(self, compiled: Compile) -> None:
        """Copy every field: the compile's fields have the same names."""
        for name in self.__struct_fields__:
            setattr(compiled, name, getattr(self, name))


class Started(_Event, tag="started"):
    """The start of a recording. The first line of a file."""

    version: int
    time: float
    """Seconds since the epoch."""
    process: int
    program: list[str]
    """``sys.argv`` at the start."""
    cwd: str
    python: str
    torch: str | None = None
    trace: str | None = None
    """The folder of torch's own trace (``TORCH_TRACE``), if there is one."""
    module: str | None = None
    """The argument of ``python -m``, if the program is a module; ``program`` still begins with its file."""
    rank: Rank | None = None
    """The rank of the process in a distributed job."""
    job: str | None = None
    """The job's name, the same for all ranks that were started together, see ``protocol.requests.ranks.job_in``."""
    log: str | None = None
    """The torch trace log from which the record was read. Such a log has neither the command nor the end of the run."""
    signature: str | None = None
    """Signature of the command, with a key that only this user has: see ``records.signed``."""

    def merge_into(self, record: Record) -> None:
        """Note how the run was started."""
        record.started = self


class SettingsRead(_Event, tag="settingsRead"):
    """Torch's settings at the first compile, as JSON, by name."""

    settings: dict[str, str]

    is_shown: ClassVar[bool] = False

    def merge_into(self, record: Record) -> None:
        """Keep the settings."""
        record.torch_settings.update(self.settings)


class CompileBegan(_Event, tag="compileBegan"):
    """Dynamo begins to compile a frame."""

    id: str
    name: str
    function: str
    """The user's function to which the frame belongs."""
    place: Place
    function_place: Place
    time: float
    backend: str | None = None
    caller: Place | None = None
    """The user's line that called the function."""
    stack: list[StackLine] = []
    """The callers without torch, outermost first."""
    sharding: Sharding | None = None
    module: int | None = None
    """The number of the module whose method it is: 1 for the first module that was compiled."""

    def merge_into(self, record: Record) -> None:
        """Add a compile, and its function if it is new."""
        record.begin(self)


class SourceRead(_Event, tag="sourceRead"):
    """A user's file as it was when it ran. It shows which lines have changed since."""

    path: str
    digests: str
    """``zlib.crc32`` of each line, in UTF-8 without trailing whitespace, as 8 hexadecimal digits.

    Empty if the file had changed before it was read.
    """
    is_library: bool = False
    """Whether an installed package owns it, not the user."""

    is_shown: ClassVar[bool] = False

    def merge_into(self, record: Record) -> None:
        """Keep the digests of a file's lines."""
        if self.is_library:
            record.libraries.add(self.path)
        record.sources[self.path] = [self.digests[at : at + 8] for at in range(0, len(self.digests), 8)]


class Recompiled(_OfCompile, tag="recompiled"):
    """No earlier compile fits the call. Reported before the new trace."""

    failures: list[GuardFailure]

    def merge(self, compiled: Compile) -> None:
        """Add the failed guards."""
        compiled.failures = self.failures
        compiled.recompiled = [failure.reason for failure in self.failures]


class AttemptRestarted(_OfCompile, tag="attemptRestarted"):
    """The analysis starts again from the top."""

    number: int
    reason: str

    def merge(self, compiled: Compile) -> None:
        """Begin another attempt, without the results of the one before."""
        compiled.attempts[-1].restarted = self.reason
        compiled.attempts.append(Attempt(self.number + 1))
        # These belong to the abandoned attempt.
        compiled.graphs.clear()
        compiled.specializations.clear()


class BreakFound(_OfCompile, tag="breakFound"):
    """A graph break."""

    graph_break: GraphBreak

    def merge(self, compiled: Compile) -> None:
        """Add a graph break."""
        compiled.breaks.append(self.graph_break)


class SizeSpecialized(_OfCompile, tag="sizeSpecialized"):
    """A symbolic size became a constant."""

    specialization: Specialization

    def merge(self, compiled: Compile) -> None:
        """Add a specialization."""
        compiled.specializations.append(self.specialization)


class LimitReached(_OfCompile, tag="limitReached"):
    """The function has too many compiles, and runs eagerly from now on."""

    limit: str


class GraphMade(_OfCompile, tag="graphMade"):
    """Dynamo passes a graph to the backend."""

    graph: Graph

    def merge(self, compiled: Compile) -> None:
        """Add a graph."""
        compiled.graphs.append(self.graph)

    def without_details(self) -> Event:
        """Return the graph without its nodes."""
        return GraphMade(self.id, msgspec.structs.replace(self.graph, nodes=[]))


class GraphCut(_OfCompile, tag="graphCut"):
    """DistributedDataParallel cut a graph into buckets."""

    graph: int
    """The number of the graph in its compile."""
    buckets: list[Bucket]

    def merge(self, compiled: Compile) -> None:
        """Add the buckets to their graph."""
        for graph in compiled.graphs:
            if graph.index == self.graph:
                graph.buckets = self.buckets


class GuardsMade(_OfCompile, tag="guardsMade"):
    """The guards of a compile are complete."""

    count: int
    guards: list[Guard]
    symbols: list[Symbol] = []
    sizes: list[Size] = []

    is_shown: ClassVar[bool] = False

    def merge(self, compiled: Compile) -> None:
        """Set guards, symbols and sizes."""
        compiled.guard_count, compiled.guards, compiled.symbols = self.count, self.guards, self.symbols
        compiled.sizes = self.sizes

    def without_details(self) -> Event:
        """Return only the number of guards."""
        return GuardsMade(self.id, self.count, [])


class Traced(_OfCompile, tag="traced"):
    """The lines and values of a compile's last attempt."""

    functions: list[TracedFunction]
    values: list[TracedValue]

    is_shown: ClassVar[bool] = False

    def merge(self, compiled: Compile) -> None:
        """Set the traced functions and values."""
        compiled.traced, compiled.values = self.functions, self.values

    def without_details(self) -> Event:
        """Return the event without the values."""
        return Traced(self.id, self.functions, [])


class CompileEnded(_OfCompile, tag="compileEnded"):
    """The end of a compile."""

    state: str
    seconds: float
    problem: str | None = None
    problem_place: Place | None = None
    """The user's line that caused the failure."""
    resumes: list[Place] = []
    phases: dict[str, float] = {}
    artifacts: list[str] = []
    kernels: list[str] = []
    caches: dict[str, int] = {}
    generated: str | None = None

    def without_details(self) -> Event:
        """Return the event without the generated code."""
        return msgspec.structs.replace(self, generated=None)


class CudaGraphEvent(_OfCompile, tag="cudaGraphMet"):
    """An event of a CUDA graph of a compile."""

    cuda_graph: CudaGraph

    def merge(self, compiled: Compile) -> None:
        """Add a CUDA graph's event; count repetitions at the same line."""
        new = self.cuda_graph
        for known in compiled.cuda_graphs:
            if msgspec.structs.replace(known, times=new.times, text=new.text) == new:
                known.times += new.times
                known.text = new.text
                return
        if len(compiled.cuda_graphs) < _CUDA_GRAPHS:
            compiled.cuda_graphs.append(msgspec.structs.replace(new))


_CUDA_GRAPHS = 200
"""The most events that are kept for one compile."""


class CacheAnswered(_OfCompile, tag="cacheAnswered"):
    """A lookup in a cache of compiled graphs."""

    lookup: CacheLookup

    is_shown: ClassVar[bool] = False

    def merge(self, compiled: Compile) -> None:
        """Add the lookup."""
        compiled.lookups.append(self.lookup)

    def without_details(self) -> Event:
        """Return the lookup without the parts of its key."""
        return CacheAnswered(self.id, msgspec.structs.replace(self.lookup, components=[]))


class FilesWritten(_Event, tag="filesWritten"):
    """The backend wrote code outside of compiles: for a backward pass, at its first run."""

    files: list[str]
    kernels: list[str] = []

    def merge_into(self, record: Record) -> None:
        """Add the written files and their kernels to the record."""
        record.files += self.files
        record.kernels += self.kernels


class CallRaised(_OfCompile, tag="callRaised"):
    """A call of compiled code raised."""

    call: RaisedCall

    def merge(self, compiled: Compile) -> None:
        """Add the call."""
        compiled.raised.append(self.call)


class FrameSkipped(_Event, tag="frameSkipped"):
    """Dynamo decided not to trace a user's function."""

    frame: SkippedFrame

    def merge_into(self, record: Record) -> None:
        """Add a skipped function."""
        record.skipped.append(self.frame)


class Profiled(_Event, tag="profiled"):
    """The trace time of each function. Reported at the end of a profiled run."""

    functions: list[ProfiledFunction]

    def merge_into(self, record: Record) -> None:
        """Set the traced functions with their times."""
        record.profiled = self.functions


class Truncated(_Event, tag="truncated"):
    """The file has reached a size limit: later events leave out details (nodes, guards)."""

    def merge_into(self, record: Record) -> None:
        """Note that details of later compiles are left out."""
        record.is_truncated = True


class Ended(_Event, tag="ended"):
    """The program ended normally. Without it, the program crashed or still runs."""

    time: float

    def merge_into(self, record: Record) -> None:
        """Note the end of the run."""
        record.ended = self


Event = (
    Started
    | CompileBegan
    | SourceRead
    | SettingsRead
    | Recompiled
    | AttemptRestarted
    | BreakFound
    | SizeSpecialized
    | LimitReached
    | GraphMade
    | GraphCut
    | GuardsMade
    | Traced
    | CompileEnded
    | CudaGraphEvent
    | CacheAnswered
    | CallRaised
    | FilesWritten
    | FrameSkipped
    | Profiled
    | Truncated
    | Ended
)

R = TypeVar("R")


class Record:
    """All recorded facts about the compiles of one program."""

    def __init__(self) -> None:
        self.started: Started | None = None
        self.ended: Ended | None = None
        self.is_truncated = False
        self.version = 0
        """The number of changes so far. A result computed from the record is valid until this number changes."""
        self.unreadable_lines = 0
        """The number of unreadable lines, which were left out."""
        self.functions: list[CompiledFunction] = []
        """The compiled functions, in the order of their first compile."""
        self.skipped: list[SkippedFrame] = []
        self.profiled: list[ProfiledFunction] = []
        """Trace time of each function; empty for a run without a profile."""
        self.files: list[str] = []
        """Files that the backend wrote outside of compiles, for backward passes."""
        self.kernels: list[str] = []
        """The kernels in these files."""
        self.sources: dict[str, list[str]] = {}
        """Digests of lines, by path. See ``SourceRead``."""
        self.torch_settings: dict[str, str] = {}
        """Torch's settings at the first compile, as JSON, by name; only for a trace log or for a program run by
        ``diff``."""
        self.export_problems: list[ExportProblem] = []
        """The problems that draft exports reported; only a trace log has them."""
        self.libraries: set[str] = set()
        """The paths in ``sources`` that belong to libraries."""
        self._lock = threading.Lock()
        self._by_place: dict[tuple[str, Place], CompiledFunction] = {}
        self._by_id: dict[str, Compile] = {}

    def apply(self, event: Event) -> None:
        """Apply an event. An event about an unknown compile is ignored."""
        with self._lock:
            self.version += 1
            event.merge_into(self)

    def begin(self, event: CompileBegan) -> None:
        """Add a compile, to its function or to a new one. Inside ``apply``."""
        key = (event.function, event.function_place)
        function = self._by_place.get(key)
        if function is None:
            function = self._by_place[key] = CompiledFunction(event.function, event.function_place)
            self.functions.append(function)
        compiled = Compile(
            event.id,
            event.name,
            place=event.place,
            backend=event.backend,
            caller=event.caller,
            stack=event.stack,
            began=event.time,
            sharding=event.sharding,
            module=event.module,
        )
        function.compiles.append(compiled)
        self._by_id[event.id] = compiled

    def shorten(self, compile_id: str) -> None:
        """Keep only a compile's overview, so that endless compiles do not grow the record without bound."""
        with self._lock:
            compiled = self._by_id[compile_id]
            self.version += 1
            compiled.is_shortened = True
            compiled.guards, compiled.values, compiled.traced, compiled.stack, compiled.sizes = [], [], [], [], []
            for graph in compiled.graphs:
                graph.nodes = []
            for found in compiled.breaks:
                found.message, found.stack = None, []

    def has(self, compile_id: str) -> bool:
        """Return whether there is a compile with that id."""
        return compile_id in self._by_id

    def read(self, reader: Callable[[Record], R]) -> R:
        """Return ``reader(self)``, while nothing changes."""
        with self._lock:
            return reader(self)

    def find(self, compile_id: str) -> Compile | None:
        """Return a compile by its id. Inside ``read``."""
        return self._by_id.get(compile_id)

    def compiles(self) -> Iterator[tuple[CompiledFunction, Compile]]:
        """Yield every compile with its function. Inside ``read``, or when the record no longer changes."""
        for function in self.functions:
            for compiled in function.compiles:
                yield function, compiled

    def counts(self) -> Counts:
        """Return the counts over all functions. Inside ``read``, or when the record no longer changes."""
        return counts_of([compiled for _, compiled in self.compiles()])
