"""Records each compile of this process, for views, for the record file and for reports.

Its hooks are installed while a session wants a record. Events arrive on compiling threads; the agent's reader thread
answers requests from the record. One per process.
"""

from __future__ import annotations

import sys
import threading
import time
import types
import weakref
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from dynamo_dap.debuggee.agent.user_code import is_debugger_file, is_package_file, is_torch_file, is_user_file
from dynamo_dap.debuggee.bytecode.constants import without_addresses
from dynamo_dap.debuggee.recording import facts, raised_calls
from dynamo_dap.debuggee.recording.answers import (
    GraphBody,
    GuardsBody,
    code_of_graph,
    compiles_body,
    graph_answer,
    graph_body,
    guards_answer,
    guards_body,
)
from dynamo_dap.debuggee.recording.code_texts import disassembled, kernels_in
from dynamo_dap.debuggee.recording.facts import cuda_graph, digests_of
from dynamo_dap.debuggee.recording.function_names import (
    function_of,
    function_of_compile,
    name_of_compile,
    place_of_code,
)
from dynamo_dap.debuggee.recording.guard_texts import plain_name
from dynamo_dap.debuggee.recording.object_numbers import ObjectNumbers
from dynamo_dap.debuggee.recording.traced_values import traced_functions, values_of
from dynamo_dap.debuggee.torch_api.cache.cache_lookups import CacheLookupFacts
from dynamo_dap.debuggee.torch_api.cache.guards import BuiltGuard
from dynamo_dap.debuggee.torch_api.cache.recompiles import failures_of
from dynamo_dap.debuggee.torch_api.code_objects.dynamo_names import resume_function, user_function_name
from dynamo_dap.debuggee.torch_api.compiles.compilation import (
    cache_counts,
    name_of_backend,
    output_files,
    phases_of,
    resume_codes,
)
from dynamo_dap.debuggee.torch_api.compiles.compile_hooks import HOOKS, CompileObserver, CompileResult, FrameCompile
from dynamo_dap.debuggee.torch_api.compiles.errors import error_behind
from dynamo_dap.debuggee.torch_api.compiles.graph_breaks import is_graph_break, was_logged
from dynamo_dap.debuggee.torch_api.compiles.raised_calls import RaisedCall, RaisedCalls
from dynamo_dap.debuggee.torch_api.devices.cuda_graph_texts import CudaGraphFacts
from dynamo_dap.debuggee.torch_api.devices.ddp_buckets import GraphBucket
from dynamo_dap.debuggee.torch_api.objects import Graph
from dynamo_dap.debuggee.torch_api.torch_settings import settings_now
from dynamo_dap.debuggee.torch_api.traced.data_dependence import DataDependence
from dynamo_dap.debuggee.torch_api.traced.size_reasons import SizeFacts
from dynamo_dap.debuggee.torch_api.traced.symbols import SpecializationFacts, SymbolFacts
from dynamo_dap.debuggee.torch_api.traced.traced_frame import TracedFrame, running_frame
from dynamo_dap.debuggee.torch_api.traced.traced_lines import Trace, TraceNotes
from dynamo_dap.debuggee.torch_api.traced.translator import frame_below_trace
from dynamo_dap.debuggee.values.model import VirtualSource
from dynamo_dap.records.events import (
    AttemptRestarted,
    BreakFound,
    CacheAnswered,
    CallRaised,
    CompileBegan,
    CompileEnded,
    CudaGraphEvent,
    Event,
    FilesWritten,
    FrameSkipped,
    GraphCut,
    GraphMade,
    GuardsMade,
    LimitReached,
    Profiled,
    Recompiled,
    Record,
    SettingsRead,
    SizeSpecialized,
    SourceRead,
    Traced,
)
from dynamo_dap.records.model import (
    GraphBreak,
    Place,
    ProfiledFunction,
    SkippedFrame,
    Specialization,
    StackLine,
    Symbol,
    TracedValue,
)
from dynamo_dap.records.texts import readable_graph

