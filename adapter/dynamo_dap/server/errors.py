"""Why a request is refused: stable ids and a text for a person.

Raised on the loop, and turned into a failure response there.
"""

from __future__ import annotations

from enum import IntEnum


class ErrorId(IntEnum):
    """Ids of the server's failure responses. Never renumber: clients and logs refer to them."""

    INTERNAL = 1000
    INVALID_ARGUMENTS = 1001
    UNKNOWN_REQUEST = 1002
    NOT_INITIALIZED = 1003
    INITIALIZED_TWICE = 1004
    ACCESS_DENIED = 1005
    STARTED_TWICE = 1006
    NO_PROGRAM = 1010
    PROGRAM_STARTING = 1011
    PROGRAM_ENDED = 1012
    AGENT_GONE = 1013
    NOT_EAGER = 1014
    INVALID_OPTION = 1020
    CANNOT_START = 1021
    DIED_BEFORE_CONNECTING = 1022
    CONNECT_TIMEOUT = 1023
    CANNOT_ATTACH = 1024
    AGENT_REFUSED = 1025
    TERMINAL_UNSUPPORTED = 1026
    TERMINAL_FAILED = 1027
    NOT_RESTARTABLE = 1028
    CANCELLED = 1030
    SESSION_ENDING = 1031


class RequestRefused(Exception):
    """A request fails for a reason that a person should read."""

    def __init__(self, error_id: ErrorId, text: str, *, message: str = "", show_user: bool = False) -> None:
        """``message`` is DAP's short machine-readable form (``cancelled``), the text itself when there is none."""
        super().__init__(text)
        self.error_id = error_id
        self.text = text
        self.message = message
        self.show_user = show_user


class StartRefused(RequestRefused):
    """A program cannot be launched or attached to; the IDE shows the text to the user."""

    def __init__(self, error_id: ErrorId, text: str) -> None:
        super().__init__(error_id, text, show_user=True)
