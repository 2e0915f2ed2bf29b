"""Measures what the debugger costs for a Llama of 1 B parameters: ``make test-gpu ARGUMENTS=--large``.

Plain and debugged programs take turns in one run, two at a time, so that they fit on one card. Ratios are of seconds of
the clock, after a wait for the device.
"""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from pathlib import Path

from tests.benchmarks.debugged import DebuggedProgram
from tests.benchmarks.figures import ratios
from tests.benchmarks.turns import TurnTakers
from tests.client.fixtures import Fixture

PROGRAM = Path(__file__).parents[1] / "benchmarks" / "programs" / "llama_large.py"
WORK = ("forward", "training")
_TURNS, _STEPS = 10, 5


@dataclass(frozen=True)
class Ratio:
    """What one way of debugging costs."""

    work: str
    debugged: str
    plain_milliseconds: float
    """The median of one step without a debugger."""
    ratio: float
    lowest: float
    highest: float


def measure(device: str, *, is_small: bool = False) -> list[Ratio]:
    """Return the ratios of each work for each way of debugging."""
    arguments = [device, *(["small"] if is_small else [])]
    turns, steps = (2, 1) if is_small else (_TURNS, _STEPS)
    never = Fixture(PROGRAM).line("never")
    ways: dict[str, dict[Path, list[int]]] = {
        "attached, nothing set": {},
        "a breakpoint elsewhere": {PROGRAM: [never]},
    }
    found = []
    for name, breakpoints in ways.items():
        with TurnTakers(PROGRAM) as takers:
            plain = takers.start_plainly(arguments=arguments)
            debugged = DebuggedProgram(PROGRAM, [takers.port, *arguments], breakpoints, mode="both", eager=True)
            taker = takers.start(debugged)
            for work in WORK:
                both = (plain, taker)
                for each in both:
                    each.do(f"{work} 3")
                taken = [[each.do(f"{work} {steps}") for each in both] for _ in range(turns)]
                found.append(_ratio(work, name, taken, steps))
            assert not debugged.has_stopped, "a breakpoint elsewhere was hit"
    return found


def _ratio(work: str, debugged: str, taken: list[list[list[float]]], steps: int) -> Ratio:
    plain, other = ([pair[index] for pair in taken] for index in range(2))
    all_ratios = ratios(other, plain, index=0)
    return Ratio(
        work,
        debugged,
        statistics.median(one[0] for one in plain) / steps * 1000,
        statistics.median(all_ratios),
        min(all_ratios),
        max(all_ratios),
    )


def as_table(found: list[Ratio], *, is_small: bool = False) -> list[str]:
    """Return the ratios as a table in Markdown."""
    model = "Llama 1 B, bf16" if not is_small else "a rehearsal: one tiny layer, figures say nothing"
    rows = [
        f"| {one.work} | {one.debugged} | {one.plain_milliseconds:.1f} ms | {one.ratio:.3f} | "
        f"{one.lowest:.3f} to {one.highest:.3f} |"
        for one in found
    ]
    return [f"| {model} | debugged | plain step | ratio | range |", "| --- | --- | --- | --- | --- |", *rows]
