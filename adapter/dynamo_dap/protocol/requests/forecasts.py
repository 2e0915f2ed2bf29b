"""Defines the result of ``dynamo-dap forecast``: sizes that hit torch's cache entries, and the next compiles.

Any thread may use the structs.
"""

from __future__ import annotations

from msgspec import Struct


class VariedSize(Struct, rename="camel", omit_defaults=True, frozen=True):
    """Sizes that change together, and their range."""

    names: tuple[str, ...]
    """``x.shape[0]``."""
    first: int
    last: int


class Way(Struct, rename="camel", omit_defaults=True, frozen=True):
    """One way to declare sizes dynamic."""

    kind: str
    """``mark_dynamic``, ``dynamic`` or ``shapes_spec``."""
    first: int | None = None
    """The range of ``mark_dynamic`` or ``shapes_spec``; None for a mark without one."""
    last: int | None = None


class DeclaredFunction(Struct, rename="camel", omit_defaults=True, frozen=True):
    """A function that the program compiles with a declaration in every compile."""

    name: str
    path: str
    line: int
    size: VariedSize
    way: Way


class ForecastRun(Struct, rename="camel", omit_defaults=True):
    """The request for a forecast at the end of a program's run."""

    path: str
    """Where to write the ``ForecastBody``."""
    function: str | None = None
    """The name of a function; None for all."""
    sizes: list[VariedSize] = []
    """The sizes to change; by default those that may vary, each from ``first`` to ``last``."""
    first: int = 0
    last: int = 128
    calls: list[int] = []
    """Sizes to call the function with, in this order."""
    inputs: list[dict[str, int]] = []
    """Inputs to look up and to call with, each as the sizes and integers that change: ``{"x.shape[0]": 3, "n": 7}``."""
    warm_up: bool = False
    """Find a few calls after which nothing in the range compiles."""
    declared: list[DeclaredFunction] = []
    """Compile these with their declarations, and report nothing else."""


class ServedRange(Struct, rename="camel", omit_defaults=True):
    """Sizes from ``first`` to ``last``, both included, that match the same cache entry."""

    first: int
    last: int
    entry: str | None = None
    """The compile id of the entry; None for sizes that compile."""


class Verification(Struct, rename="camel", omit_defaults=True):
    """The effect of a declaration on a run of the program in a new process."""

    compiles: int = 0
    """How often the program compiled the function."""
    sizes: list[int] = []
    """The size of each call after the program."""
    compiled: list[int] = []
    """How many compiles each of these calls caused."""
    served: list[ServedRange] = []
    """Which entry matches each size."""
    breaks: bool = False
    """Whether the function has a graph break, in the program or in these calls."""
    problem: str | None = None
    """Why it is not verified."""


class ForecastTrial(Struct, rename="camel", omit_defaults=True):
    """Real calls after the program's end."""

    title: str
    """What was tried: ``mark_dynamic(x, 0)``, ``3, 5, 7``."""
    sizes: list[int] = []
    """The size of each call."""
    compiled: list[int] = []
    """How many compiles each call caused: of the function, its resume functions, and what it calls."""
    served: list[ServedRange] = []
    """Which entry matches each size after these calls."""
    problem: str | None = None
    """Why it was impossible, or what the call raised."""
    breaks: bool = False
    """Whether the declaration adds a graph break to the function."""
    way: Way | None = None
    """The declaration that was tried; None for a list of sizes."""
    verification: Verification | None = None
    """Set for a declaration that makes one entry serve every size, unless the request excludes verification."""


class WarmUp(Struct, rename="camel", omit_defaults=True):
    """Calls that compile everything for a range, in this order, starting with an empty cache."""

    sizes: list[int]
    served: list[ServedRange]
    """Which entry matches each size after these calls."""
    least: int = 0
    """The proven minimum: after fewer calls, some size still compiles."""
    apart: list[int] = []
    """Proves ``least``: no entry serves two of these sizes."""
    first_is_static: bool = False
    """Whether ``least`` includes one more call, the first, whose entry serves only its own size."""
    failing: dict[str, str] = {}
    """Sizes for which the function raises, each with its exception: no call can warm them up."""
    problem: str | None = None
    """What a call raised."""


class SizeForecast(Struct, rename="camel", omit_defaults=True):
    """The entries that would serve calls with other sizes, which otherwise equal the newest compiled call."""

    names: list[str]
    seen: list[int]
    """The size in the compiled calls."""
    served: list[ServedRange]
    trials: list[ForecastTrial] = []
    warm_up: WarmUp | None = None


class InputForecast(Struct, rename="camel", omit_defaults=True):
    """One of a list of inputs."""

    values: dict[str, int]
    entry: str | None = None
    """The compile id of the entry that serves it before any of the calls; None if it would compile."""
    compiled: int | None = None
    """How many compiles its call caused, when the inputs are called in order; None if it was not called."""
    problem: str | None = None
    """What the call raised."""


class FunctionForecast(Struct, rename="camel", omit_defaults=True):
    """One function that has cache entries."""

    name: str
    path: str
    line: int
    entries: list[str]
    """Compile ids, in the order in which torch tries them."""
    sizes: list[SizeForecast] = []
    inputs: list[InputForecast] = []
    breaks: bool = False
    """Whether the function has a graph break in the program."""
    problem: str | None = None
    """Why nothing is known about it."""


class ForecastBody(Struct, rename="camel", omit_defaults=True):
    """Every requested function."""

    functions: list[FunctionForecast] = []
    text: str = ""
    """The functions as readable text."""
