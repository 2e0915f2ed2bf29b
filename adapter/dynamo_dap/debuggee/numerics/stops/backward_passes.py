"""Stops in the program's backward pass, at a line of a compiled call, when the gradient of the line's result arrives.

For a call that reaches a backward breakpoint, this module keeps the inputs. When the gradients of the call's outputs
arrive, it runs the call's graph again with autograd, and differentiates it. That suffices for conditions on the
gradient. For a stop, it replays the call up to the line and holds the thread there. At that time the program's own
backward pass has usually not entered the call yet: see ``OutputGradients``. Runs on the thread that makes the call,
and on autograd's thread. Hooks are installed only for calls that reach such breakpoints. One ``BackwardPasses`` serves
the process.
"""

from __future__ import annotations

import ast
import itertools
import os
import sys
import threading
import types
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from dynamo_dap.debuggee.agent.breakpoints import LineBreakpoint
from dynamo_dap.debuggee.agent.eager_expressions import evaluate_python, is_true_python
from dynamo_dap.debuggee.agent.engine import Host
from dynamo_dap.debuggee.agent.frames import Frame, Position, caller_frame
from dynamo_dap.debuggee.agent.log import log_exception
from dynamo_dap.debuggee.agent.stepping import RaisedException, Stop
from dynamo_dap.debuggee.agent.user_code import normalized_path
from dynamo_dap.debuggee.generated.call_interfaces import CallFacts
from dynamo_dap.debuggee.numerics.gradients.gradient_run import (
    GRADIENTS,
    GradientRun,
    Gradients,
    KeptInput,
    OutputGradients,
    is_backward_compiled,
)
from dynamo_dap.debuggee.numerics.stops.backward_lines import BackwardLines, BackwardOrigin, Survey, Visit, ends_at
from dynamo_dap.debuggee.recording.function_names import name_of_call
from dynamo_dap.debuggee.torch_api.compiles.backends import draws_its_own_numbers
from dynamo_dap.debuggee.torch_api.graphs.graph_runs import NoRealValue, evaluating_on_real_values, with_earlier_memory
from dynamo_dap.debuggee.torch_api.graphs.real_values import limits_of_real_values
from dynamo_dap.debuggee.torch_api.graphs.saved_graphs import SavedGraphInCall
from dynamo_dap.debuggee.torch_api.graphs.tensor_facts import is_fake_tensor
from dynamo_dap.debuggee.torch_api.isolation import global_state, preserved_global_state
from dynamo_dap.debuggee.torch_api.objects import Node
from dynamo_dap.debuggee.torch_api.traced.replays import REPLAYS, CachedCall, NoFrame, run_replay
from dynamo_dap.debuggee.torch_api.traced.traced_frame import TracedFrame
from dynamo_dap.debuggee.trace.frames import TracedFunction, frames_of
from dynamo_dap.debuggee.trace.runs import Decision, LineTraces, ReplayRun, TracePoint, TraceProgress
from dynamo_dap.debuggee.values.model import ScopeOfFrame, Value, VirtualSource
from dynamo_dap.debuggee.wrapping.weak_collections import WeakSet
from dynamo_dap.protocol.requests.contract import BACKWARD, COMPILE_TIME
from dynamo_dap.protocol.texts import first_line_of, named_first_line_of

GRADIENT = "__grad__"
"""The name of the result's gradient in expressions."""


@dataclass(eq=False)
class KeptCall:
    """A call whose outputs may get gradients. Lives as long as its autograd graph in the program."""

    number: int
    """The call's number, in the order in which calls began."""
    call: CachedCall
    lines: BackwardLines
    inputs: dict[Node, KeptInput]
    """The inputs by placeholder of the graph."""
    states: list[Callable[[], None]]
    """These functions restore the random states and switches with which the call began."""
    output_gradients: weakref.ref[OutputGradients] | None = None
    """Observes the outputs' gradients. The program's autograd graph keeps it alive, and so this call."""
    included: Sequence[frozenset[int]] = ()
    """Like ``OutputGradients.included``."""
    draws: bool = False
    """Whether the call's graph draws random numbers."""
    dropped: str | None = None
    """The reason why the inputs were dropped, if they were."""

    @property
    def bytes(self) -> int:
        """The size of the inputs that only this object keeps alive."""
        return sum(each.bytes for each in self.inputs.values())

    def close(self, reason: str) -> None:
        """Release the inputs."""
        self.inputs = {}
        self.call = replace(self.call, arguments={}, closure=())
        self.states = []
        self.dropped = reason


