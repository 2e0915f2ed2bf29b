"""Defines the results of a comparison as plain values, which ``dynamo-dap diff --json`` prints."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from dynamo_dap.records.model import Place

KINDS = ("function", "break", "guard", "graph", "kernel", "recompile", "skip", "value", "output", "exit status")
"""The kinds of differences, in the order in which those of one compile are listed."""


class Difference(Struct, rename="camel", omit_defaults=True, frozen=True):
    """One thing that differs between the two runs."""

    kind: Annotated[str, Meta(extra={"choices": KINDS})]
    text: str
    """What differs, in one line."""
    function: str | None = None
    """The user's function; None for the program's output."""
    compiles: list[str] = []
    """The compile's ids in A and in B, if both have one."""
    place: Place | None = None
    """The user's line in A, if there is one."""
    place_in_b: Place | None = None
    """The user's line in B."""
    diff: list[str] = []
    """Lines with ``-`` are of A only, with ``+`` of B only."""


class Numbers(Struct, rename="camel", frozen=True):
    """The counts and seconds of a run."""

    compiles: int
    graphs: int
    operations: int
    breaks: int
    recompiles: int
    guards: int
    seconds: float
    phases: dict[str, float]
    """Seconds of each phase, summed over all compiles."""


class Side(Struct, rename="camel", omit_defaults=True, frozen=True):
    """One of the two runs."""

    given: str
    """The user's argument for this side."""
    numbers: Numbers
    torch: str | None = None
    exit_status: int | None = None
    """Exit status of a command that was run."""


class KeyPart(Struct, rename="camel", frozen=True):
    """A part of a cache's key that differs, or a setting of torch."""

    name: str
    """As torch names it: ``inductor_config[cpp.threads]``, ``example_inputs[0]``."""
    in_a: str | None
    """The value in the run that filled the cache (for a tensor, only the differences).

    Empty if unreadable, None if missing.
    """
    in_b: str | None


class NotCached(Struct, rename="camel", frozen=True):
    """A compile of the second run that missed the caches."""

    function: str
    compile: str
    results: list[str]
    """Each cache with its answer: ``AOTAutograd cache miss``, ``FX graph cache hit``."""
    seconds: float
    """Duration of the whole compile."""
    place: Place | None
    """The user's line of the first operation that differs, else of the function."""
    reasons: list[str]
    """Torch's reasons for bypassing a cache, or for refusing an entry."""
    parts: list[KeyPart]
    """Parts that differ from the nearest key of the first run, without the graph."""
    text: str | None
    """Other facts about the keys."""
    diff: list[str]
    """The difference of the graphs: lines of A begin with ``-``, those of B with ``+``."""
    advice: list[str]
    served_when_tried: bool | None = None
    """With ``--try``: whether the tried change makes the compile a cache hit; None if it was not compiled then."""
    tried: str | None = None
    """The change: a setting of the first run, or an edit of the program. None if no change was tried."""
    edit: list[str] = []
    """The edit as a diff."""
    prints_the_same: bool | None = None
    """Whether the program with the edit prints the same, and has the same exit status; None without an edit."""


class JsonCaches(Struct, rename="camel", frozen=True):
    """The output of ``diff --caches --json``."""

    a: Side
    """The run that filled the caches."""
    b: Side
    hits: int
    """The number of compiles of the second run that hit the caches."""
    not_cached: list[NotCached]


class JsonDiff(Struct, rename="camel", frozen=True):
    """The output of ``diff --json``."""

    differs: bool
    a: Side
    b: Side
    differences: list[Difference]
    """The differences, the earliest first. Seconds are not compared: they vary from run to run."""
    settings: list[KeyPart]
    """Settings of torch that differ at the first compile, of trace logs and commands; a record has none."""
    not_compared: list[str]
    """What could not be compared, and why."""
