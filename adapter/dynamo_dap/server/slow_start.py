"""Tells the client what is waited for while a program starts, when that takes long.

Used on the loop; one for each life of the program. A start that is quick is not spoken of.
"""

from __future__ import annotations

import asyncio
import itertools

from dynamo_dap.protocol.types import ProgressEndEventBody, ProgressStartEventBody, ProgressUpdateEventBody
from dynamo_dap.server.client import Client

_PATIENCE = 2.0
"""Seconds before something is said."""

_numbers = itertools.count(1)


class SlowStart:
    """What is waited for, as the client's progress."""

    def __init__(self, client: Client, title: str) -> None:
        self._client = client
        self._title = title
        self._what = ""
        self._id: str | None = None
        """Of the progress that the client shows."""
        self._timer: asyncio.TimerHandle | None = None

    def waits_for(self, what: str) -> None:
        """From now on ``what`` is waited for."""
        self._what = what
        if self._id is not None:
            self._client.event("progressUpdate", ProgressUpdateEventBody(progress_id=self._id, message=what))
        elif self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_PATIENCE, self._show)

    def is_over(self) -> None:
        """Nothing is waited for any more. Harmless when nothing was."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._id is not None:
            self._client.event("progressEnd", ProgressEndEventBody(progress_id=self._id))
            self._id = None

    def is_shown_as(self, progress_id: str) -> bool:
        """Whether this is what the client knows under ``progress_id``."""
        return progress_id == self._id

    def _show(self) -> None:
        self._timer = None
        self._id = f"dynamo-start-{next(_numbers)}"
        body = ProgressStartEventBody(progress_id=self._id, title=self._title, message=self._what, cancellable=True)
        self._client.event("progressStart", body)
