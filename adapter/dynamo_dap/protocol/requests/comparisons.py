"""Defines the result of ``compare`` and of the filter ``mismatch`` for a call: lines, stages, what was not compared.

The debugged program makes it, clients print it. The values are plain, for any process and thread.
"""

from __future__ import annotations

from msgspec import Struct

GRADIENTS = "gradients"
"""In ``ComparisonBody.not_compared``: gradients are compared at the first backward pass through the call."""
RUNNING = ".running"
"""Suffix of a further file, which names the call that the program compares now; the file is empty between calls."""
CALLS = ".calls"
"""Suffix of a further file: at its end, each process adds a line with its id and the number of its calls."""
NOTHING_DIFFERS = "nothing differs."
"""The verdict on a call whose results are equal, apart from rounding."""
NEVER_COMPARED = ("strides of gradients",)
"""Properties that ``dynamo-dap compare`` never compares."""


class Deviation(Struct, rename="camel", omit_defaults=True):
    """How one stage's results differ from those of the stage before."""

    same: bool
    """Whether the differences are within the tolerances of ``differences``."""
    largest: float | None = None
    """The largest difference; missing if one side has an Inf or a NaN, or the shapes differ."""
    rmse: float | None = None
    error: float | None = None
    """The largest error against float64, if a float64 run decided."""
    reference_error: float | None = None
    """The previous stage's largest error against float64, if a float64 run decided."""
    rounding: str | None = None
    """Differences that rounding explains: errors in percent, which may hide a defect, or the number of integers."""


class ComparedLine(Struct, rename="camel", omit_defaults=True):
    """A user line in one call."""

    path: str
    line: int
    function: str
    text: str
    operations: list[str]
    """The line's operations in the graph."""
    compiled: Deviation | None = None
    """How the compiled graph's results differ from those of Dynamo's graph; missing if unavailable."""
    dynamo: Deviation | None = None
    """How the results of Dynamo's graph differ from eager."""
    gradient: Deviation | None = None
    """How the gradients of the line's operations differ between the compiled graph and Dynamo's."""


class JudgedStage(Struct, rename="camel", omit_defaults=True, frozen=True):
    """Whether a call is right with its graph compiled up to a stage."""

    name: str
    """Its name in ``dynamo-dap bisect``, or the backend."""
    right: bool | None = None
    """Missing if the graph cannot be compiled only up to this stage."""


class ComparisonBody(Struct, rename="camel", omit_defaults=True):
    """Body of the response to ``COMPARISON``; one line of the output of ``dynamo-dap compare --json``."""

    function: str
    compile_id: str
    backend: str
    call: int
    """The number of the call among those compared."""
    verdict: str
    """The cause of a difference, or that nothing differs, as readable text."""
    same: bool
    outputs: Deviation
    """The output of the compiled graph that differs most."""
    stage: str | None = None
    """The wrong stage."""
    part: str | None = None
    """The decomposition, pass or lowering without which nothing differs, or the setting with which nothing does."""
    stages: list[JudgedStage] = []
    """The compiles that found the wrong stage; each adds a stage to the one before."""
    operation: str | None = None
    """The first operation that differs."""
    of_operation: Deviation | None = None
    """How its result differs, or the gradient that it passes back."""
    path: str | None = None
    """The file of the first line that differs."""
    line: int | None = None
    lines: list[ComparedLine] = []
    problem: str | None = None
    """Why something is missing."""
    below_dynamo: bool = False
    """Whether nothing differs, but Dynamo's graph was not compared with ordinary Python; ``problem`` says why."""
    compared: bool = True
    """Whether the call was compared; if not, ``verdict`` says why."""
    evidence: list[str] = []
    """The runs that prove the verdict."""
    not_compared: list[str] = []
    """Observable properties of the call that were not compared."""
    zeros: int = 0
    """Elements of the outputs that are 0.0 in one graph and -0.0 in the other; these count as equal."""
    is_backward: bool = False
    """Whether this is a backward pass of the call, whose gradients were compared."""
    token: str = ""
    """Equal for a call and its backward passes."""
