"""Signs the command in a record, which proves that the user's own process wrote it. Runs in any process."""

from __future__ import annotations

import msgspec

from dynamo_dap.protocol.access.signatures import is_signed, signature_of
from dynamo_dap.records.events import Started


def signed(started: Started) -> Started:
    """Return the event with a signature, or without one if this user's key cannot be stored."""
    return msgspec.structs.replace(started, signature=signature_of(_parts(started)))


def is_own(started: Started) -> bool:
    """Return whether a process of this user signed the command."""
    return is_signed(_parts(started), started.signature)


def _parts(started: Started) -> list[object]:
    """Return the parts of the event from which another run rebuilds the command."""
    return ["run", started.program, started.cwd, started.module]