@dataclass
class _InBackward:
    """The values that a replay shows in the backward pass of a call."""

    kept: KeptCall
    run: GradientRun

    def input_of(self, name: str) -> object:
        """Return the input of a placeholder."""
        for node, given in self.kept.inputs.items():
            if node.name == name:
                return given.now()
        raise NoRealValue(f"the input '{name}' of the graph no longer exists")

    def gradient_of(self, name: str, at: str) -> object:
        """Return the gradient of a node."""
        return self.run.gradient(name, at, limits_of_real_values().bytes)


@dataclass
class _Thread(threading.local):
    """The calls of one thread of the program."""

    begun: dict[int, KeptCall] = field(default_factory=dict)
    """Calls that have begun, by the identity of the frame that runs the generated code."""


class SurveyRun(ReplayRun):
    """A replay that records the lines at which the call's backward pass may stop."""

    is_logged = stops = False

    def __init__(self, call: CachedCall) -> None:
        super().__init__(call)
        self.survey = Survey()

    def on_line(self, frame: TracedFrame, progress: TraceProgress, point: Callable[[], TracePoint]) -> Decision:
        """Record the line."""
        self.survey.on_reached(point())
        return Decision.CONTINUE


class RunToVisit(ReplayRun):
    """A replay of a kept call up to a visit, to inspect its gradient."""

    is_logged = stops = False

    def __init__(self, call: CachedCall, visit: Visit, arrived: Callable[[TracePoint], None]) -> None:
        super().__init__(call)
        self._visit, self._arrived = visit, arrived
        self._is_over = self.is_found = False

    def on_line(self, frame: TracedFrame, progress: TraceProgress, point: Callable[[], TracePoint]) -> Decision:
        """Report the visit, once the replay reaches it."""
        reached = point()
        if not self._is_over and self._visit.position == (progress.identity.attempt, progress.position):
            self._is_over = True
            self.is_found = self._visit.is_at(reached)
            if self.is_found:
                self._arrived(reached)
        return Decision.CONTINUE

    def is_over(self) -> bool:
        """Return whether the replay has reached the visit's position, and can end."""
        return self._is_over


