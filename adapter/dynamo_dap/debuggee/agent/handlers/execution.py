"""Requests that let threads run and stop. Served on the agent's reader thread."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from dynamo_dap.debuggee.agent.requests import RequestError, handles
from dynamo_dap.debuggee.agent.stepping import Step, StepKind
from dynamo_dap.protocol.contract import ErrorId
from dynamo_dap.protocol.types import (
    ContinueArguments,
    ContinueResponseBody,
    NextArguments,
    PauseArguments,
    StepInArguments,
    StepOutArguments,
    ThreadsResponseBody,
)

if TYPE_CHECKING:
    from dynamo_dap.debuggee.agent.agent import Agent

_GRANULARITIES = ("statement", "line", "instruction")


class _NoArguments(Struct):
    pass


@handles("threads", _NoArguments)
def threads(agent: Agent, arguments: _NoArguments) -> ThreadsResponseBody:
    """Return the program's threads."""
    return ThreadsResponseBody(agent.threads.alive(agent.held_idents))


@handles("continue", ContinueArguments)
def continue_(agent: Agent, arguments: ContinueArguments) -> ContinueResponseBody:
    """Let one thread run on. Threads stop one by one, and so they continue."""
    pause = agent.pause_of(arguments.thread_id)
    agent.after_response(lambda: pause.release(None))
    return ContinueResponseBody(all_threads_continued=False)


@handles("next", NextArguments)
def next_(agent: Agent, arguments: NextArguments) -> None:
    """Step over."""
    _step(agent, arguments.thread_id, StepKind.OVER, arguments.granularity)


@handles("stepIn", StepInArguments)
def step_in(agent: Agent, arguments: StepInArguments) -> None:
    """Step in."""
    _step(agent, arguments.thread_id, StepKind.IN, arguments.granularity)


@handles("stepOut", StepOutArguments)
def step_out(agent: Agent, arguments: StepOutArguments) -> None:
    """Step out."""
    _step(agent, arguments.thread_id, StepKind.OUT, arguments.granularity)


@handles("pause", PauseArguments)
def pause(agent: Agent, arguments: PauseArguments) -> None:
    """Ask a thread to stop where it next can; 0 asks all."""
    agent.request_pause(arguments.thread_id)


def _step(agent: Agent, thread_id: int, kind: StepKind, granularity: str | None) -> None:
    if granularity is not None and granularity not in _GRANULARITIES:
        raise RequestError(f"unknown stepping granularity '{granularity}'", error_id=ErrorId.UNKNOWN_GRANULARITY)
    held = agent.pause_of(thread_id)
    step = Step(kind, granularity or "statement", held.stop.engine, held.stop.origin)
    agent.after_response(lambda: held.release(step))
