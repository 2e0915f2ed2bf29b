"""Which process of a distributed job one is, and how a child process is told where to ask for a session.

Structs and pure functions; any process, any thread.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from msgspec import Struct

_VARIABLES = ("RANK", "LOCAL_RANK", "WORLD_SIZE")
"""What launchers of distributed jobs tell each of their processes."""


class Rank(Struct, rename="camel", omit_defaults=True, frozen=True):
    """A process of a job, as its launcher numbers it."""

    number: int
    local: int | None = None
    """Its number among those of its machine."""
    of: int | None = None
    """How many there are: the world size."""

    def __str__(self) -> str:
        return f"rank {self.number}" + ("" if self.local is None else f" (local {self.local})")


def rank_in(environment: Mapping[str, str]) -> Rank | None:
    """Return the rank that a launcher (torchrun, or one that does as it does) put into the environment."""
    number, local, of = (int(text) if (text := environment.get(name, "")).isdecimal() else None for name in _VARIABLES)
    return None if number is None else Rank(number, local, of)


def invitation_text(file: str, rank: Rank | None) -> str:
    """Return what a child is given: the file of an ``Invitation``, and its rank if whoever makes it knows that."""
    return file if rank is None else file + _MARK + msgspec.json.encode(rank).decode()


def read_invitation_text(text: str) -> tuple[str, Rank | None]:
    """Return what ``invitation_text`` was given."""
    file, mark, rank = text.rpartition(_MARK)
    return (file, msgspec.json.decode(rank, type=Rank)) if mark else (text, None)


_MARK = "#rank="
