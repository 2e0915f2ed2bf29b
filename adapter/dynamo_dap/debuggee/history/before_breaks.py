"""Finds the values that local variables had before a graph break, for the resumed function.

Dynamo passes to a resume function only the variables that it uses. The others keep their value from the last statement
before the break. Runs on the tracing thread, while it is held.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import replace

from dynamo_dap.debuggee.bytecode.instructions import names_deleted
from dynamo_dap.debuggee.history.attempts import Attempt, all_before
from dynamo_dap.debuggee.history.saved_traces import CannotReuse
from dynamo_dap.debuggee.torch_api.code_objects.dynamo_names import resume_function
from dynamo_dap.debuggee.torch_api.code_objects.generated_code import user_function_of
from dynamo_dap.debuggee.torch_api.traced.traced_frame import TracedFrame
from dynamo_dap.debuggee.trace.traced_view import TracedView
from dynamo_dap.debuggee.values.model import Value

BEFORE = " (before the graph break)"


def locals_before_break(frame: TracedFrame, attempt: Attempt) -> dict[str, Value]:
    """Return the variables that have no value in the resumed ``frame``, with their values before the break.

    ``attempt`` is the trace of ``frame``.
    """
    code = frame.code
    if resume_function(code) is None:
        return {}
    function = user_function_of(code)
    given = code.co_varnames[: code.co_argcount]
    known = {*given, *names_deleted(function), *(name for name, _ in frame.locals())}
    missing = [name for name in (*function.co_varnames, *function.co_cellvars) if name not in known]
    found: dict[str, Value] = {}
    for before in all_before(attempt):
        missing = [name for name in missing if name not in found]
        if not missing:
            break
        if before.history.is_of(function):
            found.update(_values_at_end(before, missing))
    return {name: found[name] for name in function.co_varnames + function.co_cellvars if name in found}


def _values_at_end(attempt: Attempt, names: Sequence[str]) -> dict[str, Value]:
    """Return the variables of an attempt's outermost function when the attempt ended."""
    history = attempt.history
    with contextlib.suppress(CannotReuse), attempt.as_current_trace():
        history.show(history.end - 1)
        try:
            frame = history.chain(history.end - 1)[-1]
            view, values = TracedView(frame), dict(frame.locals())
            return {name: _as_before(view.value(values[name], name)) for name in names if name in values}
        finally:
            history.show(None)
    return {}


def _as_before(value: Value) -> Value:
    # The client would read its children later, when the trace shows the present again.
    return replace(
        value,
        text=value.text + BEFORE,
        children=None,
        attributes=("readOnly",),
        lazy=False,
        memory_reference=None,
        data_range=None,
        printed_text=None,
    )
