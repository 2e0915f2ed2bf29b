"""Finds the handler of an IDE's request: the table of handlers, and the decorators that fill it.

The table is filled while ``sessions.handlers`` is imported, then read on the loop. There are three kinds of requests:

- *handled*: the server answers itself. A handler returns the body (or None), or raises ``RequestRefused``. A coroutine
  function runs as a task that ``cancel`` can end.
- *broadcast*: every backend gets the request, and the handler returns a function that merges their answers into one
  body. That function runs in the callback of the last answer: events that follow this answer come after the merged one.
- *forwarded*: one backend answers (``capabilities.FORWARDED_REQUESTS``, custom requests).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec

from dynamo_dap.protocol.requests.contract import CUSTOM_PREFIX, SET_OPTION, ErrorId
from dynamo_dap.protocol.requests.options import CONSOLE_PREFIX, SetOptionArguments
from dynamo_dap.protocol.wire.messages import Request, decode
from dynamo_dap.protocol.wire.types import Capabilities, EvaluateArguments
from dynamo_dap.server.backends.routing import Merge, Sharing
from dynamo_dap.server.client.capabilities import EAGER_ARGUMENTS, FORWARDED_REQUESTS
from dynamo_dap.server.client.errors import RequestRefused
from dynamo_dap.server.sessions.session import Phase, Session

A = TypeVar("A")

Handle = Callable[[Session, A], object]
Broadcast = Callable[[Session, msgspec.Raw, A], Merge | Sharing]


@dataclass(frozen=True)
class Handler:
    """The way to serve one request."""

    command: str
    arguments: type
    function: Callable[..., Any]
    capabilities: Capabilities
    is_broadcast: bool = False
    before_initialize: bool = False
    after_end: bool = False


class NoArguments(msgspec.Struct):
    """For requests whose arguments do not matter."""


handlers: dict[str, Handler] = {}


def handles(
    command: str, arguments: type[A], *, brings: Capabilities | None = None, before_initialize: bool = False
) -> Callable[[Handle[A]], Handle[A]]:
    """Register the decorated function for ``command``; ``brings`` are the capabilities that it adds."""

    def register(function: Handle[A]) -> Handle[A]:
        _add(Handler(command, arguments, function, brings or Capabilities(), before_initialize=before_initialize))
        return function

    return register


def broadcasts(
    command: str, arguments: type[A], *, brings: Capabilities | None = None, after_end: bool = False
) -> Callable[[Broadcast[A]], Broadcast[A]]:
    """Register the decorated function, which returns a broadcast's ``Sharing`` or only its ``Merge``.

    The function also gets the arguments as received. With ``after_end``, it also serves requests after the program's
    end, when there is no backend.
    """

    def register(function: Broadcast[A]) -> Broadcast[A]:
        capabilities = brings or Capabilities()
        _add(Handler(command, arguments, function, capabilities, is_broadcast=True, after_end=after_end))
        return function

    return register


def _add(handler: Handler) -> None:
    assert handler.command not in handlers, f"two handlers of '{handler.command}'"
    handlers[handler.command] = handler


# -- serving -------------------------------------------------------------------------------------------------------

_ARGUMENTS = FORWARDED_REQUESTS | EAGER_ARGUMENTS
"""The arguments' type for each request that one backend answers."""


def serve(session: Session, request: Request) -> None:
    """Serve or route a request of the IDE, or raise ``RequestRefused``."""
    session.refuse_when_ending()
    handler = handlers.get(request.command)
    if not session.client.is_introduced and not (handler is not None and handler.before_initialize):
        raise RequestRefused(ErrorId.NOT_INITIALIZED, f"send 'initialize' first, then '{request.command}'")
    if handler is not None:
        _handle(session, request, handler)
    elif (expected := _ARGUMENTS.get(request.command)) is not None:
        session.require_program()
        # Malformed requests are not forwarded: debugpy crashes on some of them.
        given: object = decode(request.arguments, expected, f"{request.command} arguments")
        _refuse_unknown_granularity(given)
        if isinstance(given, EvaluateArguments) and _names_option(given):
            _set_option(session, request, given)
        else:
            _forward(session, request, given)
    elif request.command.startswith(CUSTOM_PREFIX):
        session.require_program()
        session.router.forward(request)
    else:
        raise RequestRefused(ErrorId.UNKNOWN_REQUEST, f"unknown or unsupported request '{request.command}'")


def _forward(session: Session, request: Request, given: object) -> None:
    """Let a backend answer, and make ranks that stop together follow."""
    rank, thread_id = session.rank, getattr(given, "thread_id", None)
    has_effect = request.command == "pause" or (rank is not None and rank.holds(thread_id))
    session.router.forward(request)
    if rank is not None and has_effect:
        rank.requested(request.command, getattr(given, "granularity", None))


_GRANULARITIES = ("statement", "line", "instruction")


def _refuse_unknown_granularity(given: object) -> None:
    """Check the granularity of a step: debugpy reports an unknown one as its own defect."""
    granularity = getattr(given, "granularity", None)
    if granularity is not None and granularity not in _GRANULARITIES:
        text = f"unknown stepping granularity '{granularity}'; known are {', '.join(_GRANULARITIES)}"
        raise RequestRefused(ErrorId.UNKNOWN_GRANULARITY, text)


def _names_option(given: EvaluateArguments) -> bool:
    """Return whether a line of the debug console shows or changes an option, and is not Python."""
    return given.context == "repl" and given.expression.lstrip().startswith(CONSOLE_PREFIX)


def _set_option(session: Session, request: Request, given: EvaluateArguments) -> None:
    arguments = SetOptionArguments(given.expression)
    session.router.forward_to_agent(request, SET_OPTION, msgspec.Raw(msgspec.json.encode(arguments)))


def _handle(session: Session, request: Request, handler: Handler) -> None:
    what = f"{request.command} arguments"
    raw = handler.arguments is msgspec.Raw
    arguments = request.arguments if raw else decode(request.arguments, handler.arguments, what)
    if handler.is_broadcast:
        if not (handler.after_end and session.phase is Phase.ENDED):
            session.require_program()
        given: Merge | Sharing = handler.function(session, request.arguments, arguments)
        session.router.broadcast(request, given if isinstance(given, Sharing) else Sharing(given))
        return
    result = handler.function(session, arguments)
    if inspect.isawaitable(result):
        session.answer_later(request, result)
    else:
        session.client.respond(request, result)
