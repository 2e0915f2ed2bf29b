"""Digests of inputs and outputs of compiled graphs, for ``dynamo-dap diff --values``.

The program writes one line of JSON for each call. Plain values; any process, any thread.
"""

from __future__ import annotations

from msgspec import Struct

SUFFIX = ".jsonl"
RANDOM_STATE = "state of torch's random generators"
"""The name of an input of graphs that draw numbers."""


class HashedValue(Struct, rename="camel", omit_defaults=True):
    """A value, without its content."""

    name: str
    digest: str
    """Of type, sizes and bytes. All NaNs are one; 0.0 and -0.0 are two."""
    path: str | None = None
    """The user's line that makes it, where it is known."""
    line: int | None = None
    error: float | None = None
    """The largest error against a run of the graph in float64."""
    exact: float | None = None
    """The norm of that run's value: two runs with the same one have the same referee."""


class HashedCall(Struct, rename="camel", omit_defaults=True):
    """A call of a compiled graph, or a backward pass through one."""

    function: str
    compile_id: str
    number: int
    """The how many-th call of the graph."""
    path: str
    line: int
    """Of the function."""
    inputs: list[HashedValue]
    outputs: list[HashedValue]
    operations: list[HashedValue] = []
    """Dynamo's graph run on the same inputs, one operation after another."""
    problem: str | None = None
    """Why the operations are not known."""
    is_backward: bool = False
    is_on_main_thread: bool = True
