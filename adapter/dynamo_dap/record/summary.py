"""Counts over a session, as ``torch._dynamo.explain`` has them, for the whole program and for each function."""

from __future__ import annotations

from dataclasses import dataclass

from dynamo_dap.record.model import Compile, CompiledFunction
from dynamo_dap.record.session import Session


@dataclass(frozen=True)
class Counts:
    """What there is."""

    compiles: int
    graphs: int
    operations: int
    breaks: int
    breaks_with_graph: int
    """Those that ended a graph: what ``torch._dynamo.explain`` has as ``break_reasons``."""
    recompiles: int
    guards: int
    seconds: float


def counts_of(compiles: list[Compile]) -> Counts:
    """Count over some compiles."""
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


def counts_of_function(function: CompiledFunction) -> Counts:
    """Count over the compiles of a function and of its rest after graph breaks."""
    return counts_of(function.compiles)


def counts_of_session(session: Session) -> Counts:
    """Count over everything."""
    return counts_of([compiled for _, compiled in session.compiles()])


def shares_of(compiled: Compile) -> dict[str, float]:
    """Return what each stage of a compile took by itself, in seconds; torch counts a stage into the one around it."""
    phases = compiled.phases
    whole = phases.get("whole frame", 0.0)
    stages = [phases.get(name, 0.0) for name in ("backend", "inductor", "inductor code")]
    shares = [whole - stages[0], stages[0] - stages[1], stages[1] - stages[2], stages[2]]
    found = {name: max(share, 0.0) for name, share in zip(STAGES, shares, strict=True)}
    return {name: share for name, share in found.items() if share >= _SHORTEST}


STAGES = ("Dynamo", "AOTAutograd", "Inductor", "kernels")
"""Tracing; differentiating and decomposing; scheduling and fusing; writing and compiling kernels."""
_SHORTEST = 0.005
