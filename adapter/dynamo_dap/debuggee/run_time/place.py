"""Where a frame of generated code is. Made on the thread that runs it."""

from __future__ import annotations

import types
from dataclasses import dataclass
from enum import Enum
from typing import Any

from dynamo_dap.debuggee.run_time.generated import GeneratedCode
from dynamo_dap.debuggee.torch_internals.compile_records import Statement


class Moment(Enum):
    """Where a frame is, relative to its current instruction."""

    BEFORE = "before"
    """It is about to execute it: the stack is whole."""
    INSIDE = "inside"
    """It is executing it (a caller's call): the operands are in use."""
    RAISED = "raised"
    """It raised: the operands are gone."""


@dataclass(slots=True)
class Place:
    """A running frame of generated code and where it is."""

    generated: GeneratedCode
    frame: types.FrameType
    index: int
    moment: Moment = Moment.BEFORE
    operands: tuple[Any, ...] | None = None
    """What an instruction that raised had taken from the stack, if that was kept."""
    returned: tuple[str, Any] | None = None
    """Name and returned value of the frame that a step just came out of."""
    statement: Statement | None = None
    """The user's statement whose breakpoint stopped here, where one group of instructions carries out several."""
