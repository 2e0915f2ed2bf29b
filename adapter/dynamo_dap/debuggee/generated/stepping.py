"""Decides where a step ends in generated code, from its origin and the present position.

The module has no side effects. Runs on the stepping thread only.

- **Granularity**: ``instruction`` ends at the next instruction; ``statement`` at the next statement of the listing (one
  call of the graph, one side effect, one resume function), or the next group in a listing of instructions.
  ``line`` ends at the next line: of the listing if that shows statements, else of the user's file.
- **in**: also ends at the first instruction of any generated code that starts during the step: nested functions,
  resume functions.
- **over**: runs through calls. Once the frame has returned, the step ends in the caller after the call, if the caller
  is generated code.
- **out**: runs to the frame's return and ends there, with the value on top of the stack. From a frame that is at its
  return, the step ends in the caller.
- Past the outermost generated frame a step continues: it ends in the next generated code that runs on the thread. A
  step in also ends in the next trace. debugpy steps ordinary Python.

**Steps that began elsewhere** (*handing over*): a step *in* from a traced frame or from ordinary Python ends at the
first instruction of the next generated code that runs. After the last traced line of a function, this is the function's
new code; at a cache hit, it is the cached code. A step *over* or *out* that began elsewhere ends in generated code only
where that code continues the traced function as ordinary Python.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from types import FrameType, FunctionType
from typing import Any

from dynamo_dap.debuggee.agent.stepping import Step, StepKind, TracedOrigin
from dynamo_dap.debuggee.generated.known_code import GeneratedCode
from dynamo_dap.debuggee.torch_api.code_objects.dynamo_names import resume_function
from dynamo_dap.debuggee.torch_api.code_objects.generated_code import live_entries
from dynamo_dap.protocol.requests.contract import INSTRUCTIONS


@dataclass(eq=False, slots=True)
class Origin:
    """A step's origin, and its frame's progress since."""

    generated: GeneratedCode
    frame: FrameType | None
    """None once the frame has ended: otherwise its locals would stay alive."""
    index: int
    returned: tuple[str, Any] | None = field(default=None)
    """The frame's name and the value it returned."""


def begins_line(generated: GeneratedCode, index: int) -> bool:
    """Return whether a user's line that runs as ordinary Python begins at an instruction."""
    return generated.continuation is not None and index in generated.continuation.lines


def ends_at(step: Step, generated: GeneratedCode, frame: FrameType, index: int) -> bool:
    """Decide whether ``step`` ends before the instruction ``index`` of ``frame``, which runs ``generated``."""
    origin = step.origin
    if not isinstance(origin, Origin):
        if isinstance(origin, TracedOrigin) and begins_line(generated, index):
            return origin.continues_in(generated.original, is_out=step.kind is StepKind.OUT)
        return step.kind is StepKind.IN
    if frame is origin.frame:
        return _ends_in_same_frame(step, origin, index)
    if step.kind is StepKind.IN:
        return True
    # Another frame runs: a callee of the step's frame or, after its end, any later frame.
    return not is_on_stack(origin.frame, frame)


def begins_rest(step: Step, generated: GeneratedCode, frame: FrameType, index: int) -> bool:
    """Return whether ``step`` ends in the rest after a graph break, which the code is about to call.

    The rest is not compiled: Dynamo traces it now, or it runs as ordinary Python.
    """
    if not isinstance(step.origin, TracedOrigin) or step.kind is StepKind.IN:
        return False
    if not step.origin.continues_in(generated.original, is_out=step.kind is StepKind.OUT):
        return False
    instruction = generated.table[index]
    rest = frame.f_globals.get(str(instruction.value)) if instruction.name == "LOAD_GLOBAL" else None
    if not isinstance(rest, FunctionType) or resume_function(rest.__code__) is None:
        return False
    return not live_entries(rest.__code__)


def _ends_in_same_frame(step: Step, origin: Origin, index: int) -> bool:
    if step.kind is StepKind.OUT:
        return origin.generated.table[index].is_return
    generated = origin.generated
    if step.granularity == "instruction":
        return True
    if generated.continued_line(index) is not None:
        is_same = generated.continued_line(index) == generated.continued_line(origin.index)
        return begins_line(generated, index) and not (is_same and index > origin.index)
    if index <= origin.index:
        return True
    if step.granularity == "line" and generated.form == INSTRUCTIONS:
        begun = generated.listing.statement_begun_at(index)
        return begun is not None and begun != generated.listing.statement_at(origin.index)
    return not generated.document().is_same_statement(index, origin.index)


def is_on_stack(wanted: FrameType | None, top: FrameType) -> bool:
    """Return whether ``wanted`` is ``top`` or one of its callers."""
    frame: FrameType | None = top
    while frame is not None:
        if frame is wanted:
            return True
        frame = frame.f_back
    return False
