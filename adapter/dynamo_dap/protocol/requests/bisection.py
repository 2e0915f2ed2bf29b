"""Defines the bisection of a compile: stages, parts, the search in a part, the report of a ``dynamo-dap bisect`` run.

``bisect`` runs whole programs, ``compare`` compiles one graph again: both try the same stages and parts. Runs in any
process, on any thread.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

STAGES = {
    "eager": "Dynamo's own trace",
    "aot_eager": "AOTAutograd",
    "aot_eager_decomp_partition": "decompositions and the partitioner",
    "inductor": "Inductor",
}
"""The compiler's stages; a run of a stage includes the earlier ones."""
DECOMPOSITIONS, LOWERINGS = "decomposition", "lowerings"
KINDS = {
    DECOMPOSITIONS: "the decomposition of",
    "pre_grad_passes": "the pre-grad pass",
    "joint_graph_passes": "the joint graph pass",
    "post_grad_passes": "the post-grad pass",
    LOWERINGS: "the lowering of",
}
"""What torch's bisector can disable, as the beginning of a phrase."""
PARTS = {
    "aot_eager_decomp_partition": (DECOMPOSITIONS,),
    "inductor": ("pre_grad_passes", "joint_graph_passes", "post_grad_passes", LOWERINGS),
}
"""The parts of each stage that torch's bisector can disable."""
SETTINGS = {
    "aot_eager_decomp_partition": {"cse": False},
    "inductor": {
        "fallback_random": True,
        "emulate_precision_casts": True,
        "layout_optimization": False,
        "comprehensive_padding": False,
    },
}
"""By stage: settings that are changed one at a time if no part alone is wrong."""
SETTING = "the setting"
"""The beginning of a phrase about a setting."""


def first_bad(count: int, is_good: Callable[[int], bool]) -> int:
    """Return the number of the item, among ``count``, that makes a compile wrong.

    ``is_good`` returns whether the compile is right with the items up to a number. The compile must be right without
    any item, and wrong with all of them.
    """
    good, bad = -1, count - 1
    while bad - good > 1:
        middle = (good + bad) // 2
        good, bad = (middle, bad) if is_good(middle) else (good, middle)
    return bad


class BisectionRun(Struct, rename="camel", omit_defaults=True):
    """One run of a program by ``dynamo-dap bisect``."""

    result: str
    """Where to write a ``BisectedBody``."""
    check: str | None = None
    """An expression that is true at the end of a good run."""
    number: int | None = None
    """The item to describe, among those that the bisector may disable; counted from 0."""
    settings: dict[str, bool] = {}
    """Changed Inductor settings."""


class BisectedPlace(Struct, rename="camel", omit_defaults=True, frozen=True):
    """A user line."""

    path: str
    line: int
    function: str


class BisectedItem(Struct, rename="camel", omit_defaults=True):
    """A decomposition, a pass or a lowering."""

    name: str
    places: list[BisectedPlace] = []
    gone: list[str] = []
    """Operations that a pass removed or changed."""
    made: list[str] = []
    """Their replacements."""


class BisectedBody(Struct, rename="camel", omit_defaults=True):
    """The report of a run of a bisection."""

    count: int = 0
    """How many items the bisector could have disabled."""
    item: BisectedItem | None = None
    """The requested item."""
    check: bool | None = None
    has_raised: bool = False
    """Whether an uncaught exception ended the program."""
    problem: str | None = None
    """Why this torch cannot be bisected."""
