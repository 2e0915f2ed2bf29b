"""Continues a held trace with a change (what-if), in isolation from the program's own trace.

The call is replayed up to the user's first change, which is made there. Each later change starts a new replay with all
changes, so a change that Dynamo cannot trace has no effect on the others. A changed trace stops like any other. At its
end the result is discarded, and the held trace continues without stops. Runs on the tracing thread, under Dynamo's
compile lock: there is one such trace at a time.
"""

from __future__ import annotations

import sys
import types
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from dynamo_dap.debuggee.agent.engine import Host, RequestError, WhatIf
from dynamo_dap.debuggee.agent.log import log_exception
from dynamo_dap.debuggee.agent.stepping import Assignment, Changes, Jump, RequestedChange
from dynamo_dap.debuggee.history.changed_traces import (
    NEW_SYMBOL,
    CannotChange,
    SizeChange,
    assign,
    beside_running_trace,
    sizes_changed,
    traced_call,
)
from dynamo_dap.debuggee.history.sizes import sizes_in
from dynamo_dap.debuggee.history.state_logs import StateLogs
from dynamo_dap.debuggee.recording.function_names import name_of_call
from dynamo_dap.debuggee.replay.one_time_code import CannotServe, OneTimeCode, serve_with_graph
from dynamo_dap.debuggee.torch_api.code_objects.generated_code import ONCE
from dynamo_dap.debuggee.torch_api.compiles.compile_hooks import HOOKS, CompileObserver, CompileResult, FrameCompile
from dynamo_dap.debuggee.torch_api.features import FeatureMissing
from dynamo_dap.debuggee.torch_api.objects import Graph
from dynamo_dap.debuggee.torch_api.traced.replays import CachedCall, MadeCode, replaying, run_replay
from dynamo_dap.debuggee.torch_api.traced.traced_frame import TracedFrame, running_frame
from dynamo_dap.debuggee.trace.evaluation import evaluate
from dynamo_dap.debuggee.trace.runs import (
    Decision,
    LineTraces,
    ProgressOfTraces,
    ReplayRun,
    SilentRun,
    TracePoint,
    TraceProgress,
    current_run,
)
from dynamo_dap.debuggee.trace.stepping import Origin
from dynamo_dap.debuggee.values.model import Value
from dynamo_dap.protocol.requests.contract import ErrorId
from dynamo_dap.protocol.texts import named_first_line_of


@dataclass(frozen=True, slots=True)
class Place:
    """The place of a change in a trace, which identifies it in another trace of the same call."""

    attempt: int
    position: int
    code: types.CodeType
    index: int


@dataclass(frozen=True, slots=True)
class _Assigned:
    """An assignment in the function that is ``depth`` callers above the innermost."""

    text: str
    depth: int
    sizes: tuple[SizeChange, ...] = ()
    """The sizes that it changes: these apply from the beginning of the trace, not at the place of the assignment."""


@dataclass(frozen=True, slots=True)
class ChangesAt:
    """All changes at one place: assignments, then a jump."""

    place: Place
    assigned: tuple[_Assigned, ...] = ()
    jump: Jump | None = None
    texts: tuple[str, ...] = ()
    """The changes as readable text."""


