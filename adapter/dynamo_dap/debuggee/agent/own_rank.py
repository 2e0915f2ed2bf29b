"""Finds this process's rank in a distributed job, and provides the name ``rank`` in conditions. Runs on any thread.

A launcher sets the rank in the environment, and ``torch.multiprocessing.spawn`` numbers its processes. Any other
program passes the rank to its process group.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Container

from dynamo_dap.protocol.requests.ranks import Rank, rank_in

NAME = "rank"
"""The name for the rank in conditions, unless the program has a variable of that name."""

_spawned: Rank | None = None
_reported: Rank | None = None
_find_in_group: Callable[[], tuple[int, int] | None] | None = None


def be_spawned_as(rank: Rank | None) -> None:
    """Use the rank that the parent gave this process when it spawned it."""
    global _spawned
    _spawned = rank


def find_group_by(find: Callable[[], tuple[int, int] | None]) -> None:
    """Set the function that finds the rank in the program's process group, and the group's size.

    It returns None outside of a group.
    """
    global _find_in_group
    _find_in_group = find


def own_rank() -> Rank | None:
    """Return this process's rank; None if it has none so far."""
    global _reported
    # Keep the rank: the program may remove these variables from its environment.
    _reported = _reported or (None if _spawned is not None else rank_in(os.environ))
    return _reported or _of_process_group() or _spawned


def _of_process_group() -> Rank | None:
    found = None if _find_in_group is None else _find_in_group()
    return None if found is None else Rank(found[0], None if _spawned is None else _spawned.local, found[1])


def extra_names(*namespaces: Container[str]) -> dict[str, int]:
    """Return the names that conditions may use in addition to a frame's ``namespaces``."""
    if any(NAME in names for names in namespaces) or (rank := own_rank()) is None:
        return {}
    return {NAME: rank.number}
