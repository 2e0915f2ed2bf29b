"""The debugger of ordinary Python in the same process, as the agent sees it.

The agent and that debugger share the program's threads: each stops some of them, and both may have a step in progress
on the same one. All methods are called on the thread they are about, unless they say otherwise. The agent has a
``NoEagerDebugger`` until a session with debugpy begins.
"""

from __future__ import annotations

import contextlib
import types
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Protocol

from dynamo_dap.debuggee.agent.stepping import Step

RAISED, USER_UNHANDLED, UNCAUGHT = "raised", "userUnhandled", "uncaught"
"""debugpy's exception filters."""


class EagerDebugger(Protocol):
    """What the agent asks of it."""

    @property
    def is_active(self) -> bool:
        """Whether it debugs now. Any thread."""

    def wait_until_configured(self) -> None:
        """Block until its client has set its breakpoints, or is gone."""

    def report_uncaught(self, error: BaseException) -> None:
        """The program is about to end by ``error``."""

    @property
    def exception_filters(self) -> frozenset[str]:
        """The exception filters that are on, as DAP names them. Any thread."""

    def stopped_for(self, error: BaseException, filters: frozenset[str]) -> None:
        """The agent has stopped for ``error`` where it was raised, by ``filters``, which are not to stop for it again.

        But for ``raised``, which stops in each function that an exception passes.
        """

    def close(self) -> None:
        """The session is over. Any thread; harmless when called again."""

    def kept_out(self) -> AbstractContextManager[None]:
        """Keep it out of what the calling thread runs inside: the agent holds the thread."""

    @property
    def holds_this_thread(self) -> bool:
        """Whether it has stopped the calling thread: what it evaluates there must not stop again."""

    def resume(self, step: Step | None) -> None:
        """The agent lets the calling thread go on.

        With a ``step``, whoever gets there first ends it: here the step must end in the eager code that called what
        the agent showed. Without one, a step that was under way here is given up: the user chose to continue.
        """

    def stop_at(self, frame: types.FrameType) -> None:
        """Stop the calling thread as soon as it is back in ``frame``, which called ``breakpoint()``."""


class NoEagerDebugger:
    """Nobody debugs ordinary Python."""

    is_active = False
    holds_this_thread = False
    exception_filters: frozenset[str] = frozenset()

    def wait_until_configured(self) -> None:
        """Nothing to wait for."""

    def report_uncaught(self, error: BaseException) -> None:
        """Nobody to tell."""

    def stopped_for(self, error: BaseException, filters: frozenset[str]) -> None:
        """Nobody reports it."""

    def close(self) -> None:
        """Nothing to end."""

    @contextlib.contextmanager
    def kept_out(self) -> Iterator[None]:
        """Nothing to keep out."""
        yield

    def resume(self, step: Step | None) -> None:
        """Nothing to do."""

    def stop_at(self, frame: types.FrameType) -> None:
        """Nobody to stop."""
