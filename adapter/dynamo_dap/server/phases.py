"""The phases of a session, and the errors for requests that come too early or too late. Constants only."""

from __future__ import annotations

from enum import Enum

from dynamo_dap.protocol.contract import ErrorId
from dynamo_dap.server.errors import RequestRefused


class Phase(Enum):
    """How far the session is. Requests for the program are taken while ``RUNNING`` only."""

    NEW = "before launch or attach"
    STARTING = "the program is starting, or restarting"
    RUNNING = "the program is there"
    ENDED = "the program has ended"


def refusal_in(phase: Phase) -> RequestRefused | None:
    """Return why a request for the program cannot be served in ``phase``, None when it can."""
    if phase is Phase.RUNNING:
        return None
    return RequestRefused(*_REFUSALS[phase])


_REFUSALS = {
    Phase.NEW: (ErrorId.NO_PROGRAM, "no program is being debugged: send 'launch' or 'attach' first"),
    Phase.STARTING: (ErrorId.PROGRAM_STARTING, "the program is still starting: wait for the 'initialized' event"),
    Phase.ENDED: (ErrorId.PROGRAM_ENDED, "the program has ended"),
}
