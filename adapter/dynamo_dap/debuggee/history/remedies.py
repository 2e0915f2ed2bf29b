"""Tries fixes for a graph break that depends on data, while the thread is held there: the scope *Fixes*.

The call is traced again in isolation with each fix in place: ``torch._check`` before the line, as if the function
contained it there; the branch not taken, as with ``guard_or_false``; the function's code with ``torch.cond``; or a
setting of torch for this trace only. The trace continues from there to its end or to the next graph break. If another
condition on data causes that break, the check that holds in this call is tried as well. Runs on the held tracing
thread, under Dynamo's compile lock; nothing here outlives the scope.
"""

from __future__ import annotations

import contextlib
import linecache
import re
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import PurePath
from types import CodeType

from dynamo_dap.debuggee.agent.engine import Host
from dynamo_dap.debuggee.agent.log import log_exception
from dynamo_dap.debuggee.bytecode.line_table import LineTableError, line_table
from dynamo_dap.debuggee.history.branches_as_cond import code_with_cond
from dynamo_dap.debuggee.history.changed_traces import (
    CannotChange,
    assign,
    beside_running_trace,
    is_full_graph,
    traced_call,
)
from dynamo_dap.debuggee.history.state_logs import StateLogs
from dynamo_dap.debuggee.torch_api.compiles.graph_breaks import (
    facts_of_break,
    frame_of_break,
    is_control_flow,
    is_graph_break,
)
from dynamo_dap.debuggee.torch_api.features import FeatureMissing
from dynamo_dap.debuggee.torch_api.torch_settings import config_in_thread
from dynamo_dap.debuggee.torch_api.traced.data_dependence import DataDependence, Obstacle, data_dependence_of
from dynamo_dap.debuggee.torch_api.traced.replays import CachedCall, replaying, run_replay
from dynamo_dap.debuggee.torch_api.traced.traced_frame import TracedFrame, running_frame
from dynamo_dap.debuggee.torch_api.traced.trial_traces import (
    TRIALS,
    UNTAKEN,
    branch_not_taken,
    called_with_code,
    reporting_failure,
)
from dynamo_dap.debuggee.trace.evaluation import evaluate_to_python
from dynamo_dap.debuggee.trace.runs import (
    Decision,
    LineTraces,
    ProgressOfTraces,
    SilentRun,
    TracePoint,
    TraceProgress,
)
from dynamo_dap.debuggee.trace.user_frames import user_frame
from dynamo_dap.debuggee.values.model import Deferred, Location, ScopeOfFrame, Value, Variable
from dynamo_dap.protocol.requests.sizes import FIXES_SCOPE

_FURTHER = 4
"""The maximum number of further checks that are tried with a fix."""
_TRY_FIXES = "'Try Fixes for This Line' (fix) runs the program with it"
_BOTH = "both branches are in the graph"
_CAPTURED = "the operation is in the graph"
_SIZE = re.compile(r"(?P<name>[A-Za-z_]\w*) (?:(?:<|>=) 0|(?:==|!=) -1)")
"""A condition that is decided if the number is 0 or more, as each size is."""


@dataclass(frozen=True)
class _Place:
    """An instruction of a function, and the line where its statement begins."""

    code: CodeType
    index: int
    line: int

    @classmethod
    def of(cls, frame: TracedFrame) -> _Place:
        return cls(frame.code, frame.index, _statement_line(frame))

    @property
    def text(self) -> str:
        """Return ``model.py:31``."""
        return f"{PurePath(self.code.co_filename).name}:{self.line}"

    def is_at(self, frame: TracedFrame) -> bool:
        """Return whether a function is at the instruction."""
        return frame.code is self.code and frame.index == self.index


@dataclass(frozen=True)
class _Check:
    """A statement before a line, and the condition that it assumes."""

    place: _Place
    statement: str
    condition: str


@dataclass(frozen=True)
class _Change:
    """A fix other than a check. It helps if the trace gets past a line."""

    effect: str
    around: Callable[[TrialRun], AbstractContextManager[None]]
    """Makes the change for one trace."""
    place: _Place
    kind: str | None = None
    """The kind of graph break that must not happen again on the line; None if no graph break may happen there."""

    def is_passed(self, run: TrialRun, ended: _Ended) -> bool:
        """Return whether the trace got past the line."""
        is_other = self.kind is not None and (ended.condition is not None or ended.text != self.kind)
        return is_other or (self.place.code, self.place.line) not in run.lines


@dataclass(frozen=True)
class _Ended:
    """What ended a trial."""

    place: _Place
    text: str
    condition: str | None = None
    """The condition on data, as the user may write it."""
    opposite: str | None = None
    holds: bool | None = None
    """Whether the condition is true in this call."""
    is_error: bool = False
    """Whether it is an error, not a graph break."""


