"""Reads the buckets into which DistributedDataParallel cuts a graph, to reduce gradients during the backward pass.

Read when the cut graph has been compiled, on the compiling thread.
"""

from __future__ import annotations

from dataclasses import dataclass

_OPTIMIZER = "DDPOptimizer"


@dataclass(frozen=True)
class GraphBucket:
    """A part of a graph whose gradients are reduced together."""

    size: int
    """Bytes of the parameters."""
    parameters: list[str]
    """By their names in the graph."""
    nodes: list[str]
    """Names of the nodes, in the order of the graph."""


def buckets_of(backend: object) -> list[GraphBucket]:
    """Return the buckets of the graph that ``backend`` compiled last, in order; none without DDP.

    torch keeps them for its own tests, so some versions lack some of them.
    """
    optimizer = getattr(backend, "__self__", None)
    if type(optimizer).__name__ != _OPTIMIZER:
        return []
    try:
        return [
            GraphBucket(
                int(each.size), [str(name) for name in each.params], [str(node.name) for node in reversed(each.nodes)]
            )
            for each in getattr(optimizer, "buckets", [])
        ]
    except (AttributeError, TypeError):
        return []
