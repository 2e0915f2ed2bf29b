"""Reports the events of a compile: it begins, restarts, breaks the graph, passes a graph to the backend, ends.

Functions of torch that run once per compile, attempt, graph or graph break have hooks, which notify the observers.
Hooks are installed only while an observer wants their events. They run on the compiling thread, most of them under
Dynamo's compile lock. An observer that fails gets no further events. One ``CompileHooks`` per process, since the
functions are global.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import sys
import threading
import types
import weakref
from collections.abc import Callable, Collection, Generator
from dataclasses import dataclass
from types import FrameType
from typing import Any, Concatenate, ParamSpec

from dynamo_dap.debuggee.torch_api.cache.guard_checks import checks_of_manager
from dynamo_dap.debuggee.torch_api.cache.guards import BuiltGuard, RequestedGuard, built_guards, requested_guard
from dynamo_dap.debuggee.torch_api.compiles.chosen_compiles import CHOSEN
from dynamo_dap.debuggee.torch_api.compiles.graph_breaks import was_logged
from dynamo_dap.debuggee.torch_api.devices.cuda_graph_texts import CudaGraphFacts
from dynamo_dap.debuggee.torch_api.devices.cuda_graphs import CudaGraphHooks
from dynamo_dap.debuggee.torch_api.devices.ddp_buckets import GraphBucket, buckets_of
from dynamo_dap.debuggee.torch_api.features import Feature, owner_of
from dynamo_dap.debuggee.torch_api.objects import Graph, Output, Translator
from dynamo_dap.debuggee.torch_api.skipping import never_compile_own_functions
from dynamo_dap.debuggee.torch_api.traced.replays import replayed_call
from dynamo_dap.debuggee.torch_api.traced.size_reasons import InputSizes, SizeFacts, merged
from dynamo_dap.debuggee.torch_api.traced.symbols import (
    SpecializationFacts,
    SymbolFacts,
    specialization_of,
    symbols_of_environment,
)
from dynamo_dap.debuggee.torch_api.traced.traced_frame import TracedFrame
from dynamo_dap.debuggee.wrapping.locks import Level, lock
from dynamo_dap.debuggee.wrapping.patches import Given, Outcome, Patches, calling_frame
from dynamo_dap.debuggee.wrapping.weak_collections import WeakKeyDictionary

_COMPILE = "torch._dynamo.convert_frame:_compile"
_TRANSFORM = "torch._dynamo.convert_frame:transform_code_object"
_RESTART = "torch._dynamo.exc:RestartAnalysis"
_REASONS = "torch._dynamo.convert_frame:get_and_maybe_log_recompilation_reasons"
_REASONS_OF_STANCE = "torch._dynamo.guards:get_and_maybe_log_recompilation_reasons"
_LIMIT = "torch._dynamo.convert_frame:exceeds_recompile_limit"
_LOG_BREAK = "torch._dynamo.symbolic_convert:InstructionTranslatorBase.log_graph_break"
_EXCEPTION_HANDLER = "torch._dynamo.symbolic_convert:InstructionTranslatorBase.exception_handler"
_CLEANUP = "torch._dynamo.output_graph:OutputGraph.cleanup"
_BACKEND = "torch._dynamo.output_graph:OutputGraph.call_user_compiler"
_BUILD_GUARDS = "torch._dynamo.convert_frame:DynamoOutput.build_guards"
_HANDLE_SKIP = "torch._dynamo.convert_frame:CatchErrorsWrapper._handle_skip"
_REPLACEMENT = "torch.fx.experimental.symbolic_shapes:ShapeEnv._set_replacement"
_ADD_GUARD = "torch._guards:GuardsSet.add"

COMPILES = Feature("the record of compiles", _COMPILE)
ATTEMPTS = Feature("the record of restarted analyses", _TRANSFORM, _RESTART)
RECOMPILES = Feature("why functions are recompiled", _REASONS)
REFUSED_RECOMPILES = Feature("calls that set_stance('fail_on_recompile') refuses", _REASONS_OF_STANCE)
LIMITS = Feature("stopping at the recompile limit", _LIMIT)
BREAKS = Feature(
    "the record of graph breaks", _LOG_BREAK, signatures={_LOG_BREAK: ("self", "code_options", "reason", "exc")}
)
EXCEPTIONS = Feature(
    "stopping at exceptions of traced code",
    _EXCEPTION_HANDLER,
    signatures={_EXCEPTION_HANDLER: ("self", "raised_exception")},
)
FAILURES = Feature("stopping where a trace fails", _CLEANUP)
GRAPHS = Feature("the record of graphs", _BACKEND, signatures={_BACKEND: ("self", "gm")})
GUARDS = Feature("the record of guards", _BUILD_GUARDS)
SKIPS = Feature("the record of skipped functions", _HANDLE_SKIP, signatures={_HANDLE_SKIP: ("self", "result", "frame")})
SPECIALIZATIONS = Feature(
    "which sizes were specialized", _REPLACEMENT, signatures={_REPLACEMENT: ("self", "a", "tgt", "msg")}
)
GUARD_REQUESTS = Feature("the exception filter Guards", _ADD_GUARD, signatures={_ADD_GUARD: ("self", "guard")})


@dataclass(eq=False)
class FrameCompile:
    """A compile in progress."""

    compile_id: str
    code: types.CodeType
    frame: Any
    """Torch's object for the frame about to run, with ``f_code``, ``f_locals``, ``f_globals``; not a Python frame."""
    one_graph: bool
    """``fullgraph=True``"""
    backend: object
    number: int = 0
    """The number of this compile in the process; compile ids begin again after ``torch._dynamo.reset()``."""
    attempt: int = 0
    limit: str | None = None
    """The setting that the number of compiles exceeds, if torch stops compiling the function."""


