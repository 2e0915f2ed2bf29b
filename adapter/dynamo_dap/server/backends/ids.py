"""Translates ids between the client and the two backends by arithmetic, without a table.

The backends number frames, variables, sources and locations independently. The client sees ``2n`` for the agent's ``n``
and ``2n + 1`` for debugpy's. Thread ids are the same in both backends and are not translated, nor are breakpoint ids
(``breakpoints``). Pure functions on raw JSON, used on the loop.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from dynamo_dap.protocol.wire.messages import ProtocolError

_OWNED = frozenset(
    {
        "declarationLocationReference",
        "frameId",
        "locationReference",
        "sourceReference",
        "valueLocationReference",
        "variablesReference",
    }
)
_FRAMES = "stackFrames"


@dataclass(frozen=True)
class IdSpace:
    """One backend's share of the client's ids; ``step`` is 1 for the only backend."""

    remainder: int
    step: int

    def to_client(self, raw: msgspec.Raw) -> msgspec.Raw:
        """Translate the ids in a backend's body to the client's."""
        return raw if self.step == 1 else _translated(raw, lambda number: number * self.step + self.remainder)

    def to_backend(self, raw: msgspec.Raw) -> msgspec.Raw:
        """Translate the ids in a client's arguments to the backend's.

        Raises:
            ProtocolError: a number is too large for a float.
        """
        return raw if self.step == 1 else _translated(raw, lambda number: number // self.step)

    def owns(self, number: int) -> bool:
        """Return whether the client's id ``number`` belongs to the backend."""
        return number % self.step == self.remainder


ALONE = IdSpace(0, 1)
AGENT = IdSpace(0, 2)
DEBUGPY = IdSpace(1, 2)


class _Source(msgspec.Struct, rename="camel"):
    source_reference: int | None = None


class References(msgspec.Struct, rename="camel"):
    """The arguments of a request that identify its backend."""

    thread_id: int | None = None
    frame_id: int | None = None
    variables_reference: int | None = None
    location_reference: int | None = None
    source_reference: int | None = None
    source: _Source | None = None

    @property
    def owned(self) -> int | None:
        """The id that identifies the owner, or None."""
        candidates = (
            self.frame_id,
            self.variables_reference,
            self.location_reference,
            self.source_reference,
            self.source.source_reference if self.source is not None else None,
        )
        return next((number for number in candidates if number), None)


def _translated(raw: msgspec.Raw, translate: Callable[[int], int]) -> msgspec.Raw:
    data = bytes(raw)
    if b"Reference" not in data and b"frameId" not in data and b"stackFrames" not in data:
        return raw
    try:
        value = msgspec.json.decode(data)
    except msgspec.ValidationError as problem:
        raise ProtocolError(f"the message has a number that no field can hold: {problem}") from None
    _translate(value, translate)
    return msgspec.Raw(msgspec.json.encode(value))


def _translate(value: object, translate: Callable[[int], int]) -> None:
    if isinstance(value, list):
        for item in value:
            _translate(item, translate)
    elif isinstance(value, dict):
        for name, item in value.items():
            if name in _OWNED and isinstance(item, int):
                value[name] = translate(item) if item > 0 else item
            elif isinstance(item, dict | list):
                _translate(item, translate)
        for frame in value.get(_FRAMES) or ():
            frame["id"] = translate(frame["id"])
