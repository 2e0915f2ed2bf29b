"""Evaluates conditions of the exception filters ``nan`` and ``mismatch``.

A condition can use the names that the filter provides, such as ``__value__``, and the variables of the line. Runs on
the program's thread that the stop would hold.
"""

from __future__ import annotations

from collections.abc import Callable

from dynamo_dap.debuggee.agent.eager_expressions import is_true_python
from dynamo_dap.debuggee.agent.engine import Host
from dynamo_dap.debuggee.torch_api.graphs.graph_runs import evaluating_on_real_values
from dynamo_dap.debuggee.torch_api.traced.traced_frame import TracedFrame
from dynamo_dap.debuggee.trace.evaluation import evaluate_to_python
from dynamo_dap.debuggee.trace.expressions import names_needed
from dynamo_dap.debuggee.values.model import text_of_raised


def may_hold(host: Host, name: str, names: dict[str, object]) -> bool:
    """Return whether the condition of the filter ``name`` holds; True if it needs more than ``names``."""
    condition = host.breakpoints.exception_filters.get(name)
    if not condition or not names_needed(condition) <= names.keys():
        return True
    with evaluating_on_real_values():
        return _holds(host, name, condition, lambda: is_true_python(condition, {}, names))


def holds_at(host: Host, name: str, frame: TracedFrame, names: dict[str, object]) -> bool:
    """Return whether the condition holds at a line. If ``may_hold`` has already evaluated it, return True."""
    condition = host.breakpoints.exception_filters.get(name)
    if not condition or names_needed(condition) <= names.keys():
        return True
    return _holds(host, name, condition, lambda: bool(evaluate_to_python(frame, condition, dict(names))))


def _holds(host: Host, name: str, condition: str, is_true: Callable[[], bool]) -> bool:
    try:
        with host.holding():
            return is_true()
    except Exception as problem:  # noqa: BLE001  (the user's expression may raise anything)
        text = f"The condition {condition!r} of '{name}' failed: {text_of_raised(problem)}"
        host.print(f"{text}\n", "important")
        return True