EVENTS = (
    CompileObserver.compile_began,
    CompileObserver.compile_ended,
    CompileObserver.recompiles,
    CompileObserver.attempt_restarted,
    CompileObserver.graph_broke,
    CompileObserver.trace_failed,
    CompileObserver.graph_made,
    CompileObserver.graph_cut,
    CompileObserver.guards_made,
    CompileObserver.frame_skipped,
    CompileObserver.specialized,
    CompileObserver.limit_exceeded,
    CompileObserver.cuda_graph_event,
)
_MAXIMUM_LENGTH = 2000
_STACK = 50
_KERNELS = 500
_GENERATED = 8_000
_MAXIMUM_SKIPPED = 1000
_MAXIMUM_SOURCES = 500
_MAXIMUM_RAISED = 20


@dataclass
class _InProgress:
    """A compile that is being recorded."""

    problem: str | None = field(default=None, kw_only=True)
    """Why the trace failed, if the debugger has a better reason than torch's error."""
    dependence: DataDependence | None = field(default=None, kw_only=True)
    """The data-dependent condition at which the trace failed."""

    id: str
    """The id in the record: Dynamo's, made unique."""
    began: float
    """By the recorder's clock."""
    thread: int
    """Python's identifier."""
    caches: dict[str, int]
    """The caches' counts before the compile."""
    trace: Trace
    values: list[TracedValue] | None = None
    """Values of names when the graph was made: torch forgets them after the trace."""


