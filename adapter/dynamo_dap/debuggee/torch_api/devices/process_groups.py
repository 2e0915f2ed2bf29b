"""Reads this process's rank from the process group that the program has made. Runs on any thread, without state."""

from __future__ import annotations

import sys


def rank_in_group() -> tuple[int, int] | None:
    """Return the rank in the default process group, and the group's size; None without a group."""
    distributed = sys.modules.get("torch.distributed")
    try:
        if distributed is None or not distributed.is_available() or not distributed.is_initialized():
            return None
        return distributed.get_rank(), distributed.get_world_size()
    except Exception:  # noqa: BLE001  (half imported, or of an unknown torch: the rank stays unknown)
        return None
