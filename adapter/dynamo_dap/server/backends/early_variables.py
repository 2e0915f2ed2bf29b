"""Gets an ordinary frame's local variables from debugpy together with its scopes, which saves a round trip.

Clients ask for ``scopes`` and then for the ``variables`` of the first one. debugpy gets one request for both
(``LOCALS_ALONG``); this module answers the client's second request. The variables are used once, within a tenth of a
second. A request that may change a value or resume a thread drops them, and so does its answer. Runs on the event loop,
one per session.
"""

from __future__ import annotations

import time

import msgspec

from dynamo_dap.protocol.requests.contract import LOCALS_ALONG
from dynamo_dap.protocol.wire.messages import Response, decode, encode_body
from dynamo_dap.protocol.wire.types import Scope

_SECONDS = 0.1
_LOOKS = frozenset({"exceptionInfo", "modules", "scopes", "source", "stackTrace", "threads", "variables"})
"""Requests that change nothing in the program."""


class _Body(msgspec.Struct):
    scopes: list[Scope]
    along: msgspec.Raw = msgspec.field(default=msgspec.Raw(), name=LOCALS_ALONG)


class _Asked(msgspec.Struct, forbid_unknown_fields=True, rename="camel"):
    """Arguments that request all local variables in their usual form."""

    variables_reference: int


class EarlyVariables:
    """Variables that arrived early, before the client asked for them."""

    def __init__(self) -> None:
        self._bodies: dict[int, tuple[float, msgspec.Raw]] = {}
        """By reference: bodies of answers to ``variables``, with their time of arrival."""
        self._changes = 0

    def drop_if_changed_by(self, command: str) -> None:
        """Drop kept values if ``command``, sent or answered now, may have changed them."""
        if command not in _LOOKS:
            self._changes += 1
            self._bodies.clear()

    @property
    def changes(self) -> int:
        """How often kept values were dropped. Compare it between a request for scopes and the answer."""
        return self._changes

    def arguments(self, arguments: msgspec.Raw) -> msgspec.Raw:
        """Return arguments for ``scopes`` that also ask for the variables."""
        return encode_body({**decode(arguments, dict[str, object], "arguments of 'scopes'"), LOCALS_ALONG: True})

    def keep(self, response: Response, changes: int) -> Response:
        """Return debugpy's answer to ``scopes`` without the variables, which are kept if ``changes`` is unchanged."""
        if LOCALS_ALONG.encode() not in bytes(response.body):
            return response
        body = msgspec.json.decode(bytes(response.body), type=_Body)
        if bytes(body.along) and changes == self._changes:
            self._bodies[body.scopes[0].variables_reference] = time.monotonic(), body.along
        whole = msgspec.json.decode(bytes(response.body), type=dict[str, msgspec.Raw])
        whole.pop(LOCALS_ALONG, None)
        return msgspec.structs.replace(response, body=encode_body(whole))

    def take(self, arguments: msgspec.Raw) -> msgspec.Raw | None:
        """Return the body of the answer to ``variables``, once; None if debugpy must answer."""
        if not self._bodies:
            return None
        try:
            reference = msgspec.json.decode(bytes(arguments), type=_Asked).variables_reference
        except msgspec.ValidationError:
            return None
        came, body = self._bodies.pop(reference, (0.0, None))
        return body if time.monotonic() - came < _SECONDS else None
