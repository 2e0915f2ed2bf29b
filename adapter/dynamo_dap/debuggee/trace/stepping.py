"""Decides where a step ends while Dynamo traces.

Runs on the tracing thread only, under Dynamo's compile lock. In short:

- over: the next line of the same function; after its return, the caller; after the trace, the next trace (Dynamo traces
  frame by frame: a resume function, another compiled function).
- in: as over, and also the first line of each called user function.
- out: the caller, just after the call; past the outermost frame, the next trace that does not continue the same
  function.

With granularity ``statement``, DAP's default, steps do not stop at continuation lines of a statement.

If the analysis restarts during a step, the step ends where it began, in the new attempt, and the stop says so.
"""

from __future__ import annotations

import types
from dataclasses import dataclass, field
from enum import Enum

from dynamo_dap.debuggee.agent.stepping import Step, StepKind
from dynamo_dap.debuggee.torch_api.code_objects.dynamo_names import resume_function
from dynamo_dap.debuggee.torch_api.traced.replays import CachedCall
from dynamo_dap.debuggee.torch_api.traced.traced_frame import TracedFrame
from dynamo_dap.debuggee.torch_api.traced.translator import CompileIdentity
from dynamo_dap.debuggee.trace.runs import TracePoint, current_run
from dynamo_dap.protocol.requests.contract import RUN_TIME


@dataclass(frozen=True, slots=True)
class Origin:
    """The origin of a step."""

    frame: TracedFrame
    index: int
    """Index of the next instruction."""
    line: int
    callers: tuple[TracedFrame, ...]
    """The functions that it was inlined into, innermost first."""
    identity: CompileIdentity
    position: int
    """The origin's ``TraceProgress.position``, -1 if unknown."""
    call: CachedCall | None = field(default_factory=lambda: current_run().call)
    """The cached call in whose trace the step began; None in the program's own trace."""

    def continues_in(self, code: types.CodeType | None, *, is_out: bool) -> bool:
        """Return whether the step ends in ordinary Python that continues the compiled function ``code``."""
        return self.frame.compiled_code is code and (bool(self.callers) or not is_out)


def origin_of(point: TracePoint, top: types.FrameType) -> Origin:
    """Return the origin of a step from ``point``."""
    progress = point.progress
    return Origin(
        point.frame,
        point.index,
        point.line,
        tuple(point.frame.running(top)[1:]),
        progress.identity,
        progress.position if progress.began_at_start else -1,
    )


class Outcome(Enum):
    """The decision on a step at a point."""

    CONTINUE = "continue"
    STOP = "stop"
    STOP_AFTER_RESTART = "stop where the step began, in a new attempt"


def passes_within_line(step: Step, frame: TracedFrame) -> bool:
    """Return whether ``step`` ends at no instruction inside a line of ``frame``: cheaper than ``outcome``."""
    origin = step.origin
    if not isinstance(origin, Origin):
        return True
    if step.granularity == "instruction" or frame.attempt is not origin.frame.attempt:
        return False
    return frame not in origin.callers


def outcome(step: Step, point: TracePoint) -> Outcome:
    """Decide whether ``step`` ends at ``point``."""
    origin = step.origin
    if not isinstance(origin, Origin):
        return _outcome_of_foreign_step(step, point)
    if _is_restarted(origin, point):
        return Outcome.STOP_AFTER_RESTART if _is_at_origin(origin, point) else Outcome.CONTINUE
    if not point.is_user_code:
        return Outcome.CONTINUE
    return Outcome.STOP if _ends(step, origin, point) else Outcome.CONTINUE


def ends_at(step: Step, point: TracePoint) -> bool:
    """Return whether ``step`` ends at ``point``."""
    return outcome(step, point) is not Outcome.CONTINUE


def _outcome_of_foreign_step(step: Step, point: TracePoint) -> Outcome:
    """Decide on a step that began outside any trace.

    From ordinary Python any step ends in the next trace, since the agent cannot step there; from generated code only
    stepping in does.
    """
    enters = step.engine != RUN_TIME or step.kind is StepKind.IN
    return Outcome.STOP if enters and point.is_user_code and point.begins_line else Outcome.CONTINUE


def _is_restarted(origin: Origin, point: TracePoint) -> bool:
    identity = point.progress.identity
    if origin.call is not current_run().call:
        return False
    return identity.compile_id == origin.identity.compile_id and identity.attempt > origin.identity.attempt


def _is_at_origin(origin: Origin, point: TracePoint) -> bool:
    if point.index != origin.index or point.frame.code is not origin.frame.code:
        return False
    return point.progress.position >= origin.position


def _ends(step: Step, origin: Origin, point: TracePoint) -> bool:
    if point.frame.attempt is not origin.frame.attempt or origin.call is not current_run().call:
        return _ends_in_other_trace(step, origin, point)
    if point.frame == origin.frame:
        return step.kind is not StepKind.OUT and _ends_in_same_frame(step, origin, point)
    if point.frame in origin.callers:
        return origin.frame not in point.chain()
    # The origin's function has called this one, or one of its callers has.
    return step.kind is StepKind.IN and _enters(step, point)


def _ends_in_other_trace(step: Step, origin: Origin, point: TracePoint) -> bool:
    if not _enters(step, point):
        return False
    resumed = resume_function(point.frame.compiled_code)
    compiled = origin.frame.compiled_code
    before = resume_function(compiled)
    if resumed is None or resumed.function != (before.function if before else compiled.co_name):
        return True
    # This is the rest of the function after a graph break, or a function that the rest calls.
    return step.kind is StepKind.IN or (step.kind is StepKind.OVER and len(point.chain()) <= 1 + len(origin.callers))


def _enters(step: Step, point: TracePoint) -> bool:
    return step.granularity == "instruction" or point.begins_line


def _ends_in_same_frame(step: Step, origin: Origin, point: TracePoint) -> bool:
    if step.granularity == "instruction":
        return True
    if step.granularity == "statement":
        # The statement may be the origin's own, if that is the whole body of a loop.
        return point.begins_statement
    return point.begins_line and not (point.line == origin.line and point.index > origin.index)