@dataclass(frozen=True, slots=True)
class CompileResult:
    """The result of a compile; empty if it ended with an exception."""

    code: types.CodeType | None = None
    """The generated code; None for a skipped function."""
    skip_reason: str | None = None


class CompileObserver:
    """The events of compiles: one method each. Observers override those that they list in ``want``."""

    feature = "watching compiles"
    """The observer's name in the message that it failed and is turned off."""

    def compile_began(self, compiling: FrameCompile) -> None:
        """Observe the start of a compile, which torch may then refuse because of the recompile limit."""

    def compile_ended(self, compiling: FrameCompile, result: CompileResult, problem: BaseException | None) -> None:
        """Observe the end of a compile."""

    def recompiles(self, compiling: FrameCompile, entries: list[object], reasons: list[str]) -> None:
        """Observe that no cache entry matches this call; ``reasons`` has one reason for each of ``entries``."""

    def limit_exceeded(self, compiling: FrameCompile, limit: str) -> None:
        """Observe that the function has more compiles than torch's setting ``limit`` allows."""

    def attempt_restarted(self, compiling: FrameCompile, reason: str) -> None:
        """Observe that Dynamo abandons an attempt and will restart the analysis."""

    def graph_broke(self, frame: TracedFrame, reason: str, exception: object) -> None:
        """Observe a graph break, once it is certain. Reported once, before torch logs it."""

    def exception_met(self, frame: TracedFrame, exception: object) -> None:
        """Observe an exception of traced code, or of a function it called, before Dynamo looks for its handler."""

    def trace_failed(self, frame: TracedFrame, exception: Exception) -> None:
        """Observe an exception that has left a trace; ``frame`` is its outermost function, with its state."""

    def graph_made(self, compiling: FrameCompile | None, graph: Graph) -> None:
        """Observe an FX graph before the backend gets it."""

    def graph_cut(self, compiling: FrameCompile | None, buckets: list[GraphBucket]) -> None:
        """Observe that DistributedDataParallel has cut the newest graph."""

    def backend_failed(self, frame: TracedFrame, graph: Graph, problem: BaseException) -> None:
        """Observe an exception of the backend; ``frame`` is the function being compiled."""

    def guards_made(
        self,
        compiling: FrameCompile | None,
        guards: list[BuiltGuard],
        symbols: list[SymbolFacts],
        sizes: list[SizeFacts],
    ) -> None:
        """Observe the complete guards, with their expressions.

        ``symbols`` has the sizes that may vary. ``sizes`` has all sizes of inputs, each with its reasons.
        """

    def frame_skipped(self, frame: object, reason: str) -> None:
        """Observe that Dynamo will not compile a function."""

    def specialized(self, facts: SpecializationFacts, message: str) -> None:
        """Observe the specialization of an input's size or number."""

    def guard_added(self, guard: RequestedGuard) -> None:
        """Observe the first request for a guard."""

    def cuda_graph_event(self, compiling: FrameCompile | None, facts: CudaGraphFacts) -> None:
        """Observe an event of a CUDA graph; ``compiling`` is None when a graph runs, and for a backward pass."""


