"""Defines the data about each compile, for views (custom DAP requests), record files and reports.

The structs are plain values, without references to the debugged program, and for any thread. Names on the wire are in
camelCase; fields without a value are left out. A record can have a million of the small structs. They cannot form
cycles, so Python's garbage collector does not track them (``gc=False``).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from msgspec import Meta, Struct, field

from dynamo_dap.protocol.requests.cuda_graphs import CAUSES, OUTCOMES
from dynamo_dap.protocol.requests.sizes import SIZE_REASONS, SIZE_STATES

TRACING = "tracing"
"""The state of a compile that has not ended."""
STATES = (TRACING, "compiled", "skipped", "failed")


class Place(Struct, rename="camel", omit_defaults=True, frozen=True, gc=False):
    """A place in the user's code; ``line`` and ``column`` are 1-based."""

    path: str
    line: int
    column: int | None = None


class StackLine(Struct, rename="camel", omit_defaults=True, frozen=True, gc=False):
    """A frame of the user's stack."""

    place: Place
    function: str


class ProfiledFunction(Struct, rename="camel", omit_defaults=True, frozen=True):
    """Time of tracing a function, over all compiles; from a profiled run."""

    name: str
    place: Place
    traced: int
    """The number of times that it was traced, restarts included."""
    instructions: int
    seconds: float
    """The time in it, including the functions that it calls."""


class Attempt(Struct, rename="camel", omit_defaults=True):
    """One pass of Dynamo's analysis over a function."""

    number: int
    """Counted from 1."""
    restarted: str | None = None
    """Why the analysis started again after this attempt; None for the last."""


class Node(Struct, rename="camel", omit_defaults=True, frozen=True, gc=False):
    """A node of a graph."""

    name: str
    operation: str
    """FX's name: ``placeholder``, ``call_function`` ..."""
    target: str
    value: str | None = None
    """Its result, from the node's metadata: ``f32[3, 4]``."""
    place: Place | None = None
    expression: str | None = None
    """Its computation, as Python: ``x + 1``."""
    user_name: str | None = None
    """The user's name of an input, ``self.fc.weight``. Other nodes' expressions contain it instead of ``name``."""


class Bucket(Struct, rename="camel", omit_defaults=True, frozen=True):
    """A part of a graph. The gradients of its parameters are all-reduced together, while others are still computed."""

    size: int
    """Bytes of the parameters."""
    parameters: list[str]
    """As the user wrote them."""
    places: list[Place] = []
    """The lines of its operations."""


class Graph(Struct, rename="camel", omit_defaults=True):
    """A graph that Dynamo passed to the backend."""

    index: int
    name: str
    node_count: int
    operation_count: int
    """The number of nodes that compute something; ``torch._dynamo.explain`` does not count methods among its ops."""
    nodes: list[Node] = []
    """The nodes; of a large graph only the first ones, fewer than ``node_count``."""
    buckets: list[Bucket] = []
    """The parts into which DistributedDataParallel cut the graph, each compiled separately."""


class DataSymbol(Struct, rename="camel", omit_defaults=True, frozen=True, gc=False):
    """A number that the program computes from data: ``mask.nonzero().shape[0]``."""

    name: str
    """Torch's name: ``u0``."""
    user_name: str | None = None
    """As the user may write it at the break: ``n``, ``found.shape[0]``."""
    operation: str | None = None
    """The operation that made it: ``nonzero``."""
    place: Place | None = None
    """The user's line that made it."""
    range: str | None = None
    """Its possible values: ``0 … 6``."""


_TORCHS_PAGE = re.compile(r"https://(?:(?:docs\.)?pytorch\.org|meta-pytorch\.github\.io)/[\w./-]+")