class BackwardPasses:
    """Stops in the backward passes of compiled calls, at breakpoints of mode ``backward``."""

    def __init__(self, host: Host, address_of: Callable[[TracedFrame, int], int], lines: LineTraces) -> None:
        """Report to ``host``, the agent. ``lines`` reports the lines of traces.

        ``address_of`` returns the address of a traced function's instruction.
        """
        self._host = host
        self._lines = lines
        self._address_of = address_of
        self._thread = _Thread()
        self._kept: WeakSet[KeptCall] = WeakSet()
        self._numbers = itertools.count()
        self._reported: set[tuple[str, str]] = set()

    # -- breakpoints: any thread -----------------------------------------------------------------------------------

    def are_wanted(self) -> bool:
        """Return whether a breakpoint of mode ``backward`` is set and can stop."""
        if GRADIENTS.problem is not None or REPLAYS.problem is not None or not self._host.options.compile_time:
            return False
        return bool(self._host.breakpoints.lines_of_mode(BACKWARD))

    def may_stop(self, lines: Mapping[str, frozenset[int]]) -> bool:
        """Return whether a breakpoint of mode ``backward`` is on one of the lines."""
        breakpoints = {
            (normalized_path(each.path), each.line) for each in self._host.breakpoints.lines_of_mode(BACKWARD)
        }
        return any((normalized_path(path), line) in breakpoints for path, here in lines.items() for line in here)

    def release(self) -> None:
        """Release the inputs of all calls."""
        for kept in list(self._kept):
            output_gradients = kept.output_gradients() if kept.output_gradients is not None else None
            if output_gradients is not None:
                output_gradients.close()
            kept.close("no breakpoint of mode backward is left")
        self._kept.clear()

    # -- calls: the thread that makes them -------------------------------------------------------------------------

    def begins(self, call: CachedCall, known: CallFacts | None) -> CallFacts | None:
        """Keep the inputs of a call if its backward pass may stop."""
        try:
            with self._host.holding():
                lines = known if isinstance(known, BackwardLines) else self.survey(call)
                if self.may_stop(lines.lines):
                    self._thread.begun[id(call.frame)] = self.keep(call, lines, global_state())
                return lines
        except Exception as problem:  # noqa: BLE001  (whatever it is, the call itself must run)
            self._report_failure(call, problem)
            return None

    def survey(self, call: CachedCall) -> BackwardLines:
        """Replay ``call``, and return the lines that each call of its cache entry reaches."""
        run = SurveyRun(call)
        with self._lines.running(run):
            run_replay(run, run.survey.finish)
        lines = run.survey.result()
        if lines.graph.nodes:
            # Run the graph: only then is it known to which memory of the program the call writes.
            SavedGraphInCall(lines.graph, call).value_of(lines.graph.nodes[-1], len(lines.graph.nodes))
        return lines

    def keep(self, call: CachedCall, lines: BackwardLines, states: list[Callable[[], None]]) -> KeptCall:
        """Return ``call`` with its inputs kept; ``states`` restore its random states and switches."""
        found = SavedGraphInCall(lines.graph, call)
        given = {node: found.input_of(node) for node in lines.graph.nodes if node.op == "placeholder"}
        inputs = {
            node: KeptInput.of(
                node.name, with_earlier_memory(value, call.memory), is_written=node in lines.graph.written
            )
            for node, value in given.items()
        }
        return KeptCall(next(self._numbers), self.as_ended(call), lines, inputs, states)

    def as_ended(self, call: CachedCall) -> CachedCall:
        """Return ``call`` without its frame, so that it can be kept."""
        return replace(call, frame=NoFrame(call.frame.f_globals, call.frame.f_builtins))

    def computed(self, frame: types.FrameType, outputs: object) -> None:
        """Wait for the gradients of the compiled graph's ``outputs``."""
        kept = self._thread.begun.pop(id(frame), None)
        if kept is None or not isinstance(outputs, list | tuple):
            return
        if is_backward_compiled():
            self._report_failure(kept.call, NoRealValue("backward passes are compiled (compiled autograd)"))
            return
        given = list(kept.call.arguments.values())
        output_gradients = OutputGradients(outputs, given, lambda gradients: self._on_gradients(kept, gradients))
        if not output_gradients.are_expected:
            return
        kept.output_gradients, kept.included = weakref.ref(output_gradients), output_gradients.included
        self._kept.add(kept)
        self._keep_within_limit()

    def ended(self, frame: types.FrameType) -> None:
        """Forget a call that has ended, in case its graph has not returned."""
        self._thread.begun.pop(id(frame), None)

    def _keep_within_limit(self) -> None:
        limit = limits_of_real_values().bytes
        calls = sorted((each for each in self._kept if each.inputs), key=lambda each: each.number)
        while calls and sum(each.bytes for each in calls) > limit:
            calls.pop(0).close(
                f"keeping the inputs of calls takes more than {limit / 2**20:.0f} MiB (realValues.memoryLimit)"
            )

    # -- the backward pass: autograd's thread --------------------------------------------------------------------------

    def _on_gradients(self, kept: KeptCall, gradients: Gradients) -> None:
        """Stop at lines of a call whose gradients have arrived. Raise nothing: the program would get the exception."""
        try:
            arrived = any(each is not None for each in gradients)
            if not arrived or self._host.is_holding or not self.are_wanted() or any(map(is_fake_tensor, gradients)):
                return
            self._stop_with_gradients(kept, gradients)
        except Exception as problem:  # noqa: BLE001  (autograd would raise it in the program)
            self._report_failure(kept.call, problem)

    def _stop_with_gradients(self, kept: KeptCall, gradients: Gradients) -> None:
        if kept.dropped is not None:
            raise NoRealValue(kept.dropped)
        if not self._may_stop_in(kept):
            return
        with self._host.holding():
            run = GradientRun(kept.lines.graph, kept.inputs, kept.states, gradients, kept.included)
            kept.draws = run.draws
        self._stop_in(kept, run)

    def _may_stop_in(self, kept: KeptCall) -> bool:
        step = self._host.steps.current()
        return isinstance(step and step.origin, BackwardOrigin) or bool(self._breakpoints_in(kept.lines))

    def _stop_in(self, kept: KeptCall, run: GradientRun) -> None:
        """Stop at each visit with a breakpoint or step."""
        self.stop_at_visits(kept, run, None)

    def stop_at_visits(self, kept: KeptCall, run: GradientRun, after: Visit | None) -> None:
        """Stop at each visit with a breakpoint or step. With ``after``, only at visits that the pass reaches later."""
        visits = kept.lines.visits[::-1]
        left = visits if after is None else visits[visits.index(after) + 1 :]
        breakpoints = self._breakpoints_in(kept.lines)
        with self._host.holding():
            run.compute(
                [name for visit in left if visit.place in breakpoints and (name := result_of(kept.lines, visit, run))]
            )
        reported = {visit.place: _why_without(visit) for visit in visits if visit.place in breakpoints}
        for visit in left:
            here = breakpoints.get(visit.place, [])
            if (here or self._host.steps.current() is not None) and (
                result := result_of(kept.lines, visit, run)
            ) is not None:
                has_gradient = self._reach(_ReachedLine(kept, run, visit, result), here)
                if has_gradient:
                    reported.pop(visit.place, None)
                elif visit.place in reported:
                    reported[visit.place] = "the differentiated outputs do not depend on it"
        if after is None:
            for (path, line), reason in reported.items():
                self._report_no_gradient(kept, f"{os.path.basename(path)}:{line}", reason)

    def _report_no_gradient(self, kept: KeptCall, place: str, reason: str) -> None:
        """Report a breakpoint whose line got no gradient in the backward pass."""
        if (place, reason) not in self._reported:
            self._reported.add((place, reason))
            name = f"{name_of_call(kept.call)} [{kept.call.compile_id}]"
            text = f"dynamo-dap: the backward pass of {name} is over, and {place} has no gradient: {reason}\n"
            self._host.print(text, "important")

    def _breakpoints_in(self, lines: BackwardLines) -> Mapping[tuple[str, int], list[LineBreakpoint]]:
        """Return the breakpoints for lines of a call, by file and line."""
        version = self._host.breakpoints.version
        if lines.breakpoints_at != version:
            found = {visit.place: self._breakpoints_on(*visit.place) for visit in lines.visits}
            lines.breakpoints = {place: here for place, here in found.items() if here}
            lines.breakpoints_at = version
        return lines.breakpoints

    def _breakpoints_on(self, path: str, line: int) -> list[LineBreakpoint]:
        here = (self._host.breakpoints.lines_in(path) or {}).get(line, ())
        return [each for each in here if each.mode == BACKWARD]

    def _reach(self, reached: _ReachedLine, breakpoints: list[LineBreakpoint]) -> bool:
        """Stop at a visit for a breakpoint or step; return whether the visit has a gradient."""
        step = self._host.steps.current()
        is_stepped_to = step is not None and ends_at(step, reached.kept, reached.visit)
        if not breakpoints and not is_stepped_to:
            return True
        with self._host.holding():
            gradient = _gradient_of(reached)
        if gradient is None:
            return False
        if all(map(_asks_for_gradient_alone, breakpoints)):
            hit = self._host.should_stop(breakpoints, lambda: _GradientFrame(reached, gradient, self._host.print))
            if hit or is_stepped_to:
                self.at_line(
                    reached.kept, reached.run, reached.visit, lambda point: self._hold(point, reached, gradient, hit)
                )
        else:
            self.at_line(
                reached.kept,
                reached.run,
                reached.visit,
                lambda point: self._decide(point, reached, gradient, breakpoints),
            )
        return True

    def _decide(
        self, point: TracePoint, reached: _ReachedLine, gradient: object, breakpoints: list[LineBreakpoint]
    ) -> None:
        frame, names = point.frame, {GRADIENT: gradient}
        address = self._address_of(frame, point.index)
        hit = self._host.should_stop(breakpoints, lambda: TracedFunction(frame, address, dict(names), self._host))
        step = self._host.steps.current()
        if hit or (step is not None and ends_at(step, reached.kept, reached.visit)):
            self._hold(point, reached, gradient, hit)

    def at_line(self, kept: KeptCall, run: GradientRun, visit: Visit, arrived: Callable[[TracePoint], None]) -> None:
        """Replay the call up to the visit, and call ``arrived`` there.

        Raises:
            NoRealValue: the replay does not reach the visit.
        """
        replay = RunToVisit(self._in_backward(kept, run), visit, arrived)
        self._trace(kept, replay)
        if not replay.is_found:
            raise NoRealValue(f"the call's inputs have changed since: its replay does not reach line {visit.line}")

    def _in_backward(self, kept: KeptCall, run: GradientRun) -> CachedCall:
        """Return the call for a replay that shows the values of its backward pass."""
        frame = NoFrame(kept.call.frame.f_globals, kept.call.frame.f_builtins, caller_frame())
        return replace(kept.call, frame=frame, in_backward=_InBackward(kept, run))

    def _trace(self, kept: KeptCall, replay: ReplayRun) -> None:
        with self._lines.running(replay), preserved_global_state():
            for restore in kept.states:
                restore()
            run_replay(replay)

    def _hold(self, point: TracePoint, reached: _ReachedLine, gradient: object, hit: Sequence[int]) -> None:
        self.hold(point, reached.kept, reached.visit, {GRADIENT: gradient}, hit=hit)

    def hold(
        self,
        point: TracePoint,
        kept: KeptCall,
        visit: Visit,
        names: Mapping[str, object],
        *,
        hit: Sequence[int] = (),
        raised: RaisedException | None = None,
    ) -> None:
        """Hold the thread at a visit; expressions can use ``names``."""
        top, frame = caller_frame(), point.frame
        reason = "exception" if raised is not None else "breakpoint" if hit else "step"
        name = name_of_call(kept.call)
        described = f"Backward pass of {name} [{kept.call.compile_id}]"
        text = f"Paused on {reason}: {_headline(kept, visit)}"
        if kept.draws and draws_its_own_numbers(kept.call.backend):
            text += ". Random operations are not those of the call: Inductor draws its own numbers"
        self._host.hold(
            Stop(
                engine=COMPILE_TIME,
                reason=reason,
                frames=lambda: frames_of(frame.running(top), top, self._address_of, self._host, names),
                description=described if raised is None else raised.headline,
                text=text if raised is None else raised.text,
                hit_breakpoint_ids=list(hit),
                exception=raised,
                origin=BackwardOrigin(kept, visit.depth),
                no_history=_NO_HISTORY,
            )
        )

    def _report_failure(self, call: CachedCall, problem: Exception) -> None:
        name, reason = name_of_call(call), first_line_of(problem)
        if not isinstance(problem, NoRealValue):
            log_exception("inspecting a backward pass")
            reason = named_first_line_of(problem)
        if (name, reason) not in self._reported:
            self._reported.add((name, reason))
            text = f"dynamo-dap: nothing stops in the backward pass of {name} [{call.compile_id}]: {reason}\n"
            self._host.print(text, "important")