P = ParamSpec("P")
Event = Callable[..., None]
"""An unbound method of ``CompileObserver``."""


class CompileHooks:
    """Notifies observers of compiles. Hooks are installed only while there is an observer."""

    def __init__(self) -> None:
        self._lock = lock("hooks of compiles", Level.HOOKS)
        self._wanted: dict[Event, dict[CompileObserver, Callable[..., None]]] = {}
        """By event: the observers that want it, each with the method to call."""
        self._observers: WeakKeyDictionary[CompileObserver, Patches] = WeakKeyDictionary()
        self._settled: WeakKeyDictionary[CompileObserver, frozenset[Event]] = WeakKeyDictionary()
        """By observer: its events, if all of their hooks are installed. Observers ask again at each step."""
        self._patches = {name: Patches(hook.feature.name) for name, hook in _HOOKS.items()}
        self._current = threading.local()
        self.cuda_graphs = CudaGraphHooks(
            lambda facts: self.notify(CompileObserver.cuda_graph_event, self.current, facts)
        )
        self._count = 0
        self.around: Callable[[CompileObserver], contextlib.AbstractContextManager[None]] | None = None
        """Makes the context in which an observer is called: a profiler measures the observer's time."""

    def want(self, observer: CompileObserver, events: Collection[Event]) -> None:
        """Report exactly ``events`` to ``observer`` from now on. Runs on any thread."""
        with self._lock:
            patches = self._observers.get(observer)
            if patches is None and events:
                patches = self._observers[observer] = Patches(observer.feature, self._removing(observer))
            if patches is not None and patches.is_off:
                events = ()
            if self._settled.get(observer) == frozenset(events):
                return
            for event in {event for hook in _HOOKS.values() for event in hook.events}:
                wanted = {
                    other: method for other, method in self._wanted.get(event, {}).items() if other is not observer
                }
                if event in events and patches is not None:
                    wanted[observer] = patches.guarded(getattr(observer, event.__name__), None)
                self._wanted[event] = wanted
            # Every event belongs to a compile, so any observer needs the hook of compiles as well.
            is_any = any(self._wanted.values())
            is_settled = True
            for name, hook in _HOOKS.items():
                needed = any(self._wanted[event] for event in hook.events) or (is_any and hook.feature is COMPILES)
                self._set(name, hook, needed)
                is_settled = is_settled and needed == self._patches[name].is_installed
            self.cuda_graphs.want(wanted=bool(self._wanted[CompileObserver.cuda_graph_event]))
            self._settled.pop(observer, None)
            if is_settled:
                self._settled[observer] = frozenset(events)

    def _removing(self, observer: CompileObserver) -> Callable[[], None]:
        reference = weakref.ref(observer)

        def remove() -> None:
            if (observer := reference()) is not None:
                self.want(observer, ())

        return remove

    @property
    def installed(self) -> tuple[str, ...]:
        """The names of the installed hooks."""
        names = [name for name, patches in self._patches.items() if patches.is_installed]
        return (*names, *self.cuda_graphs.names)

    def problems(self, events: Collection[Event]) -> list[str]:
        """Return a sentence for each of ``events`` that this torch cannot report."""
        features = [hook.feature for hook in _HOOKS.values() if not set(events).isdisjoint(hook.events)]
        problems = [feature.problem for feature in features if feature.problem is not None]
        return problems + (self.cuda_graphs.problems() if CompileObserver.cuda_graph_event in events else [])

    @property
    def current(self) -> FrameCompile | None:
        """The compile that runs on the calling thread."""
        stack = getattr(self._current, "stack", None)
        return stack[-1] if stack else None

    def _set(self, name: str, hook: _Hook, wanted: bool) -> None:
        patches = self._patches[name]
        if not wanted:
            patches.remove()
        elif not patches.is_installed and hook.feature.problem is None:
            never_compile_own_functions()
            patches.around(*owner_of(hook.need), functools.partial(hook.run, self))

    # -- inside the hooks: the compiling thread -----------------------------------------------------------------

    def notify(
        self, event: Callable[Concatenate[CompileObserver, P], None], *facts: P.args, **named_facts: P.kwargs
    ) -> None:
        """Report an event, except during the replay of a cached call."""
        if replayed_call() is not None:
            return
        for observer, method in self._wanted.get(event, {}).items():
            with contextlib.nullcontext() if self.around is None else self.around(observer):
                method(*facts, **named_facts)

    def is_reported(self, event: Event) -> bool:
        """Return whether an observer wants ``event``."""
        return bool(self._wanted.get(event))

    def enter(self, compiling: FrameCompile) -> None:
        """Begin a compile on this thread; compiles may be nested."""
        self._count += 1
        compiling.number = self._count
        if not hasattr(self._current, "stack"):
            self._current.stack = []
        self._current.stack.append(compiling)

    def leave(self) -> None:
        """End the innermost compile of this thread."""
        self._current.stack.pop()


