"""Signs the command in a record, so that it is known which records the user's own processes wrote. Any process."""

from __future__ import annotations

import msgspec

from dynamo_dap.protocol.signatures import is_signed, signature_of
from dynamo_dap.records.events import Started


def signed(started: Started) -> Started:
    """Return the event with a signature; without one where this user can keep no key."""
    return msgspec.structs.replace(started, signature=signature_of(_parts(started)))


def is_own(started: Started) -> bool:
    """Whether a process of this user has written that it ran this command."""
    return is_signed(_parts(started), started.signature)


def _parts(started: Started) -> list[object]:
    """Return everything from which a command is made when the program is run again."""
    return ["run", started.program, started.cwd, started.module]
