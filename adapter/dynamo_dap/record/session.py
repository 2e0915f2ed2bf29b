"""A session's compiles, put together from events. One per debugged program, or per file that is read; it has one lock.

Snapshots are encoded under the lock, since the structs keep changing.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import TypeVar

from dynamo_dap.record.events import (
    AttemptRestarted,
    BreakFound,
    CompileBegan,
    CompileEnded,
    Ended,
    Event,
    FilesWritten,
    FrameSkipped,
    GraphMade,
    GuardsMade,
    LimitReached,
    Recompiled,
    SizeSpecialized,
    SourceRead,
    Started,
    Traced,
    Truncated,
)
from dynamo_dap.record.model import Attempt, Compile, CompiledFunction, Place, SkippedFrame

R = TypeVar("R")


class Session:
    """Everything that is known of the compiles of one program."""

    def __init__(self) -> None:
        self.started: Started | None = None
        self.ended: Ended | None = None
        self.is_truncated = False
        self.version = 0
        """Counts what was taken in: what is made from a session is good for one version."""
        self.unreadable_lines = 0
        """Lines of a record file that were left out."""
        self.functions: list[CompiledFunction] = []
        """In the order of their first compile."""
        self.skipped: list[SkippedFrame] = []
        self.files: list[str] = []
        """What the backend wrote outside of compiles, for backward passes."""
        self.kernels: list[str] = []
        """In these files."""
        self.sources: dict[str, list[str]] = {}
        """Digests of the lines of files, by path. See ``SourceRead``."""
        self.libraries: set[str] = set()
        """Those of these files that are not the user's."""
        self._lock = threading.Lock()
        self._by_place: dict[tuple[str, Place], CompiledFunction] = {}
        self._by_id: dict[str, Compile] = {}

    def apply(self, event: Event) -> None:
        """Take an event in. One about an unknown compile is left out."""
        with self._lock:
            self.version += 1
            match event:
                case Started():
                    self.started = event
                case Ended():
                    self.ended = event
                case Truncated():
                    self.is_truncated = True
                case CompileBegan():
                    self._begin(event)
                case SourceRead():
                    if event.is_library:
                        self.libraries.add(event.path)
                    self.sources[event.path] = [event.digests[at : at + 8] for at in range(0, len(event.digests), 8)]
                case FilesWritten():
                    self.files += event.files
                    self.kernels += event.kernels
                case FrameSkipped():
                    self.skipped.append(event.frame)
                case _:
                    compiled = self._by_id.get(event.id)
                    if compiled is not None:
                        _add(compiled, event)

    def _begin(self, event: CompileBegan) -> None:
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
        )
        function.compiles.append(compiled)
        self._by_id[event.id] = compiled

    def has(self, compile_id: str) -> bool:
        """Whether there is a compile of that id."""
        return compile_id in self._by_id

    def read(self, reader: Callable[[Session], R]) -> R:
        """Return ``reader(self)``, while nothing changes."""
        with self._lock:
            return reader(self)

    def find(self, compile_id: str) -> Compile | None:
        """Return a compile by its id. Inside ``read``."""
        return self._by_id.get(compile_id)

    def compiles(self) -> Iterator[tuple[CompiledFunction, Compile]]:
        """Yield every compile with its function. Inside ``read``, or when nothing changes any more."""
        for function in self.functions:
            for compiled in function.compiles:
                yield function, compiled


_AboutCompile = (
    Recompiled
    | AttemptRestarted
    | BreakFound
    | SizeSpecialized
    | LimitReached
    | GraphMade
    | GuardsMade
    | Traced
    | CompileEnded
)


def _add(compiled: Compile, event: _AboutCompile) -> None:
    match event:
        case Recompiled():
            compiled.failures = list(event.failures)
            compiled.recompiled = [failure.reason for failure in event.failures]
        case AttemptRestarted():
            compiled.attempts[-1].restarted = event.reason
            compiled.attempts.append(Attempt(event.number + 1))
            # Of the attempt that was given up.
            compiled.graphs.clear()
            compiled.specializations.clear()
        case BreakFound():
            compiled.breaks.append(event.graph_break)
        case SizeSpecialized():
            compiled.specializations.append(event.specialization)
        case LimitReached():
            compiled.limit = event.limit
        case Traced():
            compiled.traced = list(event.functions)
            compiled.values = list(event.values)
        case GraphMade():
            compiled.graphs.append(event.graph)
        case GuardsMade():
            compiled.guard_count = event.count
            compiled.guards = list(event.guards)
            compiled.symbols = list(event.symbols)
        case CompileEnded():
            compiled.state = event.state
            compiled.seconds = event.seconds
            compiled.problem = event.problem
            compiled.problem_place = event.problem_place
            compiled.resumes = list(event.resumes)
            compiled.phases = dict(event.phases)
            compiled.artifacts = list(event.artifacts)
            compiled.kernels = list(event.kernels)
            compiled.caches = dict(event.caches)
            compiled.generated = event.generated
