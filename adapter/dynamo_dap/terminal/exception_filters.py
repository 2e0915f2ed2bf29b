"""Holds the exception filters of a terminal session, and recognizes exceptions that are about to end the program.

Runs on the prompt's thread; lives as long as the ``Debugger``.
"""

from __future__ import annotations

from dynamo_dap.protocol.connection import RequestFailed
from dynamo_dap.protocol.wire.types import StoppedEventBody
from dynamo_dap.terminal.client import Client

UNCAUGHT = "uncaught"
"""The filter for exceptions that end the program."""


class ExceptionFilters:
    """The filters of a session."""

    def __init__(self) -> None:
        self.names: list[str] = []
        """Those that the user chose."""
        self.has_uncaught = False
        """Whether to stop at uncaught exceptions in any case, as pdb does."""

    def send(self, client: Client) -> None:
        """Send the filters to the server."""
        offered = [one.filter for one in client.capabilities.exception_breakpoint_filters or []]
        adds = self.has_uncaught and UNCAUGHT in offered and UNCAUGHT not in self.names
        client.set_exception_filters([*self.names, *([UNCAUGHT] if adds else [])])


def is_uncaught(client: Client, stop: StoppedEventBody | None) -> bool:
    """Return whether a thread stopped at an exception that is about to end the program."""
    if stop is None or stop.reason != "exception" or stop.thread_id is None:
        return False
    try:
        return client.exception_info(stop.thread_id).break_mode == "unhandled"
    except RequestFailed:
        return False


def is_exit(client: Client, stop: StoppedEventBody | None) -> bool:
    """Return whether a thread stopped at ``SystemExit``, by which a program ends itself without an error."""
    return stop is not None and stop.text == "SystemExit" and is_uncaught(client, stop)


def headline_of(body: StoppedEventBody) -> str:
    """Return why a thread stopped, in one text."""
    headline = body.description or body.reason
    # Skip the first line of our own text, which repeats the headline. An ordinary exception's headline is its type.
    if body.reason == "exception" and body.text and not body.text.startswith(headline):
        is_type = body.text.replace(".", "").isidentifier()
        return f"{body.text}: {headline}" if is_type else f"{headline}: {body.text}"
    return body.text or body.description or f"Paused on {body.reason}"
