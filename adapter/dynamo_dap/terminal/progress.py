"""Prints the progress of long compiles, one line after another.

No line is overwritten, because the program may write to the same terminal.

Runs on the prompt's thread. Lives as long as its ``Debugger``.
"""

from __future__ import annotations

import time

from dynamo_dap.protocol.requests.contract import COMPILING
from dynamo_dap.protocol.wire.messages import Event, decode
from dynamo_dap.protocol.wire.types import ProgressStartEventBody, ProgressUpdateEventBody
from dynamo_dap.terminal.screen import Screen

_FIRST_PAUSE = 5.0


class Progress:
    """Prints a message when a part of a compile begins, and repeats it at growing intervals."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen
        self._id: str | None = None
        self._activity = ""
        self._next = 0.0
        self._pause = _FIRST_PAUSE

    def take(self, event: Event) -> None:
        """Show a compile's ``progressStart`` or ``progressUpdate``; ignore a launch, which has ended by now."""
        if event.event == "progressStart":
            begun = decode(event.body, ProgressStartEventBody, "progressStart event")
            if begun.title == COMPILING:
                self._id, self._activity = begun.progress_id, ""
                self._show(begun.message or "")
        else:
            updated = decode(event.body, ProgressUpdateEventBody, "progressUpdate event")
            if updated.progress_id == self._id:
                self._show(updated.message or "")

    def _show(self, message: str) -> None:
        activity, now = message.partition(" (")[0], time.monotonic()
        if activity != self._activity:
            self._pause = _FIRST_PAUSE
        elif now < self._next:
            return
        else:
            self._pause *= 2
        self._activity, self._next = activity, now + self._pause
        self._screen.note(message)
