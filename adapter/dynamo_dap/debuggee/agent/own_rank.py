"""Finds this process's rank in a distributed job, and provides the name ``rank`` in conditions. Runs on any thread.

A launcher sets the rank in the environment, and ``torch.multiprocessing.spawn`` numbers its processes. Any other
program passes the rank to its process group.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Container

from dynamo_dap.protocol.requests.ranks import Rank, rank_in

NAME = "rank"
"""The name for the rank in conditions, unless the program has a variable of that name."""

_spawned: Rank | None = None
_reported: Rank | None = None


def be_spawned_as(rank: Rank | None) -> None:
    """Use the rank that the parent gave this process when it spawned it."""
    global _spawned
    _spawned = rank


def own_rank() -> Rank | None:
    """Return this process's rank; None if it has none so far."""
    global _reported
    # Keep the rank: the program may remove these variables from its environment.
    _reported = _reported or (None if _spawned is not None else rank_in(os.environ))
    return _reported or _of_process_group() or _spawned


def _of_process_group() -> Rank | None:
    distributed = sys.modules.get("torch.distributed")
    try:
        if distributed is None or not distributed.is_available() or not distributed.is_initialized():
            return None
        local = None if _spawned is None else _spawned.local
        return Rank(distributed.get_rank(), local, distributed.get_world_size())
    except Exception:  # noqa: BLE001  (half imported, or of an unknown torch: the rank stays unknown)
        return None


def extra_names(*namespaces: Container[str]) -> dict[str, int]:
    """Return the names that conditions may use in addition to a frame's ``namespaces``."""
    if any(NAME in names for names in namespaces) or (rank := own_rank()) is None:
        return {}
    return {NAME: rank.number}
