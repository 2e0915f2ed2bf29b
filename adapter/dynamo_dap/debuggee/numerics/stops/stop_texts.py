"""Writes the texts of stops at NaN and Inf, and at results that differ from eager. Runs on the thread that stops."""

from __future__ import annotations

import linecache
from collections.abc import Sequence
from dataclasses import dataclass

from dynamo_dap.debuggee.agent.stepping import RaisedException
from dynamo_dap.debuggee.numerics.faults.comparisons import Fault
from dynamo_dap.debuggee.numerics.faults.stage_search import DYNAMO
from dynamo_dap.debuggee.numerics.faults.stored_state import StoredDifference
from dynamo_dap.debuggee.numerics.gradients.gradient_comparisons import GradientOfInput
from dynamo_dap.debuggee.numerics.graphs.differences import Difference
from dynamo_dap.debuggee.numerics.graphs.not_finite import INF, NAN, BadInput, BadOperation, Kinds
from dynamo_dap.debuggee.torch_api.graphs.graph import operation_name
from dynamo_dap.debuggee.trace.stop_texts import raised

_SHOWN_KINDS = {NAN: "NaN", INF: "Inf"}


def not_finite(
    made: BadOperation | None,
    kind: str,
    where: str,
    changed: Sequence[str] = (),
    state: ParameterState | None = None,
    because: str | None = None,
) -> RaisedException:
    """Report the NaN or Inf of a call, its line, and the cause.

    ``made`` is None if Dynamo's graph makes no NaN or Inf; ``state`` is the parameter that had one before the call.
    ``changed`` are inputs that may have changed since the call began; ``because`` names the operands that caused it.
    """
    shown = _SHOWN_KINDS[kind]
    if state is not None and made is not None:
        what = f"The call began with {shown} in {state.name}: {made.text}."
        cause = state.cause
        headline = f"{shown}: in {state.name} before the call"
    elif made is None:
        what = f"The compiled call returns {shown}, and Dynamo's graph does not."
        cause = f"Cause: AOTAutograd or the backend. Running the same operations eagerly gives no {shown}."
        headline = f"{shown}: made by the compiled graph alone"
    else:
        what = f"The call returns {shown}. {operation_name(made.node)} made the first: {made.text}."
        cause = f"Cause: your code. Running the same operations eagerly also gives {shown}."
        headline = f"{shown}: {operation_name(made.node)}: {made.text}"
    note = (
        f"These inputs were not copied, so they may have changed during the call: {', '.join(changed)}"
        if changed
        else None
    )
    operands = None if because is None else f"Because {because}."
    return raised(headline, [what, operands, f"Where: {where}", cause, note])


def not_finite_input(name: str, given: BadInput, where: str) -> RaisedException:
    """Report an input that had a NaN before the call, and the line of the caller."""
    had = f"input {name} has {given.text}"
    what = f"The call returns a NaN that came from its inputs: {had}."
    cause = "Cause: the data, or the code that made the data before the call."
    return raised(f"NaN: {had}", [what, f"Where: {where}", cause])


def mismatch(fault: Fault, worst: Difference, cause: str, operation: str, where: str) -> RaisedException:
    """Report in three lines how compiled and eager results differ, the first line, and the cause."""
    what = f"Compiled and eager results differ ({worst.size})."
    if fault.stage == DYNAMO:
        what = "Dynamo's graph and ordinary Python differ."
    if fault.observed is not None:
        return raised(f"Mismatch: {fault.observed}", [fault.observed, f"Where: {where}", f"Cause: {cause}"])
    if fault.written is not None:
        what = f"The compiled call leaves {fault.written} with other contents than eager ({fault.difference.text})."
        lines = [what, f"Where: {where}", f"Cause: {cause}"]
        return raised(f"Mismatch: {fault.written}: {fault.difference.headline}", lines)
    if fault.node is None:
        what = f"Compiled and eager results differ ({worst.text})."
        lines = [what, f"Where: returned at {where}", f"Cause: {cause}"]
        return raised(f"Mismatch: {worst.headline}", lines)
    first = f"First difference: {operation}, {fault.difference.text}."
    if fault.stage == DYNAMO:
        first = f"First line that differs: {fault.difference.text}."
    lines = [f"{what} {first}", f"Where: {where}", f"Cause: {cause}"]
    return raised(f"Mismatch: {operation}: {fault.difference.headline}", lines)