class Recorder(CompileObserver):
    """Records compiles. Implements ``agent.engine.CompileReader`` and ``torch_api.compiles.compile_hooks``."""

    feature = "the record of compiles"

    def __init__(
        self,
        record: Record,
        guard_texts: facts.GuardTexts,
        on_event: Callable[[Event], None],
        notes_traces: Callable[[], bool],
        clock: Callable[[], float],
        kept_whole: int | None = None,
    ) -> None:
        """Add facts to ``record``, and pass events to ``on_event``.

        ``guard_texts`` writes guards. ``notes_traces`` says whether to note lines and values as well. ``clock`` gives
        seconds. ``kept_whole`` is how many compiles stay whole in ``record``, by default all; others keep an overview.
        """
        self.record = record
        self._guard_texts = guard_texts
        self._in_progress: dict[FrameCompile, _InProgress] = {}
        self._on_event = on_event
        self._notes_traces = notes_traces
        self._clock = clock
        self._skipped: set[tuple[str, Place]] = set()
        self._sources: set[str] = set()
        self._newest: dict[str, str] = {}
        """Maps Dynamo's id to the id in the record, since later events have only Dynamo's."""
        self._answered_before: dict[int, tuple[types.CodeType, CacheLookupFacts]] = {}
        """Answers of caches before a compile, by the id of its code."""
        self._notes_settings = False
        self._modules: dict[types.CodeType, ObjectNumbers] = {}
        """Modules whose methods were compiled, by the method's code."""
        self._refused = ObjectNumbers()
        """Objects that failed guards on an object's identity or type."""
        self._files = 0
        """How many of the backend's files are reported."""
        self._kept_whole = kept_whole
        self._whole: deque[str] = deque()
        """Finished compiles that are kept whole, by id."""
        self._notes = TraceNotes()
        self._raised = RaisedCalls(self._call_raised, self._generated_code)
        self._compiled: dict[int, tuple[weakref.ref[types.CodeType], str]] = {}
        """Generated code and its compile's id, by identity: its constants may not be hashable."""
        self._began = time.time()

    # -- the agent's side: any thread ------------------------------------------------------------------------------

    def update_hooks(self, *, notes_calls: bool = False) -> None:
        """Record from now on; ``notes_calls`` also notes calls that raise, at a cost for each call."""
        HOOKS.want(self, EVENTS)
        if notes_calls:
            self._raised.install()
        if self._notes_traces():
            self._notes.install()
        else:
            self._notes.remove()

    def close(self) -> None:
        """Stop recording; keep what is known."""
        HOOKS.want(self, ())
        self._notes.remove()
        self._raised.remove()
        self._in_progress.clear()

    def problems(self) -> list[str]:
        """Return a sentence for each kind of event that this torch does not report."""
        return HOOKS.problems(EVENTS)

    def note_profile(self, functions: list[ProfiledFunction]) -> None:
        """Note each function's trace time, once, when the program ends."""
        self._see(*(function.place for function in functions))
        self._take(Profiled(functions))

    # -- requests: the agent's reader thread -----------------------------------------------------------------------

    def compiles(self) -> dict[str, object]:
        """Return the body of ``dynamoCompiles``."""
        return compiles_body(self.record)

    def graph(self, compile_id: str, index: int) -> tuple[GraphBody, VirtualSource]:
        """Return the body of ``dynamoGraph``, and the readable code."""
        return graph_body(self.record, compile_id, index)

    def guards(self, compile_id: str) -> GuardsBody:
        """Return the body of ``dynamoGuards``."""
        return guards_body(self.record, compile_id)

    def code_of_graph(self, compile_id: str, function: str) -> str | None:
        """Return the readable code of a compile's graph for its backend."""
        return code_of_graph(self.record, compile_id, function)

    def thread_of(self, compile_id: str) -> int | None:
        """Return the thread that traces a compile; None if none does."""
        return next((one.thread for one in list(self._in_progress.values()) if one.id == compile_id), None)

    # -- requests: a compiling thread, held ------------------------------------------------------------------------

    def graph_so_far(self, compile_id: str, index: int) -> tuple[GraphBody, VirtualSource] | None:
        """Return the graph of the trace held on this thread; None if that is another compile's."""
        frame = self._traced_in(compile_id)
        made = self.record.read(lambda record: record.find(compile_id))
        if frame is None or made is None or index != len(made.graphs):
            return None
        graph = facts.graph(index, "graph so far", frame.graphs()[-1])
        return graph_answer(graph, made, compile_id, is_final=False)

    def _traced_in(self, compile_id: str) -> TracedFrame | None:
        """Return the function that this thread traces, if it belongs to this compile."""
        recorded = self._recorded(HOOKS.current)
        is_its_trace = recorded is not None and recorded.id == compile_id
        return running_frame(sys._getframe()) if is_its_trace else None

    def guards_so_far(self, compile_id: str) -> GuardsBody | None:
        """Return the guards of the trace held on this thread; None if that is another compile's."""
        frame = self._traced_in(compile_id)
        made = self.record.read(lambda record: record.find(compile_id))
        if frame is None or made is None or made.guards:
            return None
        return guards_answer(*facts.guards_so_far(frame, self._guard_texts))

    def readable_code(self, name: str, graph: object) -> str:
        """Return a graph as readable Python."""
        return readable_graph(facts.graph(0, "graph", graph), name)

    # -- reported on compiling threads -----------------------------------------------------------------------------

    def _take(self, event: Event) -> None:
        # Reports read values of lines and generated code from files. In memory they would take kilobytes per compile.
        is_for_files = isinstance(event, Traced | CompileEnded)
        self.record.apply(event.without_details() if is_for_files else event)
        self._on_event(event)

    def _see(self, *places: Place | None) -> None:
        """Note the present texts of the files with these places."""
        for at in places:
            if at is None or at.path in self._sources or len(self._sources) >= _MAXIMUM_SOURCES:
                continue
            is_users = is_user_file(at.path)
            if is_users or not (is_torch_file(at.path) or at.path.startswith("<")):
                self._sources.add(at.path)
                self._take(SourceRead(at.path, digests_of(at.path, not_after=self._began), not is_users))

    def note_settings_once(self) -> None:
        """Record torch's settings at the next compile."""
        self._notes_settings = True

    def compile_began(self, compiling: FrameCompile) -> None:
        """Begin the record of a compile."""
        if self._notes_settings:
            self._notes_settings = False
            self._take(SettingsRead(settings_now()))
        code = compiling.code
        function, function_place = function_of_compile(compiling)
        identifier, began = self._unused(compiling.compile_id), self._clock()
        self._newest[compiling.compile_id] = identifier
        self.note_files()
        trace = Trace(_is_noted)
        self._in_progress[compiling] = _InProgress(identifier, began, threading.get_ident(), cache_counts(), trace)
        self._notes.begin(trace)
        stack = _stack()
        users = [one.place for one in stack if is_user_file(one.place.path)]
        caller = None if resume_function(code) or not users else users[-1]
        self._see(function_place, caller)
        self._take(
            CompileBegan(
                id=identifier,
                name=name_of_compile(compiling),
                function=function,
                place=place_of_code(code),
                function_place=function_place,
                time=time.time(),
                backend=name_of_backend(compiling.backend),
                caller=caller,
                stack=stack,
                sharding=facts.sharding(compiling),
                module=self._module_of(compiling),
            )
        )
        if id(code) in self._answered_before:
            self._take(CacheAnswered(identifier, facts.cache_lookup(self._answered_before.pop(id(code))[1])))

    def _module_of(self, compiling: FrameCompile) -> int | None:
        """Return the number of the compiled method's module among those that share its code."""
        module = facts.module_of(compiling)
        return None if module is None else self._modules.setdefault(compiling.code, ObjectNumbers()).of(module)

    def _unused(self, compile_id: str) -> str:
        if not self.record.has(compile_id):
            return compile_id
        number = 2
        while self.record.has(f"{compile_id}#{number}"):
            number += 1
        return f"{compile_id}#{number}"

    def recompiles(self, compiling: FrameCompile, entries: list[object], reasons: list[str]) -> None:
        """Record the failed guards of earlier compiles."""
        found = failures_of(compiling.code, entries, reasons)
        failures = [facts.guard_failure(one, compiling.frame, self._refused) for one in found]
        self._see(*(failure.place for failure in failures))
        if (recorded := self._recorded(compiling)) is not None:
            self._take(Recompiled(recorded.id, failures))

    def limit_exceeded(self, compiling: FrameCompile, limit: str) -> None:
        """Record that calls of the function which match no earlier compile run eagerly from now on."""
        if (recorded := self._recorded(compiling)) is not None:
            self._take(LimitReached(recorded.id, limit))

    def attempt_restarted(self, compiling: FrameCompile, reason: str) -> None:
        """Record why the analysis restarts."""
        if (recorded := self._recorded(compiling)) is not None:
            recorded.trace.clear()
            recorded.values = None
            text = facts.text_of(reason.strip(), _MAXIMUM_LENGTH)
            self._take(AttemptRestarted(recorded.id, compiling.attempt, text))

    def graph_broke(self, frame: TracedFrame, reason: str, exception: object) -> None:
        """Record a graph break."""
        if (recorded := self._recorded(HOOKS.current)) is not None:
            self._take_break(
                recorded.id, facts.graph_break(exception, _effect_of(reason), facts.data_dependence(exception, frame))
            )

    def trace_failed(self, frame: TracedFrame, exception: Exception) -> None:
        """Note which operation made each data-dependent number: torch forgets that after the trace."""
        if (recorded := self._recorded(HOOKS.current)) is not None:
            recorded.problem = facts.pending_text(exception, frame)
            recorded.dependence = facts.data_dependence(exception, frame)

    def _recorded(self, compiling: FrameCompile | None) -> _InProgress | None:
        return None if compiling is None else self._in_progress.get(compiling)

    def _take_break(self, identifier: str, found: GraphBreak) -> None:
        self._see(found.place, *(one.place for one in found.stack))
        self._take(BreakFound(identifier, found))

    def graph_made(self, compiling: FrameCompile | None, graph: Graph) -> None:
        """Record a complete graph, with the values of names."""
        recorded = self._recorded(compiling)
        if recorded is None:
            return
        found = self.record.read(lambda record: record.find(recorded.id))
        index = 0 if found is None else len(found.graphs)
        name = f"graph {index}" if index else "graph"
        made = facts.graph(index, name, graph)
        self._take(GraphMade(recorded.id, made))
        recorded.values = values_of(recorded.trace)

    def graph_cut(self, compiling: FrameCompile | None, buckets: list[GraphBucket]) -> None:
        """Record the buckets of DistributedDataParallel."""
        recorded = self._recorded(compiling)
        found = None if recorded is None else self.record.read(lambda record: record.find(recorded.id))
        if recorded is not None and found is not None and found.graphs:
            graph = found.graphs[-1]
            self._take(GraphCut(recorded.id, graph.index, facts.buckets(graph, buckets)))

    def guards_made(
        self,
        compiling: FrameCompile | None,
        guards: list[BuiltGuard],
        symbols: list[SymbolFacts],
        sizes: list[SizeFacts],
    ) -> None:
        """Record the guards, and why each size is static or dynamic."""
        recorded = self._recorded(compiling)
        if compiling is not None and recorded is not None:
            count, made = facts.guards(compiling, guards)
            known = self.record.read(lambda record: record.find(recorded.id))
            explained = facts.sizes(sizes, [] if known is None else known.specializations)
            self._see(*(reason.place for size in explained for reason in size.reasons))
            self._see(*(one.place for one in made if one.type == "SHAPE_ENV"))
            self._take(
                GuardsMade(
                    recorded.id,
                    count,
                    made,
                    [Symbol(symbol.name, plain_name(symbol.source), symbol.value, symbol.range) for symbol in symbols],
                    explained,
                )
            )

    def specialized(self, facts: SpecializationFacts, message: str) -> None:
        """Record the line at which a size became a constant."""
        recorded = self._recorded(HOOKS.current)
        if recorded is None:
            return
        frame = running_frame(sys._getframe())
        at = None if frame is None else Place(frame.path, frame.line)
        specialization = Specialization(f"{facts.source} == {facts.value}", at)
        self._take(SizeSpecialized(recorded.id, specialization))

    def frame_skipped(self, frame: Any, reason: str) -> None:
        """Record a skipped user function. Hundreds of skipped library functions would not help the user."""
        code = frame.f_code
        if not is_user_file(code.co_filename) or len(self._skipped) >= _MAXIMUM_SKIPPED:
            return
        key = (reason, place_of_code(code))
        if key not in self._skipped:
            self._skipped.add(key)
            name, at = function_of(code, getattr(frame, "f_locals", None) or {})
            self._take(FrameSkipped(SkippedFrame(name, facts.text_of(reason, _MAXIMUM_LENGTH), at)))

    def cuda_graph_event(self, compiling: FrameCompile | None, facts: CudaGraphFacts) -> None:
        """Record a CUDA graph's event, for the compile that it belongs to."""
        recorded = self._recorded(compiling)
        identifier = self._newest.get(facts.compile_id or "") if recorded is None else recorded.id
        if identifier is not None:
            event = cuda_graph(facts)
            self._see(event.place, event.caller)
            self._take(CudaGraphEvent(identifier, event))

    def cache_answered(self, event: CacheLookupFacts, code: types.CodeType | None = None) -> None:
        """Record the answer of a cache: of this compile, or of the next one of ``code``."""
        identifier = self._newest.get(event.compile_id or "")
        if identifier is not None:
            self._take(CacheAnswered(identifier, facts.cache_lookup(event)))
        elif code is not None:
            self._answered_before[id(code)] = code, event

    def compile_ended(self, compiling: FrameCompile, result: CompileResult, problem: BaseException | None) -> None:
        """Record the result of a compile."""
        recorded = self._in_progress.pop(compiling, None)
        if recorded is None:
            return
        # Torch raises the same exception for the limit, and does not count it as a graph break.
        is_break = problem is not None and compiling.limit is None and is_graph_break(problem)
        if is_break and not was_logged(problem):
            effect = "an error: fullgraph=True" if compiling.one_graph else "the function is skipped: it runs eagerly"
            self._take_break(recorded.id, facts.graph_break(problem, effect, recorded.dependence))
        self._take_trace(recorded)
        files = self._new_files()
        caches = {name: count - recorded.caches.get(name, 0) for name, count in cache_counts().items()}
        code = result.code
        if code is not None:
            self._compiled = {key: entry for key, entry in self._compiled.items() if entry[0]() is not None}
            self._compiled[id(code)] = weakref.ref(code), recorded.id
        resumes = resume_codes(code, getattr(compiling.frame, "f_globals", {}))
        at = None if problem is None else facts.place_of_problem(problem)
        self._see(at)
        self._take(
            CompileEnded(
                id=recorded.id,
                state=_state_of(code, problem, is_error=compiling.one_graph),
                seconds=self._clock() - recorded.began,
                problem=recorded.problem or _problem_text(result.skip_reason, problem),
                problem_place=at,
                resumes=[place_of_code(resume) for resume in resumes],
                phases=phases_of(compiling.compile_id),
                artifacts=files,
                kernels=_kernels_in(files),
                caches={name: count for name, count in caches.items() if count},
                generated=None if code is None else without_addresses(disassembled(code, _GENERATED)),
            )
        )
        self._whole.append(recorded.id)
        if self._kept_whole is not None and len(self._whole) > self._kept_whole:
            self.record.shorten(self._whole.popleft())

    def _call_raised(self, raised: RaisedCall) -> None:
        """Record a call that raised, once per kind."""
        code, identifier = self._compiled.get(id(raised.code), (None, ""))
        known = self.record.read(lambda record: record.find(identifier))
        if code is None or code() is not raised.code or known is None or len(known.raised) >= _MAXIMUM_RAISED:
            return
        call = raised_calls.facts_of(raised, known)
        if call not in known.raised:
            self._see(call.kernel, call.caller, *call.places)
            self._take(CallRaised(identifier, call))

    def _generated_code(self) -> list[types.CodeType]:
        return [code for known, _ in list(self._compiled.values()) if (code := known()) is not None]

    def note_files(self) -> None:
        """Note files that the backend wrote since the last compile: code of backward passes, when these ran."""
        files = self._new_files()
        if files:
            self._take(FilesWritten(files, _kernels_in(files)))

    def _new_files(self) -> list[str]:
        files = output_files()
        new = list(dict.fromkeys(files[self._files :]))
        self._files = len(files)
        return new

    def _take_trace(self, recorded: _InProgress) -> None:
        trace, values = recorded.trace, recorded.values
        self._notes.end(trace)
        functions = traced_functions(trace)
        self._see(*(function.place for function in functions))
        if functions:
            self._take(Traced(recorded.id, functions, values_of(trace) if values is None else values))
        trace.clear()