class TrialRun(SilentRun):
    """A replay with fixes in it, which ends at the first graph break."""

    is_followed = True

    def __init__(self, host: Host, call: CachedCall, checks: Sequence[_Check], untaken: _Check | None = None) -> None:
        """Make ``checks``, and take no branch on data at the instruction of ``untaken``."""
        super().__init__(call)
        self.traces = ProgressOfTraces()
        self._host = host
        self._checks = checks
        self._untaken = untaken
        self.has_guarded = False
        """Whether a condition at ``untaken`` depended on sizes only: ``guard_or_false`` guards on such a condition."""
        self.truths: list[bool | None] = []
        """For each visit of the fix's line: whether the condition of the fix holds in this call."""
        self.is_complete = self._is_over = False
        self.ended: _Ended | None = None
        self.lines: list[tuple[CodeType, int]] = []
        """Where each function was when the trial ended."""
        self.problem: str | None = None

    def guarded(self) -> None:
        """Note a guard at ``untaken``."""
        self.has_guarded = True

    def is_over(self) -> bool:
        """Return whether the trial must end, because a check cannot be made."""
        return self._is_over

    def on_line(self, frame: TracedFrame, progress: TraceProgress, point: Callable[[], TracePoint]) -> Decision:
        """Make the checks of the line."""
        fixes = self._checks if self._untaken is None else [self._untaken, *self._checks]
        here = [each for each in fixes if each.place.code is frame.code and each.place.line == frame.line]
        if not here or not point().begins_line:
            return Decision.CONTINUE
        for each in here:
            if each is fixes[0]:
                self.truths.append(_truth(frame, each.condition, self._host))
            if each is self._untaken:
                continue
            try:
                with self._host.holding(), replaying(SilentRun(self.call)):
                    assign(frame, each.statement)
            except CannotChange as problem:
                self.problem, self._is_over = str(problem), True
                break
        return Decision.CONTINUE

    def failed(self, frame: TracedFrame, exception: Exception) -> None:
        """Note the exception that ended the trace, unless Dynamo restarts the trace."""
        if is_control_flow(exception):
            return
        innermost = frame_of_break(exception) or frame
        self.lines = [(each.code, each.line) for each in innermost.with_callers()]
        place = _Place.of(innermost)
        if not is_graph_break(exception):
            text = f"{type(exception).__name__}: {(str(exception).strip().splitlines() or [''])[0]}"
            self.ended = _Ended(place, text, is_error=True)
            return
        # The user does not edit a library's code.
        innermost = user_frame(innermost) if self._host.options.just_my_code else innermost
        place = _Place.of(innermost)
        found = data_dependence_of(exception, innermost)
        if found is None:
            self.ended = _Ended(place, facts_of_break(exception).kind)
        else:
            condition = None if found.is_number else found.user_condition
            holds = None if condition is None else _truth(innermost, condition, self._host)
            text = found.kind if found.is_number else found.text
            self.ended = _Ended(place, text, condition, found.user_opposite, holds)


class _Trials(Deferred):
    """The rows of the scope. Making them traces the call, once or more for each fix."""

    takes_long = True


