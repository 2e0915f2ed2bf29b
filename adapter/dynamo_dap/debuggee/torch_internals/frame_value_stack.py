"""Reading the value stack of a frame. Runs on the thread whose frame it is.

torch's function reads as many slots as it is told to, whether or not they still hold references: with too large a depth
it reads dangling pointers. ``code_analysis.stack_depth`` computes the depth.
"""

from __future__ import annotations

from types import FrameType
from typing import Any

from dynamo_dap.debuggee.torch_internals.features import Feature

_READ = "torch._C._dynamo.eval_frame:_get_frame_value_stack_with_depth"
_NULL = "torch._C._dynamo.eval_frame:NULL_STACK_VALUE"

VALUE_STACK = Feature("the value stack of generated code", _READ, _NULL)


def value_stack(frame: FrameType, depth: int) -> list[Any]:
    """Return the ``depth`` bottom slots of the value stack of ``frame``, bottom first, empty slots as ``null()``.

    Fewer come back when the frame itself knows that there are fewer.

    Raises:
        FeatureMissing: this torch cannot read value stacks.
    """
    read = VALUE_STACK.resolve(_READ)
    stack: list[Any] = read(frame, depth)
    return stack


def is_null(value: object) -> bool:
    """Whether ``value`` stands for an empty slot."""
    return VALUE_STACK.problem is None and value is VALUE_STACK.resolve(_NULL)
