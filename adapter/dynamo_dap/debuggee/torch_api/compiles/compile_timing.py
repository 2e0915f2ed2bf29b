"""Reports when the parts of a compile begin and end: torch's phases, and functions and lines that Dynamo traces.

Torch times its phases itself (``dynamo_timed``); this reads torch's log of them. Functions, lines and instructions come
from the symbolic interpreter. Listeners are called on the thread that compiles, or that evaluates guards. Hooks are
installed only between ``install`` and ``remove``. One ``TimingHooks`` per process.
"""

from __future__ import annotations

import functools
import time
import types
from collections.abc import Callable, Generator
from dataclasses import dataclass
from types import CodeType
from typing import Any, Protocol

from dynamo_dap.debuggee.torch_api.cache.guard_checks import checks_of_manager
from dynamo_dap.debuggee.torch_api.features import Feature
from dynamo_dap.debuggee.torch_api.objects import Translator
from dynamo_dap.debuggee.torch_api.traced.replays import replayed_call
from dynamo_dap.debuggee.torch_api.traced.tracing_hooks import LINES, add_line_hook
from dynamo_dap.debuggee.wrapping.patches import Outcome, Patches

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


class PhaseListener(Protocol):
    """Observes the phases of a thread, in their order."""

    def phase_began(self, name: str) -> None:
        """Observe the beginning of a phase of torch; ``name`` is that in ``compile_times()``."""

    def phase_ended(self, name: str) -> None:
        """Observe the end of a phase."""


class TimingListener(PhaseListener, Protocol):
    """Observes all events of a thread, in their order."""

    def function_began(self, code: CodeType, line: int | None, *, is_resumed: bool) -> None:
        """Observe that Dynamo begins to trace a function, or resumes a generator."""

    def function_ended(self) -> None:
        """Observe that a function has been traced, or that its trace was abandoned."""

    def line_began(self, line: int) -> None:
        """Observe the line of that function that the trace has reached."""

    def instruction_began(self) -> None:
        """Observe that the trace has reached an instruction."""

    def cache_answered(self, cache: str, state: str, reason: str | None) -> None:
        """Observe a lookup in a cache of compiled graphs: ``hit``, ``miss``, ``bypass`` or ``disabled``, and why."""

    def guards_evaluated(self, *, is_hit: bool) -> None:
        """Observe the lookup of a call in Dynamo's cache."""

    def guards_timed(self, code: CodeType, count: int, measure: Callable[[], float]) -> None:
        """Observe a compile's new guards; ``measure`` evaluates them, and returns the duration in microseconds."""


def watch_phases(patches: Patches, listener: PhaseListener) -> None:
    """Report torch's phases to ``listener`` while ``patches`` are installed."""
    if PHASES.problem is None:
        logger = PHASES.resolve(_LOGGER)
        patches.before(logger, "log_event_start", functools.partial(_phase_begins, listener))
        patches.around(logger, "log_event_end", functools.partial(_phase_ends, listener))


class TimingHooks:
    """Installs and removes the hooks. Runs on any thread; not while another one compiles."""

    def __init__(self) -> None:
        self._patches = Patches("the profile", self.remove)
        self._listener: TimingListener | None = None
        self._earlier_hook: Any = None

    @property
    def problems(self) -> list[str]:
        """A sentence for each event that this torch does not report."""
        features = (PHASES, CACHES, FUNCTIONS, LINES, LOOKUPS, GUARD_TIMES)
        return [feature.problem for feature in features if feature.problem is not None]

    def install(self, listener: TimingListener) -> None:
        """Report to ``listener`` from now on."""
        self._listener = listener
        patches = self._patches
        watch_phases(patches, listener)
        if CACHES.problem is None:
            patches.before(CACHES.resolve(_LOGGER), "log_instant_event", functools.partial(_cache_answers, listener))
        if FUNCTIONS.problem is None:
            base = FUNCTIONS.resolve(_BASE)
            patches.around(base, "run", functools.partial(_function_runs, listener))
            patches.before(base, "step", functools.partial(_instruction_begins, listener))
            add_line_hook(patches, functools.partial(_line_begins, listener))
        if GUARD_TIMES.problem is None:
            patches.after(GUARD_TIMES.resolve(_OUTPUT), "build_guards", functools.partial(_guards_are_built, listener))
        if LOOKUPS.problem is None:
            self._earlier_hook = LOOKUPS.resolve(_GUARDS_HOOK)(self._on_lookup)

    def remove(self) -> None:
        """Stop reporting."""
        self._patches.remove()
        if self._listener is not None and LOOKUPS.problem is None:
            LOOKUPS.resolve(_GUARDS_HOOK)(self._earlier_hook)
        self._listener = None

    def _on_lookup(self, is_hit: bool) -> bool:
        self._patches.guarded(self._report_lookup, None)(is_hit)
        # Guard collectives decide whether the cached code may be used.
        return True if self._earlier_hook is None else bool(self._earlier_hook(is_hit))

    def _report_lookup(self, is_hit: bool) -> None:
        if self._listener is not None:
            self._listener.guards_evaluated(is_hit=is_hit)