class ChangedRun(ReplayRun):
    """One trace with changes. See ``agent.stepping.Changes``."""

    is_changed = True

    def __init__(
        self, host: Host, call: CachedCall, made: Sequence[ChangesAt], held_at: Place, asked: RequestedChange | None
    ) -> None:
        """Make the changes ``made`` in a replay of ``call``, and hold the replay at the last change.

        ``asked`` is the user's request for the last change. It is None if a change was refused: the trace is then made
        only to hold the thread at the same place again.
        """
        super().__init__(call)
        self._host = host
        self.made = made
        self.jumps = any(each.jump is not None for each in made)
        self.traces = ProgressOfTraces()
        self._held_at = held_at
        self._asked = asked
        self.has_reached_place = self._is_over = False
        self.refused: str | None = None
        self.next: tuple[Sequence[ChangesAt], Place, RequestedChange] | None = None
        """The user's next change, requested at a stop of this run. Another run makes it."""
        self._done: set[tuple[int, int]] = set()
        """The attempt and position of each change that was made."""
        self.is_kept = False
        """Whether the program's call runs the changed graph."""
        self.made_code = MadeCode(lambda: self.is_kept)

    @property
    def changes(self) -> Changes:
        """Return this run: it makes the changes itself."""
        return self

    # -- the trace ---------------------------------------------------------------------------------------------

    def is_over(self) -> bool:
        """Return whether a change was refused, or the user has changed something else."""
        return self._is_over

    def next_index(self, frame: TracedFrame, index: int, progress: TraceProgress) -> int:
        """Return the target of the user's jump at this instruction; ``index`` without a jump."""
        if not frame.has_line(index):
            return index
        for each in self.made:
            place, jump = each.place, each.jump
            is_there = place.position == progress.position + 1 and place.index == index and place.code is frame.code
            if jump is not None and is_there and place.attempt <= progress.identity.attempt:
                return jump.index
        return index

    def on_line(self, frame: TracedFrame, progress: TraceProgress, point: Callable[[], TracePoint]) -> Decision:
        """Make the line's changes, and hold the thread at the last one."""
        attempt = progress.identity.attempt
        try:
            for each in self.made:
                self._make(each, frame, progress)
        except CannotChange as problem:
            return self._refuse(str(problem))
        place = self._held_at
        if self.has_reached_place:
            # The analysis restarted before the place was reached again.
            is_before = attempt > place.attempt and progress.position < place.position
            return Decision.CONTINUE if is_before else Decision.ASK
        if attempt > place.attempt or (attempt == place.attempt and progress.position > place.position):
            return self._refuse("the trace could not be repeated up to this place")
        if (attempt, progress.position) != (place.attempt, place.position):
            return Decision.CONTINUE
        self.has_reached_place = True
        return Decision.HOLD

    def _refuse(self, problem: str) -> Decision:
        self.refused, self._is_over = problem, True
        return Decision.CONTINUE

    def _make(self, changes: ChangesAt, frame: TracedFrame, progress: TraceProgress) -> None:
        place, attempt = changes.place, progress.identity.attempt
        key = attempt, progress.position
        if attempt < place.attempt or progress.position != place.position or key in self._done:
            return
        index = place.index if changes.jump is None else changes.jump.index
        if frame.code is not place.code or frame.index != index:
            raise CannotChange("a trace can be changed only where a line begins: step to one, or back to one")
        self._done.add(key)
        chain = frame.with_callers()
        # The instructions that Dynamo traces for the assignment do not belong to the function.
        with self._host.holding(), replaying(SilentRun(self.call)):
            for each in (one for one in changes.assigned if not one.sizes):
                assign(chain[each.depth], each.text)

    def held(self, frame: TracedFrame) -> str:
        """Answer the request for the last change, which has just been made."""
        asked = self._asked
        if asked is None:
            return "changed"
        asked.answer(self._shown(asked.change, frame))
        return "changed" if isinstance(asked.change, Assignment) else "goto"

    def _shown(self, change: Assignment | Jump, frame: TracedFrame) -> Value:
        if not isinstance(change, Assignment) or change.shown is None:
            return Value("")
        depth = self.made[-1].assigned[-1].depth
        try:
            with self._host.holding():
                return evaluate(frame.with_callers()[depth], change.shown, "watch", console=self._host.print)
        except Exception as problem:  # noqa: BLE001  (the assignment is made, even if its value cannot be shown)
            return Value(f"not available: {problem}")

    # -- requests at a stop in it ------------------------------------------------------------------------------

    def change(self, changes: Sequence[ChangesAt], place: Place, asked: RequestedChange) -> None:
        """End this run: another one makes ``changes``."""
        self.next, self._is_over = (changes, place, asked), True

    def look(self) -> None:
        """Note the code of the graph so far."""
        frame, reported = running_frame(sys._getframe()), self._host.what_if
        if frame is not None and reported is not None and self._host.compiles is not None:
            reported.code = self._host.compiles.readable_code(reported.function, frame.graphs()[-1])

    def keep(self) -> None:
        """Make the program's call run the result. Raises ``RequestError`` if that is impossible."""
        if self.call.is_compiled_now and ONCE.problem is not None:
            raise RequestError(ONCE.problem, error_id=ErrorId.CANNOT_CHANGE)
        if any(NEW_SYMBOL in each.text for one in self.made for each in one.assigned):
            text = (
                f"cannot apply the changes: no input size of this call gives the value of the new symbol '{NEW_SYMBOL}'"
            )
            raise RequestError(text, error_id=ErrorId.CANNOT_CHANGE)
        self.is_kept = True
        name = name_of_call(self.call)
        text = f"this call of {name} will run the graph of the changed trace, not its own"
        if not self.call.is_compiled_now:
            text += ", unless more than the graph differs from its cache entry's code"
        self._host.print(f"dynamo-dap: warning: {text}\n", "important")


