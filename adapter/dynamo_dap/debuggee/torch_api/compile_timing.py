"""Tells when the parts of a compile begin and end: torch's own phases, the functions and lines that Dynamo traces.

Torch times its phases itself (``dynamo_timed``); what it tells its log of them is listened to. Functions, lines and
instructions come from the symbolic interpreter. Listeners are called on the thread that compiles, or that evaluates
guards. Hooks are in only between ``install`` and ``remove``. One ``TimingHooks`` per process.
"""

from __future__ import annotations

import functools
import time
import types
from collections.abc import Callable
from dataclasses import dataclass
from types import CodeType
from typing import Any, Protocol

from dynamo_dap.debuggee.torch_api.features import Feature
from dynamo_dap.debuggee.torch_api.retracing import retraced_call
from dynamo_dap.debuggee.torch_api.tracing_hooks import LINE_HOOKS, LINES

_LOGGER = "torch._dynamo.utils:ChromiumEventLogger"
_BEGIN = "torch._dynamo.utils:ChromiumEventLogger.log_event_start"
_END = "torch._dynamo.utils:ChromiumEventLogger.log_event_end"
_INSTANT = "torch._dynamo.utils:ChromiumEventLogger.log_instant_event"
_BASE = "torch._dynamo.symbolic_convert:InstructionTranslatorBase"
_RUN = "torch._dynamo.symbolic_convert:InstructionTranslatorBase.run"
_STEP = "torch._dynamo.symbolic_convert:InstructionTranslatorBase.step"
_GUARDS_HOOK = "torch._C._dynamo.eval_frame:set_guard_complete_hook"
_OUTPUT = "torch._dynamo.convert_frame:DynamoOutput"
_BUILD_GUARDS = "torch._dynamo.convert_frame:DynamoOutput.build_guards"

PHASES = Feature("the phases of compiles in a profile", _LOGGER, _BEGIN, _END)
CACHES = Feature("hits and misses of caches in a profile", _LOGGER, _INSTANT)
FUNCTIONS = Feature("time by function and line in a profile", _BASE, _RUN, _STEP)
LOOKUPS = Feature("how often guards are evaluated, in a profile", _GUARDS_HOOK)
GUARD_TIMES = Feature("what guards cost, in a profile", _OUTPUT, _BUILD_GUARDS)

_GUARD_EVALUATIONS = 100
_CACHES = {"autograd_cache": "AOTAutograd cache", "fx_graph_cache": "FX graph cache"}
_STATES = ("hit", "miss", "bypass", "disabled")


class TimingListener(Protocol):
    """What is told, in the order in which it happens on a thread."""

    def phase_began(self, name: str) -> None:
        """One of torch's phases begins; ``name`` is that in ``compile_times()``."""

    def phase_ended(self, name: str) -> None:
        """It is over."""

    def function_began(self, code: CodeType, line: int | None, *, is_resumed: bool) -> None:
        """Dynamo begins to trace a function, or resumes a generator."""

    def function_ended(self) -> None:
        """It is traced, or the trace of it is given up."""

    def line_began(self, line: int) -> None:
        """The trace has come to a line of that function."""

    def instruction_began(self) -> None:
        """The trace has come to an instruction."""

    def cache_answered(self, cache: str, state: str, reason: str | None) -> None:
        """A cache of compiled graphs was asked: ``hit``, ``miss``, ``bypass`` or ``disabled``, and why."""

    def guards_evaluated(self, *, is_hit: bool) -> None:
        """A call of a compiled function was looked up in Dynamo's cache."""

    def guards_timed(self, code: CodeType, count: int, measure: Callable[[], float]) -> None:
        """The guards of a compile are built; ``measure`` evaluates them, and returns the microseconds that takes."""


