"""Merging capabilities: what the session can do is the union of what its parts can do."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from dynamo_dap.protocol.types import Capabilities


def union(parts: Iterable[Capabilities]) -> Capabilities:
    """Return capabilities with every flag that is true in some part, and the lists of all parts, without duplicates."""
    result = Capabilities()
    for part in parts:
        for name in part.__struct_fields__:
            offered = getattr(part, name)
            if offered is not None:
                setattr(result, name, _merged(getattr(result, name), offered))
    return result


def _merged(known: Any, offered: Any) -> Any:
    if known is None:
        return offered
    if isinstance(offered, list):
        return known + [item for item in offered if item not in known]
    return known or offered