_Steps = Generator[Given | None, Outcome, None]


def _compile(hooks: CompileHooks, /, *arguments: object, **keywords: Any) -> _Steps:
    if "skip" in keywords:
        # ``skip``: how many frames torch leaves out of the stacks that it logs. Our wrapper adds a frame.
        keywords["skip"] += 1
    given = _parameters_of_compile().bind(*arguments, **keywords).arguments
    compiling = FrameCompile(
        compile_id=str(given["compile_id"]),
        code=given["code"],
        frame=given.get("frame"),
        one_graph=bool(given.get("one_graph")),
        backend=CHOSEN.backend or given.get("compiler_fn"),
    )
    hooks.enter(compiling)
    try:
        hooks.notify(CompileObserver.compile_began, compiling)
        result, problem = yield Given(arguments, keywords)
        code = getattr(getattr(result, "guarded_code", None), "code", None)
        made = CompileResult(code, getattr(result, "skip_reason", None))
        hooks.notify(CompileObserver.compile_ended, compiling, made, problem)
    finally:
        hooks.leave()


@functools.cache
def _parameters_of_compile() -> inspect.Signature:
    return inspect.signature(COMPILES.resolve(_COMPILE))


def _transform(hooks: CompileHooks, /, *_: object, **__: object) -> _Steps:
    problem = (yield None).error
    compiling = hooks.current
    if compiling is not None and isinstance(problem, ATTEMPTS.resolve(_RESTART)):
        compiling.attempt += 1
        reason = getattr(problem, "restart_reason", None) or type(problem).__name__
        hooks.notify(CompileObserver.attempt_restarted, compiling, str(reason))


def _reasons(hooks: CompileHooks, /, cache_entries: object, *arguments: object, **keywords: object) -> _Steps:
    reasons, problem = yield None
    if isinstance(problem, Exception):
        # With ``error_on_recompile``, torch raises instead of returning the reasons: compute them again.
        ask = inspect.unwrap(RECOMPILES.resolve(_REASONS))
        reasons = ask(cache_entries, *arguments[:2], **{**keywords, "skip_logging": True})
    if reasons is not None:
        _report_recompiles(hooks, cache_entries, reasons)