class TimingHooks:
    """Puts the hooks in and takes them out. Any thread; not while something compiles on another one."""

    def __init__(self) -> None:
        self._originals: list[tuple[Any, str, Any]] = []
        self._listener: TimingListener | None = None
        self._earlier_hook: Any = None
        self.on_problem: Callable[[str], None] = lambda doing: None
        """Logs the exception being handled."""

    @property
    def problems(self) -> list[str]:
        """A sentence for each thing that this torch does not tell."""
        features = (PHASES, CACHES, FUNCTIONS, LINES, LOOKUPS, GUARD_TIMES)
        return [feature.problem for feature in features if feature.problem is not None]

    def install(self, listener: TimingListener) -> None:
        """Tell ``listener`` from now on."""
        self._listener = listener
        if PHASES.problem is None:
            logger = PHASES.resolve(_LOGGER)
            self._wrap(logger, "log_event_start", functools.partial(_telling_beginnings, listener))
            self._wrap(logger, "log_event_end", functools.partial(_telling_ends, listener))
        if CACHES.problem is None:
            self._wrap(CACHES.resolve(_LOGGER), "log_instant_event", functools.partial(_telling_caches, listener))
        if FUNCTIONS.problem is None:
            base = FUNCTIONS.resolve(_BASE)
            self._wrap(base, "run", functools.partial(_telling_functions, listener))
            self._wrap(base, "step", functools.partial(_telling_instructions, listener))
            LINE_HOOKS.want(self, functools.partial(_tell_line, listener))
        if GUARD_TIMES.problem is None:
            self._wrap(GUARD_TIMES.resolve(_OUTPUT), "build_guards", functools.partial(_telling_guards, listener))
        if LOOKUPS.problem is None:
            self._earlier_hook = LOOKUPS.resolve(_GUARDS_HOOK)(self._on_lookup)

    def remove(self) -> None:
        """Tell nothing any more. A method that somebody else has wrapped since keeps ours."""
        for owner, name, original in reversed(self._originals):
            if getattr(owner.__dict__[name], "dynamo_dap_original", None) is original:
                setattr(owner, name, original)
        self._originals.clear()
        if self._listener is not None and FUNCTIONS.problem is None:
            LINE_HOOKS.want(self, None)
        if self._listener is not None and LOOKUPS.problem is None:
            LOOKUPS.resolve(_GUARDS_HOOK)(self._earlier_hook)
        self._listener = None

    def _wrap(self, owner: Any, name: str, make: Callable[[Any], Any]) -> None:
        original = owner.__dict__[name]
        wrapper: Any = functools.wraps(original)(make(original))
        wrapper.dynamo_dap_original = original
        self._originals.append((owner, name, original))
        setattr(owner, name, wrapper)

    def _on_lookup(self, is_hit: bool) -> bool:
        if self._listener is not None:
            self._listener.guards_evaluated(is_hit=is_hit)
        # Guard collectives decide whether the cached code may be used.
        return True if self._earlier_hook is None else bool(self._earlier_hook(is_hit))


TIMING = TimingHooks()


@dataclass(frozen=True)
class Costs:
    """Seconds that the hooks and a listener take each time that they are called."""

    phase: float
    """For the beginning and the end of a phase or a function together."""
    line: float
    instruction: float
    lookup: float


def measured_costs(listener: TimingListener, rounds: int) -> Costs:
    """Call the hooks ``rounds`` times around nothing and return what one takes; ``listener`` is thrown away."""
    begin = _telling_beginnings(listener, _nothing)
    end = _telling_ends(listener, _nothing)
    step = _telling_instructions(listener, _nothing)
    stand_in = types.SimpleNamespace(lineno=0, get_event_data=dict)

    def phase() -> None:
        begin(stand_in, "phase", 0, {"fn_name": "phase"})
        end(stand_in, "phase", 0, {}, 0, False)

    def line() -> None:
        stand_in.lineno += 1
        _tell_line(listener, stand_in)

    return Costs(
        phase=_seconds_each(phase, rounds),
        line=_seconds_each(line, rounds),
        instruction=_seconds_each(lambda: step(stand_in), rounds),
        lookup=_seconds_each(lambda: listener.guards_evaluated(is_hit=True), rounds),
    )


