"""The table of requests that the agent serves, and the decorators that register handlers.

Handlers are plain functions in ``agent/handlers``, registered once at import. A handler runs either at once, on the
agent's reader thread (a slow one on the backlog's thread), or on the held thread that owns what the request is about.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from dynamo_dap.protocol.contract import ErrorId
from dynamo_dap.protocol.own_threads import own_thread

if TYPE_CHECKING:
    from dynamo_dap.debuggee.agent.agent import Agent
    from dynamo_dap.debuggee.agent.pause import Pause

A = TypeVar("A")


class RequestError(Exception):
    """A request cannot be served; the text is for a person."""

    def __init__(self, text: str, *, error_id: ErrorId, message: str = "") -> None:
        """``message`` is DAP's short form, such as ``notStopped``."""
        super().__init__(text)
        self.error_id = error_id
        self.message = message


@dataclass(frozen=True, slots=True)
class Handler:
    """How one request is served."""

    arguments_type: type[Any]
    run: Callable[..., object]
    owner: Callable[[Agent, Any], Pause | None] | None
    """Finds the pause whose thread serves the request; None for requests served at once. The owner may return None:
    then the request is served at once after all, without a pause."""
    is_bounded: bool
    """Whether ``AgentOptions.evaluation_timeout`` bounds it."""


HANDLERS: dict[str, Handler] = {}
SLOW = frozenset({"setBreakpoints", "setFunctionBreakpoints", "breakpointLocations"})
"""Requests that read and parse files: other requests are served meanwhile."""
_IN_ORDER = SLOW | {
    "attach",
    "configurationDone",
    "continue",
    "next",
    "stepIn",
    "stepOut",
    "setDataBreakpoints",
    "setExceptionBreakpoints",
    "setInstructionBreakpoints",
}
"""Requests that must not overtake slow ones: the program may not run on before its breakpoints are set."""


class Backlog:
    """Serves slow requests, and those that must not overtake them, one after the other on a thread of its own.

    ``takes`` is called on the reader thread. The thread is started by the first slow request and lives as long as the
    process; one in a forked process has a new backlog.
    """

    def __init__(self) -> None:
        self._waiting: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._unfinished = 0
        self._lock = threading.Lock()
        self._has_thread = False

    def takes(self, command: str, serve: Callable[[], None]) -> bool:
        """Take a request over, to ``serve`` it in its turn; False when it is to be served at once."""
        with self._lock:
            if command not in SLOW and not (self._unfinished and command in _IN_ORDER):
                return False
            self._unfinished += 1
        self._waiting.put(serve)
        if not self._has_thread:
            self._has_thread = True
            own_thread("backlog", self._run).start()
        return True

    def _run(self) -> None:
        while True:
            serve = self._waiting.get()
            try:
                serve()
            finally:
                with self._lock:
                    self._unfinished -= 1


def handles(
    command: str, arguments_type: type[A]
) -> Callable[[Callable[[Agent, A], object]], Callable[[Agent, A], object]]:
    """Register ``run(agent, arguments) -> body``, served at once on the reader thread."""

    def register(run: Callable[[Agent, A], object]) -> Callable[[Agent, A], object]:
        HANDLERS[command] = Handler(arguments_type, run, None, is_bounded=False)
        return run

    return register


def handles_while_held(
    command: str, arguments_type: type[A], owner: Callable[[Agent, A], Pause | None], *, is_bounded: bool = True
) -> Callable[[Callable[[Agent, Pause, A], object]], Callable[[Agent, Pause, A], object]]:
    """Register ``run(agent, pause, arguments) -> body``, served on the held thread that ``owner`` finds."""

    def register(run: Callable[[Agent, Pause, A], object]) -> Callable[[Agent, Pause, A], object]:
        HANDLERS[command] = Handler(arguments_type, run, owner, is_bounded)
        return run

    return register