def _report_recompiles(hooks: CompileHooks, cache_entries: object, reasons: Any) -> None:
    compiling = hooks.current
    if compiling is not None:
        hooks.notify(
            CompileObserver.recompiles, compiling, _in_order(cache_entries), [str(reason) for reason in reasons]
        )


def _in_order(cache_entries: object) -> list[object]:
    """Return cache entries as a list; earlier torch versions pass on the first of a chain."""
    if isinstance(cache_entries, list | tuple):
        return list(cache_entries)
    entries: list[object] = []
    while cache_entries is not None:
        entries.append(cache_entries)
        cache_entries = getattr(cache_entries, "next", None)
    return entries


def _reasons_of_stance(
    hooks: CompileHooks, /, cache_entries: object, frame: FrameType, *rest: object, **keywords: object
) -> _Steps:
    reasons, problem = yield None
    if problem is not None or not keywords.get("skip_logging"):
        return
    # ``set_stance("fail_on_recompile")``: torch refuses the compile for this call before it begins.
    entries = _in_order(cache_entries)
    earlier = str(getattr(entries[0], "compile_id", "?")).partition("/")[0]
    backend = rest[0] if rest else keywords.get("backend")
    compiling = FrameCompile(f"{earlier}/{len(entries)}", frame.f_code, frame, one_graph=False, backend=backend)
    hooks.enter(compiling)
    try:
        hooks.notify(CompileObserver.compile_began, compiling)
        _report_recompiles(hooks, entries, reasons)
        refused = RuntimeError("Detected recompile when torch.compile stance is 'fail_on_recompile'.")
        hooks.notify(CompileObserver.compile_ended, compiling, CompileResult(), refused)
    finally:
        hooks.leave()


def _limit(hooks: CompileHooks, /, *_: object, **__: object) -> _Steps:
    answer = (yield None).result
    compiling = hooks.current
    if compiling is not None and answer is not None and answer[0]:
        compiling.limit = str(answer[1])
        hooks.notify(CompileObserver.limit_exceeded, compiling, compiling.limit)


def _log_break(
    hooks: CompileHooks, /, translator: Translator, _options: object, reason: str = "", exc: object = None
) -> _Steps:
    if not was_logged(exc):
        hooks.notify(CompileObserver.graph_broke, TracedFrame(translator), reason, exc)
    yield None


def _exception_handler(hooks: CompileHooks, /, translator: Translator, raised_exception: object) -> _Steps:
    hooks.notify(CompileObserver.exception_met, TracedFrame(translator), raised_exception)
    yield None


_OWN = f"{__name__.partition('.')[0]}."


def _cleanup(hooks: CompileHooks, /, output: object, *_: object, **__: object) -> _Steps:
    # Torch calls this at the end of each trace, in a ``finally``: an exception may be passing through the caller.
    exception, translator = sys.exc_info()[1], getattr(output, "root_tx", None)
    if isinstance(exception, Exception) and translator is not None and _passes(exception, calling_frame()):
        hooks.notify(CompileObserver.trace_failed, TracedFrame(translator), exception)
    yield None


def _passes(exception: BaseException, frame: types.FrameType) -> bool:
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith(_OWN):
        frame = frame.f_back  # the debugger's history, not torch, may call ``cleanup``
    traceback = exception.__traceback__
    while traceback is not None and traceback.tb_frame is not frame:
        traceback = traceback.tb_next
    return traceback is not None


def _backend(hooks: CompileHooks, /, output: Output, module: Any, *_: object, **__: object) -> _Steps:
    hooks.notify(CompileObserver.graph_made, hooks.current, module.graph)
    with hooks.cuda_graphs.compiling(module.graph):
        problem = (yield None).error
    if isinstance(problem, Exception):
        if output.root_tx is not None:
            hooks.notify(CompileObserver.backend_failed, TracedFrame(output.root_tx), module.graph, problem)
    elif problem is None and (buckets := buckets_of(getattr(output, "compiler_fn", None))):
        hooks.notify(CompileObserver.graph_cut, hooks.current, buckets)


