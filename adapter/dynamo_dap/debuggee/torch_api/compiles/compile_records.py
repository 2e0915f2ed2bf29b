"""Keeps what Dynamo forgets once it has generated code: the graph, and the statements that caused side effects.

A hook saves both with each new code object, at the end of its compile. Runs on the compiling thread. A record lives as
long as its function.
"""

from __future__ import annotations

import sys
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from types import CodeType, FrameType
from typing import Any

from dynamo_dap.debuggee.bytecode.line_table import qualified_name
from dynamo_dap.debuggee.torch_api.code_objects.generated_code import cache_entry_of, original_of, user_function_of
from dynamo_dap.debuggee.torch_api.code_objects.new_code import NEEDS, on_new_code
from dynamo_dap.debuggee.torch_api.compiles.compile_hooks import HOOKS, CompileObserver, FrameCompile
from dynamo_dap.debuggee.torch_api.features import Feature
from dynamo_dap.debuggee.torch_api.graphs.graph import source_of_input, user_places
from dynamo_dap.debuggee.torch_api.objects import Graph, Output
from dynamo_dap.debuggee.torch_api.traced.traced_frame import TracedFrame
from dynamo_dap.debuggee.torch_api.traced.traced_paths import PATHS
from dynamo_dap.debuggee.wrapping.locks import Level, lock
from dynamo_dap.debuggee.wrapping.patches import Patches

_COMPILE_ID = "torch._guards:CompileContext.current_compile_id"
_OUTPUT_GRAPH = "torch._dynamo.output_graph:OutputGraph"

RECORDING = Feature("what Dynamo recorded about generated code", _COMPILE_ID, _OUTPUT_GRAPH, *NEEDS)

_FRAMES_SEARCHED = 12


def current_compile_id() -> str | None:
    """Return the id of the compile that runs on this thread, also for a backward pass."""
    found = RECORDING.resolve(_COMPILE_ID)() if RECORDING.problem is None else None
    return None if found is None else str(found)


@dataclass(frozen=True, slots=True)
class Statement:
    """A user's statement, as Dynamo traced it. ``line`` is 1-based."""

    path: str
    line: int
    function: str
    text: str


@dataclass(frozen=True, slots=True)
class SideEffect:
    """An object that the traced code changed; the generated code applies the change."""

    source: str | None
    """The path to the object, in Dynamo's words: ``L['d']``, ``G['s'].last``; None for an object made in the trace."""
    kind: str
    """The class of Dynamo's tracker."""
    local_name: str | None
    """The name of the variable, for a cell or a temporary object."""
    statements: tuple[Statement, ...]
    """The statements that changed it, in traced order."""


@dataclass(frozen=True, slots=True)
class CompileRecord:
    """The facts about one compile of one frame."""

    compile_id: str
    graph: Graph
    """The ``torch.fx.Graph``, without real tensors."""
    side_effects: tuple[SideEffect, ...]
    traced: frozenset[tuple[str, int]] = frozenset()
    """File and first line of each traced user function: the compiled one and inlined ones."""
    lines: Mapping[str, frozenset[int]] = field(default_factory=dict)
    """By file, the lines of all of these functions, reached or not."""
    functions: frozenset[str] = frozenset()
    """Qualified names of these functions."""
    break_line: int | None = None
    """The line of the compiled function at which the graph broke; None if it did not."""


