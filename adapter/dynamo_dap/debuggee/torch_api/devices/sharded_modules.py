"""Reads FSDP2's state of modules (``fully_shard``), and recognizes graph breaks at its hooks.

FSDP gathers the parameters of such a module in a hook before its forward, and shards them again in a hook after it. It
keeps Dynamo out of both. Read on the compiling thread, when a compile begins or breaks; nothing of FSDP is imported.
"""

from __future__ import annotations

import types
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

_FSDP = "torch.distributed.fsdp"
_MODULE = "FSDPModule"
_FILES = "/torch/distributed/fsdp/"
_DISABLED = "skipping FSDP hooks"
"""The reason that FSDP gives for keeping Dynamo out."""

EXPLANATION = (
    "The module that is called here was given to fully_shard: FSDP gathers its parameters from all ranks in a hook "
    "before its forward, and shards them again in a hook after it. FSDP keeps Dynamo out of these hooks, so a graph "
    "ends at the call. The forward of the module is compiled by itself."
)
_BLOCKS = (
    "compile the blocks that fully_shard gets, and not their callers: "
    "for block in model.blocks: block.compile(); fully_shard(block)"
)
_EXPECT_BREAKS = (
    "else expect this break at each call: the code between the calls is compiled in pieces, and a function that "
    "calls them in a loop is not compiled"
)
HINTS = (_BLOCKS, _EXPECT_BREAKS)


@dataclass(frozen=True)
class ModuleSharding:
    """FSDP's settings for the parameters of a module."""

    name: str
    """In the model: ``layers.0``; empty for the model itself."""
    parameters: int
    size: int
    """Bytes of its gathered parameters."""
    ranks: int
    """Over how many ranks they are sharded."""
    is_gathered: bool
    """Whether they are gathered at that time."""
    is_sharded_again: bool
    """Whether they are freed after the forward, and gathered again for the backward."""


def sharding_of(frame_locals: dict[str, Any], code: types.CodeType) -> ModuleSharding | None:
    """Return FSDP's settings for the module whose method is compiled; None for any other function.

    Facts are left out if this torch version stores them differently.
    """
    # In a resume function other arguments precede it.
    names = [*code.co_varnames[: min(1, code.co_argcount)], "self"]
    module = next((frame_locals[name] for name in names if _is_sharded(frame_locals.get(name))), None)
    if module is None:
        return None
    try:
        groups: list[Any] = list(module._get_fsdp_state()._fsdp_param_groups)
        parameters = [one for group in groups for one in group.fsdp_params]
        if not parameters:
            return None
        return ModuleSharding(
            ", ".join(dict.fromkeys(str(group._module_fqn or "") for group in groups)),
            len(parameters),
            sum(int(one._orig_size.numel()) * int(one.orig_dtype.itemsize) for one in parameters),
            max(int(group.mesh_info.shard_mesh_size) for group in groups),
            all(bool(group.is_unsharded) for group in groups),
            any(group.post_forward_mesh_info is not None for group in groups),
        )
    except (AttributeError, TypeError):
        return None


def _is_sharded(value: object) -> bool:
    return any(kind.__name__ == _MODULE and kind.__module__.startswith(_FSDP) for kind in type(value).__mro__)


def is_at_hook(stack: Iterable[Any], message: str) -> bool:
    """Return whether a graph break is at FSDP's hook, by the traced frames and torch's message."""
    return _DISABLED in message or any(_FILES in str(frame.filename).replace("\\", "/") for frame in stack)