def _is_noted(path: str) -> bool:
    """Return whether to note lines and values of a file: the user's, and those of library models."""
    return is_user_file(path) or is_package_file(path)


def _stack() -> list[StackLine]:
    """Return the callers, outermost first: the program and libraries, without torch and our code."""
    frame = frame_below_trace(sys._getframe())
    found: list[StackLine] = []
    while frame is not None and len(found) < _STACK:
        path = frame.f_code.co_filename
        if not is_torch_file(path) and not is_debugger_file(path) and not path.startswith("<frozen "):
            found.append(StackLine(Place(path, frame.f_lineno or 1), user_function_name(frame.f_code)))
        frame = frame.f_back
    return found[::-1]


def _kernels_in(files: list[str]) -> list[str]:
    return list(dict.fromkeys(kernel for path in files for kernel in kernels_in(path)))[:_KERNELS]


def _effect_of(reason: str) -> str | None:
    if reason.startswith("Failed to handle graph break gracefully"):
        return "the function is skipped: it runs eagerly"
    if reason.startswith("Encountered graph break that we cannot resume from"):
        return "compiled up to here; the rest of the function runs eagerly"
    return "the rest of the function is compiled separately"


def _state_of(code: object, problem: BaseException | None, *, is_error: bool) -> str:
    if problem is None:
        return "skipped" if code is None else "compiled"
    return "skipped" if is_graph_break(problem) and not is_error else "failed"


def _problem_text(skip_reason: str | None, problem: BaseException | None) -> str | None:
    if problem is not None:
        error = error_behind(problem)
        if error.kind is type(problem):
            return facts.text_of(error.text, _MAXIMUM_LENGTH)
        return facts.text_of(f"{error.text}\nThe program gets {type(problem).__name__}.", _MAXIMUM_LENGTH)
    return None if skip_reason is None else facts.text_of(str(skip_reason), _MAXIMUM_LENGTH)
