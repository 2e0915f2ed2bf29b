"""The decorators that make a function the handler of a DAP request, and the table of handlers.

Filled while ``server.handlers`` is imported, read on the loop afterwards. There are three kinds of requests:

- *handled*: the server answers itself. A handler returns the body (or None), or raises ``RequestRefused``; it may be a
  coroutine function, and then runs as a task that ``cancel`` can end.
- *broadcast*: every backend gets the request, and the handler returns a function that merges their answers into one
  body. It runs in the callback of the last answer, so the merged answer is sent before the events that followed it.
- *forwarded*: one backend answers (``agent_capabilities.FORWARDED_REQUESTS``, custom requests).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from dynamo_dap.protocol.types import Capabilities
from dynamo_dap.server.backend import Backend

if TYPE_CHECKING:
    from dynamo_dap.server.session import Session

A = TypeVar("A")

Answers = Sequence[tuple[Backend, msgspec.Raw]]
Merge = Callable[[Answers], object]
"""Merges the backends' bodies into the one for the IDE; there are none when a program runs without debugging."""

Share = Callable[[Backend, msgspec.Raw], "msgspec.Raw | None"]
"""Returns a backend's part of the arguments; None when the request does not concern it."""


def _everything(_backend: Backend, arguments: msgspec.Raw) -> msgspec.Raw:
    return arguments


@dataclass(frozen=True)
class Plan:
    """How a broadcast request is shared out, and its answers put together."""

    merge: Merge
    share: Share = _everything


Handle = Callable[["Session", A], object]
Broadcast = Callable[["Session", msgspec.Raw, A], "Merge | Plan"]


@dataclass(frozen=True)
class Handler:
    """How one request is served."""

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
    """Register the decorated function, which answers ``command``; ``brings`` is what clients may then rely on."""

    def register(function: Handle[A]) -> Handle[A]:
        _add(Handler(command, arguments, function, brings or Capabilities(), before_initialize=before_initialize))
        return function

    return register


def broadcasts(
    command: str, arguments: type[A], *, brings: Capabilities | None = None, after_end: bool = False
) -> Callable[[Broadcast[A]], Broadcast[A]]:
    """Register the decorated function, which gives the ``Plan`` (or only its ``Merge``) for a ``command`` to all.

    It gets the arguments as received, too. ``after_end``: also taken when the program has ended; no backend answers.
    """

    def register(function: Broadcast[A]) -> Broadcast[A]:
        capabilities = brings or Capabilities()
        _add(Handler(command, arguments, function, capabilities, is_broadcast=True, after_end=after_end))
        return function

    return register


def plan_of(given: Merge | Plan) -> Plan:
    """Return what a broadcast's handler returned as a plan."""
    return given if isinstance(given, Plan) else Plan(given)


def _add(handler: Handler) -> None:
    assert handler.command not in handlers, f"two handlers of '{handler.command}'"
    handlers[handler.command] = handler
