"""The result of ``compare`` and the filter ``mismatch`` for a call: lines, stages, and what was not compared.

The debugged program makes it, clients print it. Plain values; any process, any thread.
"""

from __future__ import annotations

from msgspec import Struct

GRADIENTS = "gradients"
"""In ``ComparisonBody.not_compared``: they are compared once a backward pass comes through the call."""
NEVER_COMPARED = (
    "sizes of resized storages",
    "strides of gradients",
)
"""What ``dynamo-dap compare`` looks at in no call."""


class Deviation(Struct, rename="camel", omit_defaults=True):
    """How one stage's results differ from those of the stage before."""

    same: bool
    """Whether they are within the tolerances of ``differences``."""
    largest: float | None = None
    """The largest difference; missing if one side has an Inf or a NaN, or the shapes differ."""
    rmse: float | None = None
    error: float | None = None
    """The largest error against float64, where a run in it decided."""
    reference_error: float | None = None
    """That of the stage before."""


class ComparedLine(Struct, rename="camel", omit_defaults=True):
    """A user line in one call."""

    path: str
    line: int
    function: str
    text: str
    operations: list[str]
    """What the line put into the graph."""
    compiled: Deviation | None = None
    """The compiled graph's results against those of Dynamo's graph; missing where they cannot be had."""
    dynamo: Deviation | None = None
    """Those of Dynamo's graph against those of the function run as ordinary Python."""
    gradient: Deviation | None = None
    """The gradients that the line's operations give in the compiled graph, against those of Dynamo's graph."""


class JudgedStage(Struct, rename="camel", omit_defaults=True, frozen=True):
    """Whether a call is right if its graph is compiled up to a stage."""

    name: str
    """As ``dynamo-dap bisect`` names it, or the backend."""
    right: bool | None = None
    """Missing: the graph cannot be compiled up to this stage alone."""


class ComparisonBody(Struct, rename="camel", omit_defaults=True):
    """Body of the response to ``COMPARISON``; one line of what ``dynamo-dap compare --json`` prints."""

    function: str
    compile_id: str
    backend: str
    call: int
    """Which call of the graph it is, of those that were looked at."""
    verdict: str
    """The cause of a difference, or that nothing differs, as readable text."""
    same: bool
    outputs: Deviation
    """Of what the compiled graph returned, the output that differs most."""
    stage: str | None = None
    """The stage at fault."""
    part: str | None = None
    """The decomposition, pass or lowering without which nothing differs, if that is known."""
    stages: list[JudgedStage] = []
    """What was compiled to find the stage at fault: one stage more each time."""
    operation: str | None = None
    """The first operation that differs."""
    of_operation: Deviation | None = None
    """How its result, or the gradient that it passes back, differs."""
    path: str | None = None
    """Where the first line is that differs."""
    line: int | None = None
    lines: list[ComparedLine] = []
    problem: str | None = None
    """Why something is missing."""
    compared: bool = True
    """Whether the call was compared; ``verdict`` says why not."""
    evidence: list[str] = []
    """The runs that the verdict is based on."""
    not_compared: list[str] = []
    """What a caller can observe and was not compared."""
    zeros: int = 0
    """Elements of the outputs that are 0.0 in one graph and -0.0 in the other; these count as the same."""
    is_backward: bool = False
    """Whether this is a backward pass through the call: its gradients were compared."""
    token: str = ""
    """That of the call: a call and its backward passes have the same."""
