"""The rules by which a step ends while Dynamo traces.

Pure decisions over a translator and where the step began. Tracing thread only. In short:

- over: the next line of the same function; the caller, once the function has returned; the next trace, once this one
  has ended (Dynamo traces frame by frame: a resume function, another compiled function).
- in: as over, and the first line of every function on the way that is the user's.
- out: the caller, just after the call; past the outermost frame, the next trace that does not go on with the same
function.

With granularity ``statement``, DAP's default, lines that merely go on with a statement are not stopped at. When the
analysis is restarted under a step, it ends where it began, in the new attempt: the interpreter is there again, and the
stop says so.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum

from dynamo_dap.debuggee.agent.stepping import Step, StepKind
from dynamo_dap.debuggee.compile_time.code_facts import CodeFacts
from dynamo_dap.debuggee.compile_time.progress import TraceProgress
from dynamo_dap.debuggee.torch_internals.dynamo_names import resume_function
from dynamo_dap.debuggee.torch_internals.translator import CompileIdentity, Translator, outermost
from dynamo_dap.protocol.contract import RUN_TIME


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a step began."""

    translator: Translator
    index: int
    """Of the instruction that was about to be executed."""
    line: int
    callers: tuple[Translator, ...]
    """The functions that it was inlined into, innermost first."""
    identity: CompileIdentity
    position: int
    """``TraceProgress.position`` there, -1 when it is not known."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where the interpreter is now."""

    translator: Translator
    index: int
    line: int
    facts: CodeFacts
    progress: TraceProgress
    begins_line: bool
    """Whether a line of the user's begins here."""
    chain: Callable[[], Sequence[Translator]]
    """The translator and those that run it, innermost first."""
    is_user_code: bool
    """Whether steps may end here: ``justMyCode`` leaves installed packages out."""

    @property
    def begins_statement(self) -> bool:
        """Whether a line begins here that does not merely go on with a statement."""
        return (
            self.begins_line
            and self.facts.begins_statement(self.line)
            and not self.facts.continues_statement(self.translator, self.index, self.line)
        )


class Outcome(Enum):
    """What a step does at a place."""

    GO_ON = "go on"
    STOP = "stop"
    STOP_AFTER_RESTART = "stop where the step began, in a new attempt"


def outcome(step: Step, place: Place) -> Outcome:
    """Decide whether ``step`` ends at ``place``."""
    origin = step.origin
    if not isinstance(origin, Origin):
        return _outcome_of_foreign_step(step, place)
    if _is_restarted(origin, place):
        return Outcome.STOP_AFTER_RESTART if _is_where_it_began(origin, place) else Outcome.GO_ON
    if not place.is_user_code:
        return Outcome.GO_ON
    return Outcome.STOP if _ends(step, origin, place) else Outcome.GO_ON


def _outcome_of_foreign_step(step: Step, place: Place) -> Outcome:
    """Decide on a step that began outside any trace.

    From ordinary Python any step ends in the next trace, since the agent cannot step there; from generated code only
    stepping in does.
    """
    enters = step.engine != RUN_TIME or step.kind is StepKind.IN
    return Outcome.STOP if enters and place.is_user_code and place.begins_line else Outcome.GO_ON


def _is_restarted(origin: Origin, place: Place) -> bool:
    identity = place.progress.identity
    return identity.compile_id == origin.identity.compile_id and identity.attempt > origin.identity.attempt


def _is_where_it_began(origin: Origin, place: Place) -> bool:
    if place.index != origin.index or place.translator.f_code is not origin.translator.f_code:
        return False
    return place.progress.position >= origin.position


def _ends(step: Step, origin: Origin, place: Place) -> bool:
    if place.translator.output is not origin.translator.output:
        return _ends_in_other_trace(step, origin, place)
    if place.translator is origin.translator:
        return step.kind is not StepKind.OUT and _ends_in_same_frame(step, origin, place)
    if place.translator in origin.callers:
        return origin.translator not in place.chain()
    # A function that it called, or that its caller called next.
    return step.kind is StepKind.IN and _enters(step, place)


def _ends_in_other_trace(step: Step, origin: Origin, place: Place) -> bool:
    if not _enters(step, place):
        return False
    if step.kind is not StepKind.OUT:
        return True
    resumed = resume_function(outermost(place.translator).f_code)
    compiled = outermost(origin.translator).f_code
    before = resume_function(compiled)
    return resumed is None or resumed.function != (before.function if before else compiled.co_name)


def _enters(step: Step, place: Place) -> bool:
    return step.granularity == "instruction" or place.begins_line


def _ends_in_same_frame(step: Step, origin: Origin, place: Place) -> bool:
    if step.granularity == "instruction":
        return True
    if place.line == origin.line and place.index > origin.index:
        return False
    return place.begins_line if step.granularity == "line" else place.begins_statement
