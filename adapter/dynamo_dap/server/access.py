"""Access control: over TCP, only clients that know the access token may use the server. Immutable; used on the loop."""

from __future__ import annotations

import hmac
from dataclasses import dataclass

from dynamo_dap.protocol.contract import ErrorId
from dynamo_dap.server.errors import RequestRefused


@dataclass(frozen=True)
class Access:
    """The rule for one connection. ``token`` is None for a client that started the server itself, over pipes."""

    token: str | None = None

    def check(self, given: str | None) -> None:
        """Raise ``RequestRefused`` unless ``given`` is the token, or none is needed."""
        if self.token is None:
            return
        if given is None:
            text = 'this server needs an access token: give "accessToken" in the launch or attach configuration'
            raise RequestRefused(ErrorId.ACCESS_DENIED, text, show_user=True)
        if not hmac.compare_digest(self.token.encode(), given.encode()):
            raise RequestRefused(ErrorId.ACCESS_DENIED, "the access token is not this server's", show_user=True)
