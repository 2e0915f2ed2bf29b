"""Signs the command in a record, which proves that the user's own process wrote it. Runs in any process."""

from __future__ import annotations

import msgspec

from dynamo_dap.protocol.signatures import is_signed, signature_of
from dynamo_dap.records.events import Started


def signed(started: Started) -> Started:
    """Return the event with a signature; unchanged if this user can keep no key."""
    return msgspec.structs.replace(started, signature=signature_of(_parts(started)))


def is_own(started: Started) -> bool:
    """Return whether a process of this user signed that it ran this command."""
    return is_signed(_parts(started), started.signature)


def _parts(started: Started) -> list[object]:
    """Return everything from which the command is rebuilt for another run."""
    return ["run", started.program, started.cwd, started.module]