@dataclass(frozen=True, eq=False)
class _ReachedLine:
    """A visit that a backward pass has reached."""

    kept: KeptCall
    run: GradientRun
    visit: Visit
    result: str
    """The name of the node with the line's result."""


def _headline(kept: KeptCall, visit: Visit) -> str:
    """Return the text for the user about the visit that a backward pass has reached."""
    call = kept.call
    name = name_of_call(call)
    which = f"a call of {name}" if call.number is None else f"call {call.number or 1} of {name}"
    return f"the gradient of line {visit.line} has arrived, in the backward pass of {which} [{call.compile_id}]"


_NO_HISTORY = (
    "a backward pass has no history: set a breakpoint of mode 'backward' on the line, which stops in the next "
    "backward pass of the call"
)


def result_of(lines: BackwardLines, visit: Visit, run: GradientRun) -> str | None:
    """Return the name of the last node with a gradient in a visit, or None."""
    if visit.is_in_body:
        here = sorted((each for each in lines.visits if each.place == visit.place), key=lambda each: each.position)
        results = list(run.results_in_bodies.get(visit.place, {}).values())
        # A loop in a body runs the line more than once.
        return results[here.index(visit)] if len(results) == len(here) else None
    return next((name for name in reversed(visit.nodes) if name in run.names), None)