TIMING = TimingHooks()


@dataclass(frozen=True)
class Costs:
    """Seconds per call of the hooks and a listener."""

    phase: float
    """For both the beginning and the end of a phase or a function."""
    line: float
    instruction: float
    lookup: float


def measured_costs(listener: TimingListener, rounds: int) -> Costs:
    """Call the hooks ``rounds`` times around an empty function; return the time of one call.

    ``listener`` gets these events, so it cannot be used for a profile afterwards.
    """
    logger, steps = types.SimpleNamespace(begin=_nothing, end=_nothing), types.SimpleNamespace(step=_nothing)
    patches = Patches("measuring the profile")
    patches.before(logger, "begin", functools.partial(_phase_begins, listener))
    patches.around(logger, "end", functools.partial(_phase_ends, listener))
    patches.before(steps, "step", functools.partial(_instruction_begins, listener))
    substitute = types.SimpleNamespace(lineno=0, get_event_data=dict)

    def phase() -> None:
        logger.begin(substitute, "phase", 0, {"fn_name": "phase"})
        logger.end(substitute, "phase", 0, {}, 0, False)

    def line() -> None:
        substitute.lineno += 1
        _line_begins(listener, substitute)

    costs = Costs(
        phase=_seconds_each(phase, rounds),
        line=_seconds_each(line, rounds),
        instruction=_seconds_each(lambda: steps.step(substitute), rounds),
        lookup=_seconds_each(lambda: listener.guards_evaluated(is_hit=True), rounds),
    )
    patches.remove()
    return costs


def _nothing(*given: object, **named: object) -> None:
    pass


def _seconds_each(call: Callable[[], None], rounds: int) -> float:
    began = time.perf_counter()
    for _ in range(rounds):
        call()
    return (time.perf_counter() - began) / rounds


def _name_of_phase(event: str, facts: Any) -> str:
    return str((facts or {}).get("fn_name") or event)


def _phase_begins(
    listener: PhaseListener, _: object, name: str, _time: int, facts: object, *__: object, **___: object
) -> None:
    if replayed_call() is None:
        listener.phase_began(_name_of_phase(name, facts))


def _phase_ends(
    listener: PhaseListener, logger: object, name: str, *_: object, **__: object
) -> Generator[None, Outcome, None]:
    facts = logger.get_event_data().get(name) if hasattr(logger, "get_event_data") else None
    if (yield None).error is None and replayed_call() is None:
        listener.phase_ended(_name_of_phase(name, facts))


def _cache_answers(
    listener: TimingListener, _: object, name: str, _time: int, facts: object = None, *__: object, **___: object
) -> None:
    cache, _, state = name.rpartition("_")
    if cache in _CACHES and state in _STATES and replayed_call() is None:
        known = facts if isinstance(facts, dict) else {}
        reason = known.get("cache_bypass_reason") or known.get("cache_status_detailed")
        listener.cache_answered(_CACHES[cache], state, None if reason is None else str(reason))


def _function_runs(listener: TimingListener, translator: Translator) -> Generator[None, Outcome, None]:
    is_resumed = bool(translator.instruction_pointer)
    if replayed_call() is None:
        listener.function_began(translator.f_code, translator.lineno, is_resumed=is_resumed)
    yield None
    if replayed_call() is None:
        listener.function_ended()


def _instruction_begins(listener: TimingListener, _: object) -> None:
    if replayed_call() is None:
        listener.instruction_began()


def _line_begins(listener: TimingListener, translator: Translator) -> None:
    if replayed_call() is None:
        listener.line_began(translator.lineno)


def _guards_are_built(
    listener: TimingListener, built: object, made_by: object, code: CodeType, *_: object, **__: object
) -> None:
    output = getattr(getattr(made_by, "tracer_output", None), "output_graph", None)
    manager = getattr(built, "guard_manager", None)
    root = getattr(manager, "root", None)
    if output is not None and root is not None and replayed_call() is None:
        scope = output.local_scope
        # Torch's ``profile_guard_manager`` takes 20 ms each time: it empties the processor's caches.
        listener.guards_timed(
            code,
            len(checks_of_manager(manager)),
            lambda: _seconds_each(lambda: root.check(scope), _GUARD_EVALUATIONS) * 1e6,
        )