class Remedies:
    """Tries the fixes of a stop. One for each engine."""

    def __init__(self, host: Host, lines: LineTraces, logs: StateLogs) -> None:
        """Use ``lines`` to make trials report their lines, and ``logs`` for the history of the held trace."""
        self._host = host
        self._lines = lines
        self._logs = logs

    def scope(self, frame: TracedFrame, obstacle: Obstacle, compile_id: str) -> ScopeOfFrame:
        """Return the scope that tries the fixes when it is opened."""
        return ScopeOfFrame(FIXES_SCOPE, _Trials(lambda: self._rows(frame, obstacle, compile_id)), expensive=True)

    def _rows(self, frame: TracedFrame, obstacle: Obstacle, compile_id: str) -> list[Variable]:
        condition = obstacle.condition
        if condition is not None and condition.user_condition is None:
            text = f"assign the number of {condition.condition} to a variable first, so that a check can name it"
            return [Variable("(none)", Value(text, kind="virtual"))]
        try:
            TRIALS.require()
            call = traced_call(sys._getframe(), compile_id)
        except (CannotChange, FeatureMissing) as problem:
            return [Variable("(none)", Value(f"cannot be tried: {problem}", kind="virtual"))]
        place = _Place.of(frame)
        rows = [
            _row(f"torch._dynamo.config.{name} = True", place, self._try_setting(frame, call, place, name, obstacle))
            for name in obstacle.settings
        ]
        if condition is not None and condition.is_number:
            rows += self._rows_of_number(frame, call, place, condition)
        elif condition is not None:
            rows += self._rows_of_condition(frame, call, place, condition)
        if (condition is not None or obstacle.is_on_tensor) and _is_branch(frame) and not _is_loop(place):
            rows.append(_row("torch.cond", place, self._try_cond(frame, call, place)))
        return rows

    def _rows_of_number(
        self, frame: TracedFrame, call: CachedCall, place: _Place, number: DataDependence
    ) -> list[Variable]:
        """Try a check that the number has its value of this call: no weaker check lets the trace continue."""
        value = _value(frame, str(number.user_condition), self._host)
        if value is None or _is_loop(place, ("while ", "elif ")):
            return [Variable("(none)", Value("no check can come before the line", kind="virtual"))]
        condition = f"{number.user_condition} == {value}"
        check = _Check(place, f"torch._check({condition})", condition)
        return [_row(check.statement, place, self._try(frame, call, [check]))]

    def _rows_of_condition(
        self, frame: TracedFrame, call: CachedCall, place: _Place, condition: DataDependence
    ) -> list[Variable]:
        assert condition.user_condition is not None
        assert condition.user_opposite is not None
        holds = _truth(frame, condition.user_condition, self._host)
        rows = []
        for check in _checks(place, condition.user_condition, condition.user_opposite, holds):
            rows.append(_row(check.statement, place, self._try(frame, call, [check])))
        if _is_branch(frame) and UNTAKEN.problem is None:
            untaken = _Check(place, f"guard_or_false({condition.user_condition})", condition.user_condition)
            guards: list[bool] = []
            found = self._try(frame, call, [], untaken, guards)
            rows.append(_row(untaken.statement, place, found))
            # Both fixes give the same trace, unless a condition on sizes reaches this line.
            not_tried = f"not tried at a stop, since a size also decides the condition: {_TRY_FIXES}"
            known = not_tried if any(guards) else found
            rows.append(_row(f"statically_known_true({condition.user_condition})", place, known))
        return rows

    def _try_cond(self, frame: TracedFrame, call: CachedCall, place: _Place) -> str:
        original = frame.code
        try:
            code = code_with_cond(original, place.line, frame.globals)
        except CannotChange as problem:
            return f"cannot be tried: {problem}"
        changed = replace(call, code=code if original is call.code else call.code, changes=("torch.cond",))
        around = partial(called_with_code, code=original, changed=code)
        return self._try(frame, changed, [], change=_Change(_BOTH, around, replace(place, code=code)))

    def _try_setting(self, frame: TracedFrame, call: CachedCall, place: _Place, name: str, obstacle: Obstacle) -> str:
        changed = replace(call, changes=(name,))
        change = _Change(_CAPTURED, lambda _: config_in_thread(f"_dynamo.{name}", True), place, obstacle.kind)
        return self._try(frame, changed, [], change=change)

    def _try(
        self,
        held: TracedFrame,
        call: CachedCall,
        checks: list[_Check],
        untaken: _Check | None = None,
        guards: list[bool] | None = None,
        change: _Change | None = None,
    ) -> str:
        """Trace the call with a fix, and with further checks that it needs; return the result.

        ``guards`` gets, for each trace, whether ``guard_or_false`` guards on a size.
        """
        own = len(checks)
        guards = [] if guards is None else guards
        while True:
            run = TrialRun(
                self._host,
                replace(call, changes=(*call.changes, *(each.statement for each in checks))),
                checks,
                untaken,
            )
            self._trace(run, held, change)
            guards.append(run.has_guarded)
            effect = change.effect if change is not None else _effect(run.truths, is_branch=untaken is not None)
            needed = [f"{each.statement} at {each.place.text}" for each in checks[own:]]
            besides = f", with {' and '.join(needed)}" if needed else ""
            ended = run.ended
            if run.problem is not None or (ended is None and not run.is_complete):
                return f"cannot be tried: {run.problem or 'the trace ended early'}"
            if ended is None:
                return f"passes{besides}: the trace reaches its end; {effect}"
            if change is not None and not change.is_passed(run, ended):
                return f"does not help: {ended.text}"
            if ended.is_error:
                return f"leads to an error at {ended.place.text}: {ended.text}"
            if ended.condition is None or ended.opposite is None:
                return f"helps{besides}, up to the next graph break at {ended.place.text}: {ended.text}; {effect}"
            if ended.holds is None or len(checks) - own >= _FURTHER:
                return f"helps{besides}, and needs a further check at {ended.place.text}: {ended.text}; {effect}"
            condition = ended.condition if ended.holds else ended.opposite
            check = _Check(ended.place, f"torch._check({condition})", condition)
            if check in checks:
                return f"does not help: Dynamo still has to decide {ended.text}"
            checks = [*checks, check]

    def _trace(self, run: TrialRun, held: TracedFrame, change: _Change | None) -> None:
        def take(_: object) -> None:
            run.is_complete = True
            frame = running_frame(sys._getframe())
            if frame is not None:
                frame.end_trace()

        top = sys._getframe()
        is_full = is_full_graph(top)
        try:
            with (
                self._host.holding(),
                self._lines.running(run),
                self._logs.suspended(),
                beside_running_trace(top, held),
                reporting_failure(run, run.failed),
                _untaken(run),
                _without_deprecation(),
                contextlib.nullcontext() if change is None else change.around(run),
            ):
                run_replay(run, take, one_graph=is_full)
        except Exception as problem:  # noqa: BLE001  (whatever it is, the program's own trace must continue)
            if run.ended is None and run.problem is None:
                log_exception("trying a fix")
                run.problem = f"{type(problem).__name__}: {(str(problem).strip().splitlines() or [''])[0]}"