def _gradient_of(reached: _ReachedLine) -> object:
    """Return the gradient of a line's result, or of the memory that it writes to."""
    nodes, limit = reached.visit.nodes, limits_of_real_values().bytes
    at = nodes[-1] if nodes else ""
    found = reached.run.gradient(reached.result, at, limit)
    for name in reached.run.written_by(nodes) if found is None else ():
        if (found := reached.run.gradient(name, at, limit)) is not None:
            return found
    return found


def _why_without(visit: Visit) -> str:
    """Return why a visit without a known gradient has none."""
    if visit.is_in_body:
        return "it is in the body of an operator, and its own gradient is not known"
    return "its result needs no gradient"


def _asks_for_gradient_alone(breakpoint: LineBreakpoint) -> bool:
    """Return whether a breakpoint's condition and log message use the gradient, but no variable of the line."""
    conditions = breakpoint.conditions
    parts = conditions.log_message.parts if conditions.log_message is not None else ()
    texts = [text for text, is_expression in parts if is_expression]
    if conditions.condition is not None:
        texts.append(conditions.condition)
    return all(_names_in(text) <= {GRADIENT, "torch"} for text in texts)


def _names_in(expression: str) -> set[str]:
    try:
        tree = ast.parse(expression.strip(), mode="eval")
    except SyntaxError:
        return {""}
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    return names - _BUILTINS


_BUILTINS = {each.__name__ for each in (abs, all, any, bool, float, int, len, max, min, round, sum)}


class _GradientFrame(Frame):
    """Evaluates conditions and log messages that use only the gradient, so that no replay is needed."""

    def __init__(self, reached: _ReachedLine, gradient: object, console: Callable[[str], None]) -> None:
        self._visit = reached.visit
        self._names = {"torch": sys.modules["torch"], GRADIENT: gradient}
        self._console = console

    @property
    def name(self) -> str:
        """The name of the visit's function."""
        return self._visit.function

    @property
    def source(self) -> str | VirtualSource | None:
        """The user's file."""
        return self._visit.path

    @property
    def position(self) -> Position:
        """The line."""
        return Position(self._visit.line)

    def scopes(self) -> Sequence[ScopeOfFrame]:
        """Return no scopes: the user never sees this frame."""
        return ()

    def evaluate(self, expression: str, context: str) -> Value:
        """Evaluate an expression over the gradient and torch."""
        with evaluating_on_real_values():
            return evaluate_python(expression, context, self._names, {}, self._console)

    def is_true(self, expression: str) -> bool:
        """Evaluate a condition."""
        with evaluating_on_real_values():
            return is_true_python(expression, self._names, {})
