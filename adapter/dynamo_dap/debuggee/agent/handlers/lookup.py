"""Finds what the numbers in a request refer to, with a clear error for stale and invalid ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dynamo_dap.debuggee.agent.frames import Frame
from dynamo_dap.debuggee.agent.pause import Pause
from dynamo_dap.debuggee.agent.references import Referred
from dynamo_dap.debuggee.agent.requests import RequestError
from dynamo_dap.debuggee.values.model import Children
from dynamo_dap.protocol.contract import ErrorId

if TYPE_CHECKING:
    from dynamo_dap.debuggee.agent.agent import Agent


def referred(agent: Agent, number: int, what: str) -> Referred:
    """Return what ``number`` stands for; ``what`` names it in the error."""
    found = agent.references.lookup(number)
    if found is not None:
        return found
    if agent.references.was_given(number):
        text = f"{what} {number} belongs to an earlier stop: the thread has gone on since"
    else:
        text = f"there is no {what} {number}"
    raise RequestError(text, error_id=ErrorId.UNKNOWN_REFERENCE)


def pause_of_frame(agent: Agent, frame_id: int) -> Pause:
    """Return the pause that a frame belongs to."""
    found = referred(agent, frame_id, "frame")
    if not isinstance(found.target, Frame) or found.pause is None:
        raise RequestError(f"{frame_id} is not a frame", error_id=ErrorId.UNKNOWN_REFERENCE)
    return found.pause


def held_frame(agent: Agent, frame_id: int) -> Frame:
    """Return a frame by its id."""
    target = referred(agent, frame_id, "frame").target
    assert isinstance(target, Frame)
    return target


def pause_of_variables(agent: Agent, reference: int) -> Pause:
    """Return the pause that a variables reference belongs to."""
    found = referred(agent, reference, "variables reference")
    if not isinstance(found.target, Children) or found.pause is None:
        raise RequestError(f"{reference} is not a variables reference", error_id=ErrorId.UNKNOWN_REFERENCE)
    return found.pause


def held_children(agent: Agent, reference: int) -> Children:
    """Return the variables behind a reference."""
    target = referred(agent, reference, "variables reference").target
    assert isinstance(target, Children)
    return target
