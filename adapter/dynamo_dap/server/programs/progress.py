"""Reports progress to the client while a start or a compile takes long.

Runs on the event loop. Each run of the debugged program has one ``SlowStart`` and one ``CompileProgress``.
"""

from __future__ import annotations

import asyncio
import itertools
from dataclasses import dataclass

from dynamo_dap.protocol.requests.contract import COMPILING, CompilingEventBody
from dynamo_dap.protocol.wire.types import ProgressEndEventBody, ProgressStartEventBody, ProgressUpdateEventBody
from dynamo_dap.server.backends.backend_events import StoppedThreads
from dynamo_dap.server.client.ide import Client

PATIENCE = 2.0
"""Seconds before a start shows a message."""
_PATIENCE_WITH_COMPILES = 5.0
_TICK = 1.0

_numbers = itertools.count(1)


class _Progress:
    """A progress that the client shows; it begins with its first message."""

    def __init__(self, client: Client, kind: str, title: str, *, cancellable: bool) -> None:
        self._client = client
        self._kind = kind
        self._title = title
        self._cancellable = cancellable
        self.id: str | None = None
        """The id that the client knows; None while it shows nothing."""

    def show(self, message: str) -> None:
        """Show ``message``."""
        if self.id is None:
            self.id = f"dynamo-{self._kind}-{next(_numbers)}"
            body = ProgressStartEventBody(
                progress_id=self.id, title=self._title, message=message, cancellable=self._cancellable
            )
            self._client.event("progressStart", body)
        else:
            self._client.event("progressUpdate", ProgressUpdateEventBody(progress_id=self.id, message=message))

    def end(self) -> None:
        """End the progress."""
        if self.id is not None:
            self._client.event("progressEnd", ProgressEndEventBody(progress_id=self.id))
            self.id = None


class SlowStart:
    """Shows what a start waits for, if it takes long."""

    def __init__(self, client: Client, title: str) -> None:
        self._progress = _Progress(client, "start", title, cancellable=True)
        self._activity = ""
        self._timer: asyncio.TimerHandle | None = None

    def waits_for(self, what: str) -> None:
        """Begin to wait for ``what``."""
        self._activity = what
        if self._progress.id is not None:
            self._progress.show(what)
        elif self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(PATIENCE, self._show)

    def is_over(self) -> None:
        """End the wait, if there is one."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._progress.end()

    def is_shown_as(self, progress_id: str) -> bool:
        """Return whether the client knows this wait as ``progress_id``."""
        return progress_id == self._progress.id

    def _show(self) -> None:
        self._timer = None
        self._progress.show(self._activity)


@dataclass
class _Compiling:
    what: str
    began: float
    """The time by the loop's clock. A stop restarts the measurement."""


class CompileProgress:
    """Shows the longest running compile, if it takes long. The time of a stop does not count."""

    def __init__(self, client: Client, stopped: StoppedThreads) -> None:
        self._progress = _Progress(client, "compile", COMPILING, cancellable=False)
        self._stopped = stopped
        self._threads: dict[int, _Compiling] = {}
        self._timer: asyncio.TimerHandle | None = None

    def take(self, reported: CompilingEventBody) -> None:
        """Note what a thread compiles."""
        if reported.what is None:
            self._threads.pop(reported.thread_id, None)
            if not self._threads:
                self.is_over()
            return
        loop = asyncio.get_running_loop()
        self._threads[reported.thread_id] = _Compiling(reported.what, loop.time())
        if self._timer is None:
            self._timer = loop.call_later(_TICK, self._tick)

    def is_over(self) -> None:
        """Forget every compile: all have ended, or the program has."""
        self._threads.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._progress.end()

    def _tick(self) -> None:
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(_TICK, self._tick)
        for thread_id in self._stopped.held:
            if (held := self._threads.get(thread_id)) is not None:
                held.began = loop.time()
        longest = min(self._threads.values(), key=lambda one: one.began)
        seconds = loop.time() - longest.began
        if seconds >= _PATIENCE_WITH_COMPILES:
            self._progress.show(f"{longest.what} ({seconds:.0f} s)")
        else:
            self._progress.end()