class NotedPaths(CompileObserver):
    """Notes the path of each compile (``traced_paths``) while a feature wants it. One for the process."""

    feature = "the paths of compiles"

    def __init__(self) -> None:
        """Begin without listeners."""
        self._lock = lock("observers of paths", Level.OBSERVERS)
        self._wanting: set[int] = set()
        self._break = threading.local()

    def want(self, who: object, *, wanted: bool) -> None:
        """Note the compiles from now on for ``who``, or stop. Runs on any thread."""
        with self._lock:
            before = bool(self._wanting)
            (self._wanting.add if wanted else self._wanting.discard)(id(who))
            if before != bool(self._wanting):
                HOOKS.want(self, (CompileObserver.graph_made, CompileObserver.graph_broke) if wanted else ())

    def graph_broke(self, frame: TracedFrame, reason: str, exception: object) -> None:
        """Note the line of a break, for the graph that ends there."""
        stack = getattr(exception, "real_stack", None)
        self._break.last = (frame.compiled_code, stack[0].lineno) if stack else None

    def take_break_line(self, original: CodeType) -> int | None:
        """Return the line of ``original`` at this thread's last graph break, and forget the break."""
        last, self._break.last = getattr(self._break, "last", None), None
        return last[1] if last is not None and last[0] is original else None

    def graph_made(self, compiling: FrameCompile | None, graph: Graph) -> None:
        """Note the path of a graph's trace."""
        output = _output_graph(sys._getframe(1))
        given = getattr(compiling.frame, "f_locals", None) if compiling is not None else None
        if compiling is not None and output is not None and given is not None:
            PATHS.note(compiling.code, compiling.compile_id, given, output, graph)


NOTED_PATHS = NotedPaths()
"""The notes of this process."""


class CompileRecorder:
    """Records compiles while it is installed."""

    def __init__(self, on_problem: Callable[[str], None]) -> None:
        """Call ``on_problem`` to log the exception being handled."""
        self._on_problem = on_problem
        self._patches = Patches(RECORDING.name)
        self._lock = lock("recorder", Level.FEATURES)
        self._records: dict[int, dict[str, CompileRecord]] = {}
        self._references: dict[int, weakref.ref[CodeType]] = {}
        self._compiled = threading.local()

    def install(self) -> None:
        """Record from now on. Runs on any thread; harmless if it is installed."""
        with self._lock:
            if not self._patches.is_installed and RECORDING.problem is None:
                on_new_code(self._patches, self._on_code)
                NOTED_PATHS.want(self, wanted=True)

    def remove(self) -> None:
        """Stop recording; existing records stay. Runs on any thread."""
        with self._lock:
            if self._patches.is_installed:
                self._patches.remove()
                NOTED_PATHS.want(self, wanted=False)

    def record_of(self, code: CodeType) -> CompileRecord | None:
        """Return the record of the compile that made ``code``; None if it was made unrecorded. Runs on any thread.

        The record is found by its compile id, since another hook may have replaced the code.
        """
        original = original_of(code)
        entry = cache_entry_of(code)
        if original is None or entry is None:
            return None
        return self._records.get(id(original), {}).get(str(entry.compile_id))

    def take_compiled(self) -> str | None:
        """Return the id of the compile that ended last on this thread, and forget it.

        New code runs right after its compile, so the id distinguishes this call from cached calls.
        """
        compile_id: str | None = getattr(self._compiled, "last", None)
        self._compiled.last = None
        return compile_id

    def forget_compiled(self) -> None:
        """Forget the newest compile of all threads: its code has run since, unnoticed. Runs on any thread."""
        self._compiled = threading.local()

    def _on_code(self, original: CodeType, _: CodeType, output: Output) -> None:
        try:
            self._record(original, output)
        except Exception:  # noqa: BLE001  (a failure of ours must not become one of the compile)
            self._on_problem("recording a compile")

    def _record(self, original: CodeType, output: Output) -> None:
        compile_id = RECORDING.resolve(_COMPILE_ID)()
        if compile_id is None or output is None:
            return
        codes = list(_traced(original, output))
        record = CompileRecord(
            str(compile_id),
            output.graph,
            tuple(_side_effects(output.side_effects)),
            frozenset((code.co_filename, code.co_firstlineno) for code in codes),
            lines_of(codes),
            frozenset(qualified_name(code) for code in codes),
            NOTED_PATHS.take_break_line(original),
        )
        self._compiled.last = record.compile_id
        key = id(original)
        if key not in self._references:
            self._references[key] = weakref.ref(original, lambda _: self._forget(key))
        self._records.setdefault(key, {})[record.compile_id] = record
        # Torch calls this when the code is freed, even if another hook replaces the code before its first run.
        output.cleanups.append(_Dropping(self._records, key, record))

    def _forget(self, key: int) -> None:
        self._references.pop(key, None)
        self._records.pop(key, None)


