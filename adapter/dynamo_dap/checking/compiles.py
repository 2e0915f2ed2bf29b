"""Implements ``dynamo_dap.record()``: collects the compiles of this process while a block runs.

Runs on threads of the program.
"""

from __future__ import annotations

import functools
import inspect
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, ParamSpec, TypeVar, cast, overload

from dynamo_dap.checking.findings import Finding, findings_in
from dynamo_dap.checking.recorded import Break, Compile, Graph, Recompile, Recorded, Skip, recorded_in
from dynamo_dap.checking.tables import as_html, as_line, as_text
from dynamo_dap.debuggee.launch.runs.recording import OwnRecording
from dynamo_dap.protocol.texts import counted
from dynamo_dap.records.events import Record

P = ParamSpec("P")
R = TypeVar("R")


class Recording:
    """Collects what this process compiles, as a context manager or as a function's decorator.

    Enter it again to add to it, also on other threads and inside another recording. It collects the compiles of all
    threads. Each property returns the facts so far, as values that do not change afterwards.
    """

    def __init__(self) -> None:
        self._recording = OwnRecording()
        self._lock = threading.Lock()
        self._entered = 0
        self._known: tuple[int, Recorded] | None = None

    # -- what is recorded ------------------------------------------------------------------------------------------

    @property
    def compiles(self) -> tuple[Compile, ...]:
        """Every compile of a function or of its resume functions."""
        return self._recorded().compiles

    @property
    def graphs(self) -> tuple[Graph, ...]:
        """The graphs that Dynamo passed to a backend."""
        return tuple(graph for compiled in self.compiles for graph in compiled.graphs)

    @property
    def breaks(self) -> tuple[Break, ...]:
        """The graph breaks, each line and reason once."""
        return self._recorded().breaks

    @property
    def recompiles(self) -> tuple[Recompile, ...]:
        """Where a function was compiled again because a guard failed."""
        return self._recorded().recompiles

    @property
    def skips(self) -> tuple[Skip, ...]:
        """The user's functions that Dynamo does not trace."""
        return self._recorded().skips

    @property
    def seconds(self) -> float:
        """The duration of all compiles together."""
        return sum(one.seconds or 0.0 for one in self.compiles)

    @property
    def problem(self) -> str | None:
        """What this version of torch does not report; None if it reports everything."""
        return self._recording.problem

    @property
    def findings(self) -> list[Finding]:
        """The findings that ``dynamo-dap check`` reports; paths are relative to the working directory."""
        folder = Path.cwd()
        return self.record.read(lambda record: findings_in([record], folder)).findings

    @property
    def record(self) -> Record:
        """The whole record: guards, nodes, stacks. The names of its fields may change between versions."""
        return self._recording.record

    def _recorded(self) -> Recorded:
        def convert(record: Record) -> Recorded:
            # Facts about a record are valid for one version of it.
            if self._known is None or self._known[0] != record.version:
                self._known = record.version, recorded_in(record)
            return self._known[1]

        return self.record.read(convert)

    def __repr__(self) -> str:
        return f"<dynamo_dap.record: {as_line(self._recorded())}>"

    def __str__(self) -> str:
        return as_text(self._recorded(), self.problem)

    def _repr_html_(self) -> str:
        """Return a table, which Jupyter shows."""
        return as_html(self._recorded(), self.problem)

    # -- when it is recorded ---------------------------------------------------------------------------------------

    def __enter__(self) -> Recording:
        with self._lock:
            self._entered += 1
            if self._entered == 1:
                self._recording.begin()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        with self._lock:
            self._entered -= 1
            if self._entered == 0:
                self._recording.end()

    def __call__(self, function: Callable[P, R]) -> Callable[P, R]:
        """Return a wrapper that records each run of ``function``; its attribute ``record`` is this object.

        Raises:
            TypeError: ``function`` is a generator, between whose parts other code runs.
        """
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise TypeError("dynamo_dap.record() does not decorate generators: use it as a context manager inside")
        around: Any
        if inspect.iscoroutinefunction(function):

            @functools.wraps(function)
            async def around(*arguments: P.args, **keywords: P.kwargs) -> object:
                with self:
                    return await function(*arguments, **keywords)

        else:

            @functools.wraps(function)
            def around(*arguments: P.args, **keywords: P.kwargs) -> R:
                with self:
                    return function(*arguments, **keywords)

        around.record = self
        return cast("Callable[P, R]", around)


@overload
def record() -> Recording: ...


@overload
def record(function: Callable[P, R]) -> Callable[P, R]: ...


def record(function: Callable[..., object] | None = None) -> object:
    """Record what torch.compile makes: ``with dynamo_dap.record() as made:``, or as a function's decorator.

    ``made`` has ``compiles``, ``graphs``, ``breaks``, ``recompiles``, ``skips`` and ``seconds``; it prints as a list,
    in Jupyter as a table. A decorated function has the recording of all its calls as its attribute ``record``. No hook
    stays in the program.
    """
    made = Recording()
    return made if function is None else made(function)


# -- for tests ---------------------------------------------------------------------------------------------------------


def difference_from(made: Recording, wanted: Mapping[str, int]) -> str | None:
    """Return which counts differ from ``wanted``, as readable text; None if none does."""
    words = {"graphs": "graph", "breaks": "graph break", "recompiles": "recompile"}
    counts = {name: len(getattr(made, name)) for name in wanted}
    lines = [
        f"torch.compile made {counted(counts[name], words[name])}, expected {count}"
        for name, count in wanted.items()
        if counts[name] != count
    ]
    if not lines:
        return None
    for finding in made.findings:
        lines.append(f"  {finding.where or '?'}: {finding.title} (in {finding.function})")
        lines += [f"    {text}" for text in finding.details]
        lines += [f"    hint (not tried): {hint}" for hint in finding.hints]
    return "\n".join(lines)


def as_properties(made: Recording) -> dict[str, object]:
    """Return the counts as plain values, for a report."""
    return {
        "graphs": len(made.graphs),
        "breaks": len(made.breaks),
        "recompiles": len(made.recompiles),
        "seconds": made.seconds,
        "findings": [
            {"kind": one.kind, "function": one.function, "where": one.where, "title": one.title}
            for one in made.findings
        ],
    }
