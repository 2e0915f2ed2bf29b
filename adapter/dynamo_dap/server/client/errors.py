"""Defines the refusal of a request: a stable id and a text for the user.

Raised on the event loop. The session sends it as a failure response.
"""

from __future__ import annotations

from dynamo_dap.protocol.requests.contract import ErrorId


class RequestRefused(Exception):
    """A request fails for a reason that the user should read."""

    def __init__(self, error_id: ErrorId, text: str, *, message: str = "", show_user: bool = False) -> None:
        """Create it; ``message`` is DAP's short form, such as ``cancelled``, or empty to send the text."""
        super().__init__(text)
        self.error_id = error_id
        self.text = text
        self.message = message
        self.show_user = show_user


class StartRefused(RequestRefused):
    """A program cannot be launched or attached to; the IDE shows the text to the user."""

    def __init__(self, error_id: ErrorId, text: str) -> None:
        super().__init__(error_id, text, show_user=True)
