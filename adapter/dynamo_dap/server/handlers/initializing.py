"""``initialize``: the capabilities of client and server."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dynamo_dap.protocol.contract import ErrorId
from dynamo_dap.protocol.types import Capabilities, InitializeRequestArguments
from dynamo_dap.server.agent_capabilities import AGENT_CAPABILITIES
from dynamo_dap.server.capabilities import union
from dynamo_dap.server.eager_capabilities import EAGER_CAPABILITIES
from dynamo_dap.server.errors import RequestRefused
from dynamo_dap.server.handling import handlers, handles

if TYPE_CHECKING:
    from dynamo_dap.server.session import Session


@handles("initialize", InitializeRequestArguments, before_initialize=True)
def initialize(session: Session, arguments: InitializeRequestArguments) -> Capabilities:
    """Tell what handlers and agent can do together."""
    if session.client.is_introduced:
        raise RequestRefused(ErrorId.INITIALIZED_TWICE, "'initialize' was sent before")
    session.client.introduce(arguments)
    return union([AGENT_CAPABILITIES, EAGER_CAPABILITIES, *(handler.capabilities for handler in handlers.values())])
