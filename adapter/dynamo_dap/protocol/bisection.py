"""How a program is run by ``dynamo-dap bisect``, and what such a run tells. Structs; any process, any thread."""

from __future__ import annotations

from msgspec import Struct


class BisectionRun(Struct, rename="camel", omit_defaults=True):
    """How a program is run once by ``dynamo-dap bisect``."""

    result: str
    """Where to write a ``BisectedBody``."""
    check: str | None = None
    """An expression that is true at the program's end if it ran well."""
    number: int | None = None
    """Which thing that the bisector may leave out is to be told, counted from 0."""
    settings: dict[str, bool] = {}
    """Inductor's settings to change."""


class BisectedPlace(Struct, rename="camel", omit_defaults=True, frozen=True):
    """A line of the user's."""

    path: str
    line: int
    function: str


class BisectedThing(Struct, rename="camel", omit_defaults=True):
    """A decomposition, a pass or a lowering."""

    name: str
    places: list[BisectedPlace] = []
    gone: list[str] = []
    """Operations that a pass took out or changed."""
    made: list[str] = []
    """What it made of them."""


class BisectedBody(Struct, rename="camel", omit_defaults=True):
    """What a run of a bisection tells."""

    count: int = 0
    """How many things the bisector could have left out."""
    thing: BisectedThing | None = None
    """The one that was asked for."""
    check: bool | None = None
    has_raised: bool = False
    """Whether an uncaught exception ended the program."""
    problem: str | None = None
    """Why this torch cannot be bisected."""