def mismatch_in_backward(
    worst: GradientOfInput, operation: str | None, cause: str, where: tuple[str, int, str]
) -> RaisedException:
    """Report in three lines which gradient differs, the forward line whose backward is wrong, and the cause."""
    path, line, function = where
    text = linecache.getline(path, line).strip()
    place = f"Where: {path}:{line} in {function}" + (f": {text}" if text else "")
    what = f"Compiled and eager gradients of {worst.name} differ ({worst.difference.text})."
    first = "" if operation is None else f" First difference: the backward of {operation}."
    headline = f"Mismatch in the backward pass: {operation or worst.name}: {worst.difference.headline}"
    return raised(headline, [f"{what}{first}", place, f"Cause: {cause}"])


def mismatch_of_operator(fault: Fault, result: str, cause: str, operation: str, where: str) -> RaisedException:
    """Report in three lines a custom operator's mistake, its call, and the result."""
    what = f"{operation} does not match its declaration. {result}"
    return raised(f"Mismatch: {operation}: {fault.stage}", [what, f"Where: {where}", f"Cause: {cause}"])


def mismatch_of_missing_exception(problem: str, cause: str, where: str) -> RaisedException:
    """Report in three lines an exception that eager raises and the compiled call does not, its line, and the cause."""
    what = f"Eager raises {problem}. The compiled call returns."
    return raised(f"Mismatch: only eager raises {problem}", [what, f"Where: {where}", f"Cause: {cause}"])


def mismatch_of_invalid(why: str, where: str) -> RaisedException:
    """Report that a call used a cache entry that is not valid for it, and the first difference."""
    return raised(f"Mismatch: {why}", [f"{why}.", f"Where: {where}", "Cause: Dynamo."])


def mismatch_in_stored(what: StoredDifference, cause: str, where: str) -> RaisedException:
    """Report in three lines a stored value that differs after the compiled call, its line, and the cause."""
    left = f"{what.expression} is {what.by_compiled} after the compiled call"
    text = f"{left}, and {what.by_python} after ordinary Python"
    return raised(f"Mismatch: {text}", [f"{text}.", f"Where: {where}", f"Cause: {cause}"])


@dataclass(frozen=True)
class BackwardFault:
    """An operation that makes a NaN or an Inf in a backward pass."""

    operation: str
    made: BadOperation
    """The gradient that the operation passes back."""
    path: str
    line: int
    function: str
    parameters: Sequence[str]
    """Parameters whose gradients have the NaN or Inf too, as the user wrote them."""


def not_finite_in_backward(fault: BackwardFault, call: str) -> RaisedException:
    """Report in three lines the NaN or Inf of a backward pass, its line, and the cause."""
    shown = _SHOWN_KINDS[fault.made.kind]
    text = linecache.getline(fault.path, fault.line).strip()
    where = f"Where: {fault.path}:{fault.line} in {fault.function}" + (f": {text}" if text else "")
    what = f"The backward pass of {call} makes {shown}. In the gradient from {fault.operation}:"
    reached = f"The gradients of {', '.join(fault.parameters)} have it too." if fault.parameters else ""
    cause = f"Cause: your code. The gradients of the call and of this line were finite. {reached}".strip()
    headline = f"{shown} in the backward pass: {fault.operation}"
    return raised(headline, [f"{what} {fault.made.text}.", where, cause])


@dataclass(frozen=True)
class ParameterState:
    """A parameter or buffer that was not finite before a call."""

    name: str
    calls: int
    """How many calls of its graph were checked, including this one."""
    gradient: Kinds | None
    """Which of NaN and Inf its gradient has; None without a gradient."""

    @property
    def cause(self) -> str:
        """Return the cause."""
        since = (
            "since the previous call, whose results were finite" if self.calls > 1 else "before the first checked call"
        )
        if self.gradient is None:
            return f"Cause: whatever changed {self.name} {since}. It has no gradient."
        if self.gradient:
            return f"Cause: the backward pass. The gradient of {self.name} has {' and '.join(_kinds(self.gradient))}."
        return f"Cause: the optimizer, or whatever changed {self.name} {since}. Its gradient is finite."


def _kinds(kinds: Kinds) -> list[str]:
    return sorted((_SHOWN_KINDS[kind] for kind in kinds), reverse=True)
