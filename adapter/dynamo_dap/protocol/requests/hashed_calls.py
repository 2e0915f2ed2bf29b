"""Defines digests of inputs and outputs of compiled graphs, for ``dynamo-dap diff --values``.

The program writes one line of JSON for each call. The values are plain, for any process and thread.
"""

from __future__ import annotations

from msgspec import Struct

SUFFIX = ".jsonl"
RANDOM_STATE = "state of torch's random generators"
"""The input of graphs that draw random numbers."""


class HashedValue(Struct, rename="camel", omit_defaults=True):
    """A value, without its content."""

    name: str
    digest: str
    """Digest of type, sizes and bytes. All NaNs are equal; 0.0 and -0.0 differ."""
    path: str | None = None
    """The user's line that computes it, if known."""
    line: int | None = None
    error: float | None = None
    """The largest error against a run of the graph in float64."""
    exact: float | None = None
    """The norm of the float64 run's value. ``error`` can be compared only if this norm is equal on both sides."""


class HashedCall(Struct, rename="camel", omit_defaults=True):
    """A call of a compiled graph, or a backward pass through one."""

    function: str
    compile_id: str
    number: int
    """Its number among the calls of this graph."""
    path: str
    line: int
    """The function's line."""
    inputs: list[HashedValue]
    outputs: list[HashedValue]
    operations: list[HashedValue] = []
    """The results of Dynamo's graph on the same inputs, one operation after another."""
    problem: str | None = None
    """Why the operations are unknown."""
    is_backward: bool = False
    is_on_main_thread: bool = True