@contextlib.contextmanager
def _untaken(run: TrialRun) -> Iterator[None]:
    untaken = run._untaken
    with contextlib.nullcontext() if untaken is None else branch_not_taken(run, untaken.place.is_at, run.guarded):
        yield


@contextlib.contextmanager
def _without_deprecation() -> Iterator[None]:
    """Ignore torch's warning that ``_check_is_size`` will be removed: the program does not call it.

    ``warnings.filterwarnings`` would make Python forget which of the program's warnings it has shown.
    """
    warnings.filters.insert(0, _DEPRECATION)  # type: ignore[attr-defined]  # a list at run time
    try:
        yield
    finally:
        with contextlib.suppress(ValueError):
            warnings.filters.remove(_DEPRECATION)  # type: ignore[attr-defined]  # a list at run time


_DEPRECATION = ("ignore", re.compile("_check_is_size will be"), FutureWarning, None, 0)


def _checks(place: _Place, condition: str, opposite: str, holds: bool | None) -> Iterator[_Check]:
    """Yield the checks to try before the line: only those that this call passes, if that is known."""
    if _is_loop(place):
        return
    for one, is_true in ((condition, True), (opposite, False)):
        if holds in (None, is_true):
            yield _Check(place, f"torch._check({one})", one)
    found = _SIZE.fullmatch(condition)
    if found is not None:
        yield _Check(place, f"torch._check_is_size({found['name']})", f"{found['name']} >= 0")


def _is_branch(frame: TracedFrame) -> bool:
    return frame.instructions[frame.index].name.startswith("POP_JUMP")


def _is_loop(place: _Place, words: tuple[str, ...] = ("while ", "for ", "elif ")) -> bool:
    """Return whether no check can come before the statement: it is an ``elif``, or a loop that tests more than once."""
    return linecache.getline(place.code.co_filename, place.line).lstrip().startswith(words)


def _effect(truths: Sequence[bool | None], *, is_branch: bool) -> str:
    """Say what the fix assumes or changes, judged by this call."""
    if is_branch:
        if not truths or None in truths:
            return "compiled code never takes the branch; whether this call does is not known"
        return (
            "compiled code never takes the branch, but this call does: the result may change"
            if any(truths)
            else "compiled code never takes the branch, nor does this call"
        )
    if not truths or None in truths:
        return "an assumption about all data; whether it holds in this call is not known"
    return (
        "an assumption about all data, which holds in this call"
        if all(truths)
        else "an assumption about all data, which does not hold in this call: the program would get an error"
    )


def _truth(frame: TracedFrame, condition: str, host: Host) -> bool | None:
    """Return whether a condition is true in this call; None if its data cannot be computed."""
    value = _value(frame, condition, host)
    return None if value is None else bool(value)


def _value(frame: TracedFrame, expression: str, host: Host) -> object:
    """Return the value of an expression in this call; None if its data cannot be computed."""
    try:
        with host.holding():
            return evaluate_to_python(frame, expression)
    except Exception:  # noqa: BLE001  (running the graph so far may raise anything)
        return None


def _row(name: str, place: _Place, text: str) -> Variable:
    location = Location(place.code.co_filename, place.line)
    return Variable(name, Value(text, kind="virtual", location=location), declaration=location)


def _statement_line(frame: TracedFrame) -> int:
    """Return the line where a function's running statement begins."""
    try:
        starts = line_table(frame.path).statement_starts
    except LineTableError:
        return frame.line
    return max((line for line in starts if line <= frame.line), default=frame.line)
