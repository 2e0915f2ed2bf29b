"""Registers the handlers of requests that the agent serves.

Handlers are plain functions in ``agent/handlers``, registered once at import. A handler for a held thread's state runs
on that thread. All others run on the agent's reader thread, or, if they are slow, on the backlog's thread.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from msgspec import Struct

from dynamo_dap.debuggee.agent.agent import Agent
from dynamo_dap.debuggee.agent.pause import Pause, Reply

A = TypeVar("A")


class NoArguments(Struct):
    """The arguments of a request without any."""


@dataclass(frozen=True, slots=True)
class AfterResponse:
    """A handler's result that runs ``action`` after the response was sent, as for an event that must follow it."""

    action: Callable[[], object]
    body: object = None


@dataclass(frozen=True, slots=True)
class AnsweredLater:
    """A held thread's result for a request that is answered only after the thread has resumed."""

    begin: Callable[[Reply], None]
    """Resumes the thread; the reply is used later."""


@dataclass(frozen=True, slots=True)
class Handler:
    """The way to serve one request."""

    arguments_type: type[Any]
    run: Callable[..., object]
    owner: Callable[[Agent, Any], Pause | None] | None
    """Finds the pause whose thread serves the request. If there is no owner or it finds none, serve it at once."""
    is_bounded: Callable[[Agent, Any], bool]
    """Whether ``AgentOptions.evaluation_timeout`` limits the time of the request."""


HANDLERS: dict[str, Handler] = {}


def handles(
    command: str, arguments_type: type[A]
) -> Callable[[Callable[[Agent, A], object]], Callable[[Agent, A], object]]:
    """Register ``run(agent, arguments) -> body``, served at once on the reader thread."""

    def register(run: Callable[[Agent, A], object]) -> Callable[[Agent, A], object]:
        HANDLERS[command] = Handler(arguments_type, run, None, lambda agent, arguments: False)
        return run

    return register


def handles_while_held(
    command: str,
    arguments_type: type[A],
    owner: Callable[[Agent, A], Pause | None],
    *,
    is_bounded: bool | Callable[[Agent, A], bool] = True,
) -> Callable[[Callable[[Agent, Pause, A], object]], Callable[[Agent, Pause, A], object]]:
    """Register ``run(agent, pause, arguments) -> body``, served on the held thread that ``owner`` finds."""

    def register(run: Callable[[Agent, Pause, A], object]) -> Callable[[Agent, Pause, A], object]:
        asked = is_bounded if callable(is_bounded) else lambda agent, arguments: is_bounded
        HANDLERS[command] = Handler(arguments_type, run, owner, asked)
        return run

    return register
