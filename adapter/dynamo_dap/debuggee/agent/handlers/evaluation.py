"""Requests that evaluate expressions. Served on the held thread whose frame they name."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from dynamo_dap.debuggee.agent.eager_frames import GlobalsFrame
from dynamo_dap.debuggee.agent.frames import Frame
from dynamo_dap.debuggee.agent.handlers.formatting import formatted_text
from dynamo_dap.debuggee.agent.handlers.lookup import held_frame, pause_of_frame
from dynamo_dap.debuggee.agent.handlers.variables import (
    children_reference,
    indexed_count,
    named_count,
    presentation_hint,
)
from dynamo_dap.debuggee.agent.pause import Pause
from dynamo_dap.debuggee.agent.requests import RequestError, handles_while_held
from dynamo_dap.debuggee.values.model import EvaluationError, Interrupted, WriteRefused, text_of_raised
from dynamo_dap.protocol.contract import ErrorId
from dynamo_dap.protocol.types import (
    CompletionsArguments,
    CompletionsResponseBody,
    EvaluateArguments,
    EvaluateResponseBody,
    SetExpressionArguments,
    SetExpressionResponseBody,
)

if TYPE_CHECKING:
    from dynamo_dap.debuggee.agent.agent import Agent

T = TypeVar("T")


def _owner(agent: Agent, arguments: EvaluateArguments | SetExpressionArguments | CompletionsArguments) -> Pause:
    if arguments.frame_id is not None:
        return pause_of_frame(agent, arguments.frame_id)
    pause = agent.newest_pause
    if pause is None:
        raise RequestError(
            "nothing can be evaluated while the program runs; stop it first", error_id=ErrorId.NOTHING_STOPPED
        )
    return pause


def _frame(agent: Agent, arguments: EvaluateArguments | SetExpressionArguments | CompletionsArguments) -> Frame:
    """Return the frame of a request; for one that names none, the program's globals."""
    return GlobalsFrame(agent.print) if arguments.frame_id is None else held_frame(agent, arguments.frame_id)


@handles_while_held("evaluate", EvaluateArguments, _owner)
def evaluate(agent: Agent, pause: Pause, arguments: EvaluateArguments) -> EvaluateResponseBody:
    """Evaluate an expression in a frame, or in the program's globals."""
    frame = _frame(agent, arguments)
    value = _telling_exceptions(lambda: frame.evaluate(arguments.expression, arguments.context or "watch"))
    return EvaluateResponseBody(
        result=formatted_text(value, arguments.format),
        variables_reference=children_reference(agent, pause, value),
        type=value.type_name,
        presentation_hint=presentation_hint(value, frame.is_writable),
        named_variables=named_count(value),
        indexed_variables=indexed_count(value),
        memory_reference=value.memory_reference,
        value_location_reference=agent.references.number_of(value.location, pause) if value.location else None,
    )


@handles_while_held("setExpression", SetExpressionArguments, _owner)
def set_expression(agent: Agent, pause: Pause, arguments: SetExpressionArguments) -> SetExpressionResponseBody:
    """Assign to an expression in a frame."""
    frame = _frame(agent, arguments)
    value = _telling_exceptions(lambda: frame.write(arguments.expression, arguments.value))
    return SetExpressionResponseBody(
        value=formatted_text(value, arguments.format),
        type=value.type_name,
        variables_reference=children_reference(agent, pause, value),
        named_variables=named_count(value),
        indexed_variables=indexed_count(value),
    )


@handles_while_held("completions", CompletionsArguments, _owner)
def completions(agent: Agent, pause: Pause, arguments: CompletionsArguments) -> CompletionsResponseBody:
    """Complete the text in the debug console."""
    lines = arguments.text.splitlines() or [""]
    line = lines[min(len(lines), max(1, arguments.line or 1)) - 1]
    return CompletionsResponseBody(list(_frame(agent, arguments).completions(line, arguments.column)))


def _telling_exceptions(work: Callable[[], T]) -> T:
    """Run the user's expression; what it raises is told as its own exception, not as an error of ours."""
    try:
        return work()
    except (EvaluationError, WriteRefused, Interrupted):
        raise
    except BaseException as error:  # noqa: BLE001  (the user's expression may raise anything)
        raise EvaluationError(text_of_raised(error)) from None