class GraphBreak(Struct, rename="camel", omit_defaults=True):
    """Something that Dynamo could not trace."""

    reason: str
    """Torch's name of the kind of break, ``Data-dependent branching``; otherwise the first line of its message."""
    place: Place | None = None
    explanation: str | None = None
    hints: list[str] = []
    context: str | None = None
    """Torch's developer debug context."""
    id: str | None = None
    """Its id in torch's registry of graph breaks: ``GB0059``."""
    link: str | None = None
    """Torch's page about it."""
    effect: str | None = None
    """The effect on the function: where it resumes, or that the frame is skipped."""
    stack: list[StackLine] = []
    """The user's stack inside the compiled function, outermost first."""
    message: str | None = None
    """Torch's whole text."""
    at_fsdp_hook: bool = False
    """Whether it is at a hook of FSDP, which Dynamo must not trace. ``explanation`` and ``hints`` are ours then."""
    condition: str | None = None
    """The condition of a data-dependent branch, as the user may write it at the line: ``n == 3``."""
    data: list[DataSymbol] = []
    """The condition's numbers that depend on data."""

    def __post_init__(self) -> None:
        """Drop a link that does not lead to torch's pages: a record may contain any link."""
        if self.link is not None and _TORCHS_PAGE.fullmatch(self.link) is None:
            self.link = None


class Guard(Struct, rename="camel", omit_defaults=True, frozen=True, gc=False):
    """A condition under which the compiled code is valid."""

    expression: str
    type: str
    """The method of ``GuardBuilder``: ``TENSOR_MATCH`` ..."""
    place: Place | None = None
    """The user's line that caused it."""
    source: str | None = None
    """The guarded value, as the user wrote it: ``self.weight``."""
    text: str | None = None
    """The condition in plain words; None if torch's words are plain."""


class Symbol(Struct, rename="camel", omit_defaults=True, frozen=True, gc=False):
    """A dynamic size or number of compiled code."""

    name: str
    """``s77``"""
    source: str
    """The inputs that it represents, as the user wrote them: ``x.size()[0]``."""
    value: str | None = None
    """Its value in the call that was compiled."""
    range: str | None = None
    """Its possible values: ``2 … ∞``."""


class SizeReason(Struct, rename="camel", omit_defaults=True, frozen=True, gc=False):
    """One reason for the state of a size."""

    kind: Annotated[str, Meta(extra={"choices": SIZE_REASONS})]
    text: str
    """``it was 3 in an earlier call``"""
    place: Place | None = None
    """The user's line."""


class Size(Struct, rename="camel", omit_defaults=True, frozen=True, gc=False):
    """Why a size of an input is static or dynamic."""

    source: str
    """As the user wrote it: ``x.shape[0]``; ``12 sizes of parameters and buffers`` for all of them together."""
    state: Annotated[str, Meta(extra={"choices": SIZE_STATES})]
    symbol: str | None = None
    """``s77``; None for a size that never was a symbol."""
    value: str | None = None
    """Its value in the call that was compiled."""
    reasons: list[SizeReason] = []
    """In order of creation."""


class GuardFailure(Struct, rename="camel", omit_defaults=True, frozen=True, gc=False):
    """A guard of an earlier compile that failed and so caused a recompile."""

    compile_id: str
    expression: str
    """The guard that failed, in torch's words."""
    reason: str
    """The sentence that torch logs."""
    place: Place | None = None
    """The user's line that caused the guard."""
    value_then: str | None = None
    value_now: str | None = None
    object_now: int | None = None
    """A number for the object or type that failed an identity guard. Equal numbers mean the same object."""
    text: str | None = None
    """What changed since that compile, in plain words; None if torch's words are plain."""
    hint: str | None = None
    """Torch's own advice."""


class TracedValue(Struct, rename="camel", omit_defaults=True, frozen=True, gc=False):
    """The value of a name at a line, while a function was traced."""

    name: str
    text: str
    """``f32[s0, 4]``, ``s0 + 1``, ``[f32[3], 2]``, ``'mean'``"""
    place: Place
    """Where it was assigned (column in bytes); for a parameter, the function's line."""
    source: str | None = None
    """Its origin as the user wrote it: ``self.weight``; None if the function computed it."""
    has_tensor: bool = False
    """Whether it is or contains a tensor or a symbolic number."""
    is_parameter: bool = False


class TracedFunction(Struct, rename="camel", omit_defaults=True, frozen=True, gc=False):
    """A user's function in a trace: the compiled one, or an inlined one."""

    name: str
    place: Place
    lines: list[int]
    """Every line with code."""
    traced: list[int]
    """The lines that Dynamo traced in this compile."""