def _where(frame: TracedFrame) -> str:
    return f"{frame.path}:{frame.line}"


class WhatIfs(CompileObserver):
    """Makes changed traces, and holds them at the user's place. One per engine."""

    feature = "trying changes of a trace"

    def __init__(self, host: Host, lines: LineTraces, logs: StateLogs) -> None:
        """Use ``lines`` to make traces report their lines, and ``logs`` for the history of the changed trace.

        ``host`` is the agent.
        """
        self._host = host
        self._lines = lines
        self._logs = logs
        self._compiling: str | None = None
        """The id of the compile that continues after a changed trace."""
        self._served: OneTimeCode | None = None

    # -- traces ----------------------------------------------------------------------------------------------------

    def follow(self, asked: RequestedChange, origin: object, top: types.FrameType) -> bool:
        """Make the user's change at a stop, and stay in the changed trace until the user leaves it.

        ``origin`` is where a step from the stop begins. Return False if the change was refused: the thread must be held
        at its old place.
        """
        self._host.steps.finish()
        run = current_run()
        changed = run if isinstance(run, ChangedRun) else None
        try:
            changes, place = self._with(() if changed is None else changed.made, asked.change, origin)
            if changed is not None:
                changed.change(changes, place, asked)
                return True
            assert isinstance(origin, Origin), "a stop in a trace has a position"
            call = traced_call(top, origin.identity.compile_id)
        except (CannotChange, FeatureMissing) as problem:
            asked.refuse(str(problem))
            return False
        return self._run(call, changes, place, asked, origin, top)

    def _with(
        self, changes: Sequence[ChangesAt], change: Assignment | Jump, origin: object
    ) -> tuple[Sequence[ChangesAt], Place]:
        """Return the changes up to ``origin`` including ``change``, and the place of ``change``."""
        if not isinstance(origin, Origin) or origin.position < 0:
            raise CannotChange("this trace was not followed from its beginning: set a breakpoint in it, and run again")
        place = Place(origin.identity.attempt, origin.position, origin.frame.code, origin.index)
        earlier = [each for each in changes if each.place.position < place.position]
        here = next((each for each in changes if each.place.position == place.position), ChangesAt(place))
        if isinstance(change, Jump):
            # Assignments before the jump are made after it: nothing runs between the two.
            here = replace(here, jump=change, texts=(*here.texts, f"goto {change.line} at {_where(origin.frame)}"))
        else:
            chain = [origin.frame, *origin.callers]
            depth = next((at for at, each in enumerate(chain) if each == change.frame), None)
            if depth is None:
                raise CannotChange("only functions that Dynamo traces here can be changed")
            here = replace(
                here,
                assigned=(*here.assigned, _Assigned(change.text, depth, sizes_in(change.text, change.frame))),
                texts=(*here.texts, f"{change.text.strip()} at {_where(chain[depth])}"),
            )
        return [*earlier, here], place

    def _run(
        self,
        call: CachedCall,
        changes: Sequence[ChangesAt],
        place: Place,
        asked: RequestedChange | None,
        origin: Origin,
        top: types.FrameType,
    ) -> bool:
        made: Sequence[ChangesAt] = ()
        while True:
            texts = tuple(text for each in changes for text in each.texts)
            branch = ChangedRun(self._host, replace(call, changes=texts), changes, place, asked)
            problem = self._trace(branch, origin.frame, top)
            if not branch.has_reached_place and branch.refused is None and problem is not None:
                branch.refused = problem
            if branch.refused is not None:
                if asked is not None:
                    asked.refuse(branch.refused)
                if not made or asked is None:
                    return False
                changes, asked = made, None
            elif branch.next is not None:
                made, (changes, place, asked) = changes, branch.next
            else:
                current_run().silence(call.compile_id)
                self._end(branch, problem)
                return True

    def _trace(self, branch: ChangedRun, held: TracedFrame, top: types.FrameType) -> str | None:
        """Run a trace with changes to its end; return the reason if it ended early."""
        name = name_of_call(branch.call)
        reported = self._host.what_if = WhatIf(name, branch.call.compile_id, branch.call.changes)

        def take(graph: Graph) -> None:
            if self._host.compiles is not None:
                reported.code = self._host.compiles.readable_code(name, graph)
            frame = running_frame(sys._getframe())
            if not branch.is_kept and frame is not None:
                frame.end_trace()  # nothing will run the graph, so no code is needed

        sizes = [size for one in branch.made for each in one.assigned for size in each.sizes]
        try:
            with (
                self._lines.running(branch),
                self._logs.suspended(),
                beside_running_trace(top, held),
                sizes_changed(sizes),
            ):
                run_replay(branch, take, made_code=branch.made_code)
        except Exception as problem:  # noqa: BLE001  (whatever it is, the program's own trace must continue)
            log_exception("tracing with changes")
            return named_first_line_of(problem)
        return None

    def _end(self, branch: ChangedRun, problem: str | None) -> None:
        """End a trace with changes. The program's graph is known now, or at the end of the compile."""
        reported = self._host.what_if
        assert reported is not None, "``_trace`` has set it"
        reported.is_over, reported.problem = True, problem
        made = branch.made_code
        if not branch.call.is_compiled_now:
            if branch.is_kept:
                self._serve(branch.call, made)
            self._host.what_if_is_over()
            return
        if branch.is_kept and made.code is not None:
            reported.kept = True
            self._served = OneTimeCode(branch.call, made, self._report_not_kept)
        self._compiling = branch.call.compile_id
        HOOKS.want(self, {CompileObserver.compile_ended})

    def compile_ended(self, compiling: FrameCompile, result: CompileResult, problem: BaseException | None) -> None:
        """End the what-if that belongs to this compile."""
        if compiling.compile_id != self._compiling:
            return
        self._compiling = None
        current_run().silence(None)
        HOOKS.want(self, ())
        served, self._served = self._served, None
        if served is not None:
            served.close()
        self._host.what_if_is_over()

    def _serve(self, call: CachedCall, made: MadeCode) -> None:
        try:
            serve_with_graph(call, made)
        except CannotServe as problem:
            self._report_not_kept(str(problem))
        else:
            assert self._host.what_if is not None, "its trace was made"
            self._host.what_if.kept = True

    def _report_not_kept(self, problem: str) -> None:
        if self._host.what_if is not None:
            self._host.what_if.kept = False
        self._host.print(f"dynamo-dap: the changes are not applied: {problem}\n", "important")
