"""Finds the line that contradicts a declaration of sizes, such as ``mark_dynamic(x, 0, min=2, max=64)``.

Torch checks declarations when it makes guards, after the trace. Its error names the size, and the condition without its
line. Reads only, on the compiling thread, while the exception is handled.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from dynamo_dap.debuggee.torch_api.cache.guards import compared_sizes, inputs_in
from dynamo_dap.debuggee.torch_api.traced.variable_trackers import Place

_VIOLATION = "ConstraintViolationError"
_GUARD = re.compile(r"satisfy the generated guard (?P<condition>.+?)\.?$", re.MULTILINE)
_CONSTANT = re.compile(r"You marked (?P<source>.+?) as dynamic but your code specialized it to be a constant \((.+?)\)")


def place_of_violation(problem: BaseException) -> Place | None:
    """Return the user's line with the violated condition; None for another error, or if several lines have it."""
    if type(problem).__name__ != _VIOLATION:
        return None
    text = str(problem)
    # The error words a condition differently from the guard, so only their inputs are compared.
    conditions = {inputs_in(found["condition"]) for found in _GUARD.finditer(text)}
    constants = {f"{found[1]} == {found[2]}" for found in _CONSTANT.finditer(text)}
    facts = [one for output in _outputs(problem) for one in compared_sizes(output)]
    places = {one.place for one in facts if one.expression in constants or inputs_in(one.expression) in conditions}
    return places.pop() if len(places) == 1 else None


def _outputs(problem: BaseException) -> Iterator[Any]:
    """Yield the ``OutputGraph`` whose guards could not be made."""
    trace = problem.__traceback__
    while trace is not None:
        found = trace.tb_frame.f_locals.get("output_graph")
        if hasattr(found, "shape_env"):
            yield found
        trace = trace.tb_next