def _build_guards(hooks: CompileHooks, /, made_by: object, *_: object, **__: object) -> _Steps:
    built, problem = yield None
    output = getattr(getattr(made_by, "tracer_output", None), "output_graph", None)
    if problem is None and output is not None and hooks.is_reported(CompileObserver.guards_made):
        made = list(built_guards(output, checks_of_manager(getattr(built, "guard_manager", None))))
        code = None if hooks.current is None else hooks.current.code
        symbols, sizes = symbols_of_environment(output.shape_env), merged(InputSizes(output, code).all())
        hooks.notify(CompileObserver.guards_made, hooks.current, made, symbols, sizes)


def _handle_skip(hooks: CompileHooks, /, _: object, result: Any, frame: object) -> _Steps:
    reason = getattr(result, "skip_reason", None)
    if reason is not None and result.guarded_code is None:
        hooks.notify(CompileObserver.frame_skipped, frame, str(reason))
    yield None


def _replacement(hooks: CompileHooks, /, environment: Any, a: object, _tgt: object, msg: str) -> _Steps:
    before = environment.replacements.get(a)
    problem = (yield None).error
    now = environment.replacements.get(a)
    if problem is None and now is not None and now is not before:
        specialization = specialization_of(environment, a, now)
        if specialization is not None:
            hooks.notify(CompileObserver.specialized, specialization, msg)


def _add_guard(hooks: CompileHooks, /, guards: Any, guard: object, *, skip: int = 0, **keywords: object) -> _Steps:
    before = len(guards.inner)
    problem = (yield Given((guards, guard), {**keywords, "skip": skip + 1})).error
    if problem is None and len(guards.inner) != before:
        hooks.notify(CompileObserver.guard_added, requested_guard(guard))


@dataclass(frozen=True)
class _Hook:
    feature: Feature
    need: str
    run: Callable[..., _Steps]
    events: tuple[Event, ...]


_HOOKS = {
    "compile": _Hook(
        COMPILES,
        _COMPILE,
        _compile,
        (
            CompileObserver.compile_began,
            CompileObserver.compile_ended,
        ),
    ),
    "attempts": _Hook(ATTEMPTS, _TRANSFORM, _transform, (CompileObserver.attempt_restarted,)),
    "recompiles": _Hook(RECOMPILES, _REASONS, _reasons, (CompileObserver.recompiles,)),
    "refused recompiles": _Hook(
        REFUSED_RECOMPILES, _REASONS_OF_STANCE, _reasons_of_stance, (CompileObserver.recompiles,)
    ),
    "limit": _Hook(LIMITS, _LIMIT, _limit, (CompileObserver.limit_exceeded,)),
    "breaks": _Hook(BREAKS, _LOG_BREAK, _log_break, (CompileObserver.graph_broke,)),
    "exceptions": _Hook(EXCEPTIONS, _EXCEPTION_HANDLER, _exception_handler, (CompileObserver.exception_met,)),
    "failures": _Hook(FAILURES, _CLEANUP, _cleanup, (CompileObserver.trace_failed,)),
    "graphs": _Hook(
        GRAPHS,
        _BACKEND,
        _backend,
        (
            CompileObserver.graph_made,
            CompileObserver.graph_cut,
            CompileObserver.backend_failed,
            CompileObserver.cuda_graph_event,
        ),
    ),
    "guards": _Hook(GUARDS, _BUILD_GUARDS, _build_guards, (CompileObserver.guards_made,)),
    "skips": _Hook(SKIPS, _HANDLE_SKIP, _handle_skip, (CompileObserver.frame_skipped,)),
    "specializations": _Hook(SPECIALIZATIONS, _REPLACEMENT, _replacement, (CompileObserver.specialized,)),
    "guard requests": _Hook(GUARD_REQUESTS, _ADD_GUARD, _add_guard, (CompileObserver.guard_added,)),
}


HOOKS = CompileHooks()
"""The hooks of this process."""