@dataclass(frozen=True, eq=False)
class _Dropping:
    """Drops a record when torch frees the code, like torch's ``CleanupHook``."""

    records: dict[int, dict[str, CompileRecord]]
    function: int
    record: CompileRecord

    def __call__(self) -> None:
        known = self.records.get(self.function, {})
        if known.get(self.record.compile_id) is self.record:
            del known[self.record.compile_id]


def _output_graph(frame: FrameType | None) -> Any:
    """Return the ``OutputGraph`` of the ending compile, from a caller's frame: the hook does not get it."""
    kind = RECORDING.resolve(_OUTPUT_GRAPH)
    for _ in range(_FRAMES_SEARCHED):
        if frame is None:
            return None
        output = next((value for value in frame.f_locals.values() if type(value) is kind), None)
        if output is not None:
            return output
        frame = frame.f_back
    return None


def _traced(original: CodeType, output: object) -> Iterator[CodeType]:
    inlined = getattr(getattr(output, "tracing_context", None), "traced_code", None) or ()
    for code in (original, *inlined):
        yield user_function_of(code)


def lines_of(codes: Iterable[CodeType]) -> dict[str, frozenset[int]]:
    """Return the lines of code objects by file."""
    by_path: dict[str, set[int]] = {}
    for code in codes:
        by_path.setdefault(code.co_filename, set()).update(line for _, _, line in code.co_lines() if line)
    return {path: frozenset(lines) for path, lines in by_path.items()}


def _side_effects(side_effects: object) -> Iterator[SideEffect]:
    for tracker, stacks in getattr(side_effects, "mutation_user_stacks", {}).items():
        source = getattr(tracker, "source", None)
        yield SideEffect(
            source=_source_name(source),
            kind=type(tracker).__name__,
            local_name=_plain_text(
                getattr(tracker, "__dict__", {}).get("local_name"), getattr(source, "__dict__", {}).get("local_name")
            ),
            statements=tuple(dict.fromkeys(_statement(stack) for stack in stacks if stack)),
        )


def _plain_text(*candidates: object) -> str | None:
    return next((candidate for candidate in candidates if type(candidate) is str), None)


def _source_name(source: Any) -> str | None:
    if source is None or type(source).__name__ == "TempLocalSource":
        return None
    try:
        name = source.name
        return str(name() if callable(name) else name)
    except (NotImplementedError, AttributeError, AssertionError):
        return None


def _statement(stack: Any) -> Statement:
    """Return the innermost statement in ``stack``, a ``traceback.StackSummary``."""
    innermost = stack[-1]
    return Statement(innermost.filename, innermost.lineno or 0, innermost.name, (innermost.line or "").strip())


def placeholders_of(graph: Graph) -> list[tuple[str, str | None, object]]:
    """Return name, source and fake value of every input of a graph, in the order of the call."""
    inputs = []
    for node in graph.nodes:
        if node.op == "placeholder":
            inputs.append((str(node.target), _source_name(source_of_input(node)), node.meta.get("example_value")))
    return inputs


def outputs_of(graph: Graph) -> list[tuple[str, object]]:
    """Return name and fake value of every output of a graph, in order; outputs that are not nodes as text."""
    for node in graph.nodes:
        if node.op == "output":
            returned = node.args[0]
            items = returned if isinstance(returned, (tuple, list)) else (returned,)
            return [(str(item), getattr(item, "meta", {}).get("example_value")) for item in items]
    return []


def count_of_operations(graph: Graph) -> int:
    """Return how many nodes of a graph compute something."""
    return sum(node.op not in ("placeholder", "output", "get_attr") for node in graph.nodes)


def lines_computed(graph: Graph) -> set[tuple[str, int]]:
    """Return the user's files and lines that a graph, or an operator's body in it, computes.

    The line of a call counts as well as the callee's lines.
    """
    graphs = [graph]
    module = getattr(graph, "owning_module", None)
    graphs += [inner.graph for inner in module.modules() if hasattr(inner, "graph")] if module is not None else []
    return {
        (place.path, place.line)
        for each in graphs
        for node in each.nodes
        if node.op.startswith("call_")
        for place, _ in user_places(node)
    }