def _nothing(*given: Any, **named: Any) -> None:
    pass


def _seconds_each(call: Callable[[], None], rounds: int) -> float:
    began = time.perf_counter()
    for _ in range(rounds):
        call()
    return (time.perf_counter() - began) / rounds


def _name_of_phase(event: str, facts: Any) -> str:
    return str((facts or {}).get("fn_name") or event)


def _told_safely(tell: Callable[..., None], *facts: Any, **named: Any) -> None:
    """Tell something; a failure of ours must not become one of the compile."""
    if retraced_call() is None:
        try:
            tell(*facts, **named)
        except Exception:  # noqa: BLE001  (see above)
            TIMING.on_problem(f"profiling: {getattr(tell, '__name__', tell)}")


def _telling_beginnings(listener: TimingListener, original: Any) -> Any:
    def log_event_start(self: Any, event_name: str, time_ns: int, metadata: Any, *rest: Any, **named: Any) -> Any:
        _told_safely(listener.phase_began, _name_of_phase(event_name, metadata))
        return original(self, event_name, time_ns, metadata, *rest, **named)

    return log_event_start


def _telling_ends(listener: TimingListener, original: Any) -> Any:
    def log_event_end(self: Any, event_name: str, *rest: Any, **named: Any) -> Any:
        data = self.get_event_data().get(event_name) if hasattr(self, "get_event_data") else None
        name = _name_of_phase(event_name, data)
        answer = original(self, event_name, *rest, **named)
        _told_safely(listener.phase_ended, name)
        return answer

    return log_event_end


def _telling_caches(listener: TimingListener, original: Any) -> Any:
    def log_instant_event(
        self: Any, event_name: str, time_ns: int, metadata: Any = None, *rest: Any, **named: Any
    ) -> Any:
        cache, _, state = event_name.rpartition("_")
        if cache in _CACHES and state in _STATES:
            known = metadata if isinstance(metadata, dict) else {}
            reason = known.get("cache_bypass_reason") or known.get("cache_status_detailed")
            _told_safely(listener.cache_answered, _CACHES[cache], state, None if reason is None else str(reason))
        return original(self, event_name, time_ns, metadata, *rest, **named)

    return log_instant_event


def _telling_functions(listener: TimingListener, original: Any) -> Any:
    def run(self: Any) -> Any:
        is_resumed = bool(self.instruction_pointer)
        _told_safely(listener.function_began, self.f_code, self.lineno, is_resumed=is_resumed)
        try:
            return original(self)
        finally:
            _told_safely(listener.function_ended)

    return run


def _telling_instructions(listener: TimingListener, original: Any) -> Any:
    def step(self: Any) -> Any:
        if retraced_call() is None:
            listener.instruction_began()
        return original(self)

    return step


def _tell_line(listener: TimingListener, translator: Any) -> None:
    if retraced_call() is None:
        listener.line_began(translator.lineno)


def _telling_guards(listener: TimingListener, original: Any) -> Any:
    def build_guards(self: Any, code: Any, *rest: Any, **named: Any) -> Any:
        built = original(self, code, *rest, **named)
        output = getattr(getattr(self, "tracer_output", None), "output_graph", None)
        manager = getattr(built, "guard_manager", None)
        root = getattr(manager, "root", None)
        if output is not None and root is not None:
            scope = output.local_scope
            _told_safely(
                listener.guards_timed,
                code,
                len(getattr(manager, "code_parts", None) or ()),
                # Torch's ``profile_guard_manager`` takes 20 ms each time: it empties the processor's caches.
                lambda: _seconds_each(lambda: root.check(scope), _GUARD_EVALUATIONS) * 1e6,
            )
        return built

    return build_guards