class CudaGraph(Struct, rename="camel", omit_defaults=True, gc=False):
    """Events of a compile's CUDA graphs, for one reason at one line."""

    outcome: Annotated[str, Meta(extra={"choices": OUTCOMES})]
    cause: Annotated[str | None, Meta(extra={"choices": CAUSES})] = None
    text: str = ""
    """What happened, in one line."""
    place: Place | None = None
    """The user's line that caused it."""
    caller: Place | None = None
    """The user's calling line, for an event while the program ran."""
    is_backward: bool = False
    times: int = 1
    """How often."""


class ShapeEvent(Struct, rename="camel", omit_defaults=True, frozen=True, gc=False):
    """An event of a symbolic size in a trace, from torch's trace log."""

    kind: str
    """Torch's name of the event: ``create_symbol``, ``guard_added``, ``propagate_real_tensors``."""
    text: str
    """``s77 = 8, L['x'].size()[0]``; ``s77 > 5``"""
    place: Place | None = None
    """The user's line."""


class ExportProblem(Struct, frozen=True):
    """A problem that ``torch.export.draft_export`` reported in torch's trace log."""

    kind: str
    """Torch's name of the event: ``missing_fake_kernel``, ``guard_added``."""
    subject: str
    """The operator, or the assumption: ``x.size()[0] == 6``."""
    reason: str = ""
    place: Place | None = None
    """The user's line."""


class CacheLookup(Struct, rename="camel", omit_defaults=True, frozen=True, gc=False):
    """One cache's answer to a compile."""

    cache: str
    """``FX graph cache``, ``AOTAutograd cache``, ``Triton cache``"""
    result: str
    """``hit``, ``miss``, ``bypass``; ``refused`` if torch does not load an entry"""
    key: str | None = None
    reason: str | None = None
    """Why it was bypassed or refused."""
    components: list[str] = []
    """The parts of the key, each with a digest: ``[abc...] inductor_config[cpp.threads]: -1``; up to a bound."""
    saved: float | None = None
    """Seconds of compile time that a hit saved, as torch counts them."""


class RaisedCall(Struct, rename="camel", omit_defaults=True, frozen=True, gc=False):
    """A call that raised while its compiled code ran."""

    problem: str
    """``IndexError: index 7 is out of bounds``"""
    operation: str | None = None
    """The operation or kernel that raised."""
    places: list[Place] = []
    """The lines that the operation or kernel computes."""
    kernel: Place | None = None
    """The user's innermost line that ran, in a custom operator's kernel or in a backend."""
    caller: Place | None = None
    """The user's line that called the function, or ``backward()``."""
    is_backward: bool = False
    """Whether the compiled backward pass raised."""


class Sharding(Struct, rename="camel", omit_defaults=True, frozen=True):
    """FSDP's (``fully_shard``) settings for the module of the compiled method."""

    name: str
    """The module's name in the compiled call: ``layers.0``; empty for the model itself."""
    parameters: int
    size: int
    """Bytes of its gathered parameters."""
    ranks: int
    """The number of ranks over which they are sharded."""
    is_gathered: bool
    """Whether a hook outside any graph had gathered them before the compile."""
    is_sharded_again: bool
    """Whether they are freed after the forward, and gathered again for the backward."""


