"""``terminate`` and ``disconnect``."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING

from dynamo_dap.protocol.types import Capabilities, DisconnectArguments, TerminateArguments
from dynamo_dap.server.handling import handles

if TYPE_CHECKING:
    from dynamo_dap.server.session import Session


@handles("terminate", TerminateArguments, brings=Capabilities(supports_terminate_request=True))
def terminate(session: Session, arguments: TerminateArguments) -> None:
    """Ask the program to end by itself."""
    session.terminate()


@handles(
    "disconnect",
    DisconnectArguments,
    brings=Capabilities(support_terminate_debuggee=True),
    before_initialize=True,
)
def disconnect(session: Session, arguments: DisconnectArguments) -> Awaitable[None]:
    """End the session: kill what was launched or let go what was attached to, unless told otherwise."""
    # Begun at once, and not by a task that has yet to start: clients may close the connection in the next moment.
    session.end(kill=arguments.terminate_debuggee)
    return session.wait_until_program_left()