class Compile(Struct, rename="camel", omit_defaults=True):
    """One compile of one frame."""

    id: str
    """Dynamo's compile id, ``0/1``; ``0/1#2`` if it is used again after ``torch.compiler.reset()``."""
    name: str
    """The frame's name: ``fn``, ``fn (resumed at line 8)``."""
    state: Annotated[str, Meta(extra={"choices": STATES})] = TRACING
    place: Place | None = None
    seconds: float | None = None
    """Its duration, without stops of a debugger."""
    recompiled: list[str] = []
    """Why earlier compiles could not be used, one sentence each."""
    failures: list[GuardFailure] = []
    attempts: list[Attempt] = field(default_factory=lambda: [Attempt(1)])
    graphs: list[Graph] = []
    breaks: list[GraphBreak] = []
    guard_count: int = 0
    guards: list[Guard] = []
    symbols: list[Symbol] = []
    """Its dynamic sizes and numbers."""
    sizes: list[Size] = []
    """Why each input size is static or dynamic; up to a bound."""
    problem: str | None = None
    """Why it was skipped or failed."""
    problem_place: Place | None = None
    """The user's line that caused the failure."""
    resumes: list[Place] = []
    """Lines at which functions resume after a graph break."""
    backend: str | None = None
    phases: dict[str, float] = {}
    """Seconds of torch's phases: ``dynamo``, ``aot_autograd``, ``inductor`` ...; they include a debugger's stops."""
    specializations: list[Specialization] = []
    artifacts: list[str] = []
    """Files that the backend wrote: Inductor's output code."""
    kernels: list[str] = []
    """The kernels in these files: fused ones, and library kernels that they call."""
    caches: dict[str, int] = {}
    """Hits, misses and bypasses of caches of compiled graphs: ``FX graph cache hit``."""
    lookups: list[CacheLookup] = []
    """Each cache's answer, in order."""
    shapes: list[ShapeEvent] = []
    """Events of symbolic sizes, from torch's trace logs only."""
    generated: str | None = None
    """The bytecode that Dynamo generated, disassembled; up to a bound."""
    limit: str | None = None
    """The exceeded limit, ``recompile_limit``. The function then runs eagerly."""
    caller: Place | None = None
    """The user's line that called the function."""
    stack: list[StackLine] = []
    """The calling frames outside torch, outermost first."""
    values: list[TracedValue] = []
    traced: list[TracedFunction] = []
    began: float | None = None
    """Seconds since the epoch."""
    sharding: Sharding | None = None
    """FSDP's settings for its module."""
    module: int | None = None
    """The number of its method's module, from 1 in order of compilation. Modules of one class share the code."""
    cuda_graphs: list[CudaGraph] = []
    """Events of its CUDA graphs; empty if there are none."""
    raised: list[RaisedCall] = []
    """Its calls that raised, once per kind; up to a bound."""
    is_shortened: bool = False
    """Whether its nodes, guards and stacks were dropped: see ``Record.shorten``."""


class Specialization(Struct, rename="camel", omit_defaults=True, frozen=True, gc=False):
    """A symbolic size that became a constant."""

    expression: str
    """``L['x'].size()[0] == 4``"""
    place: Place | None = None


class SkippedFrame(Struct, rename="camel", omit_defaults=True, frozen=True, gc=False):
    """A user function that Dynamo decided not to trace."""

    name: str
    reason: str
    place: Place | None = None


class CompiledFunction(Struct, rename="camel", omit_defaults=True):
    """A user function, with every compile of it and of its resume functions."""

    name: str
    place: Place | None = None
    compiles: list[Compile] = []


# -- counts, as ``torch._dynamo.explain`` has them -------------------------------------------------------------------


@dataclass(frozen=True)
class Counts:
    """Counts over several compiles."""

    compiles: int
    graphs: int
    operations: int
    breaks: int
    breaks_with_graph: int
    """Breaks that ended a graph: ``break_reasons`` in ``torch._dynamo.explain``."""
    recompiles: int
    guards: int
    seconds: float


def counts_of(compiles: Sequence[Compile]) -> Counts:
    """Return the counts over some compiles."""
    return Counts(
        compiles=len(compiles),
        graphs=sum(len(one.graphs) for one in compiles),
        operations=sum(graph.operation_count for one in compiles for graph in one.graphs),
        breaks=sum(len(one.breaks) for one in compiles),
        breaks_with_graph=sum(len(one.breaks) for one in compiles if one.graphs),
        recompiles=sum(bool(one.failures) for one in compiles),
        guards=sum(one.guard_count for one in compiles),
        seconds=sum(one.seconds or 0.0 for one in compiles),
    )


def shares_of(compiled: Compile) -> dict[str, float]:
    """Return each stage's own seconds in a compile; torch includes inner stages in outer ones."""
    phases = compiled.phases
    whole = phases.get("whole frame", 0.0)
    stages = [phases.get(name, 0.0) for name in ("backend", "inductor", "inductor code")]
    shares = [whole - stages[0], stages[0] - stages[1], stages[1] - stages[2], stages[2]]
    found = {name: max(share, 0.0) for name, share in zip(STAGES, shares, strict=True)}
    return {name: share for name, share in found.items() if share >= _SHORTEST}


STAGES = ("Dynamo", "AOTAutograd", "Inductor", "kernels")
"""Tracing; differentiating and decomposing; scheduling and fusing; writing and compiling kernels."""
_SHORTEST = 0.005
