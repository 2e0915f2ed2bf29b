"""What debugging costs while compiled functions are called: ``make bench``.

10,000 calls of a compiled function, plain and under the debugger in turn, in one run, so that whatever else the machine
does falls on all alike. Medians of ratios; the thread's processor seconds say the same on a busy machine.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from pathlib import Path

from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.benchmarks.debugged import DebuggedProgram
from tests.benchmarks.turns import TurnTakers
from tests.client.fixtures import Fixture

PROGRAM = Path(__file__).with_name("programs") / "calls.py"
CALLS = 10_000
TURNS = 10
"""The calls are made in turns, so that plain and debugged ones are as close in time as can be."""


def measure(repeats: int) -> dict[str, list[list[float]]]:
    """Seconds of each turn: plain, with no breakpoint set, and with breakpoints that are not hit."""
    never = Fixture(PROGRAM).line("never")
    with TurnTakers(PROGRAM) as takers:
        programs = {"plain": takers.start_plainly()}
        idle = DebuggedProgram(PROGRAM, [takers.port], mode="both")
        programs["attached, nothing armed"] = takers.start(idle)
        set_lines = DebuggedProgram(PROGRAM, [takers.port], {PROGRAM: [never]}, mode="both")
        programs["a breakpoint elsewhere"] = takers.start(set_lines)
        for program in programs.values():
            program.do(CALLS // TURNS)
        taken: dict[str, list[list[float]]] = {name: [] for name in programs}
        for _ in range(repeats * TURNS):
            for name, program in programs.items():
                taken[name].append(program.do(CALLS // TURNS))
        assert not idle.has_stopped, "a program with nothing armed has stopped"
        assert not set_lines.has_stopped, "a breakpoint was hit that should not have been"
        return taken


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=5, help=f"times {CALLS} calls of each kind")
    options = parser.parse_args()
    measured = measure(options.repeats)
    table = Table(f"{CALLS} calls of a compiled function", "median", "to plain", "processor", "to plain", "aim at most")
    for (name, taken), aim in zip(measured.items(), ("", "1.01", ""), strict=True):
        row = [name]
        for field in range(2):
            row.append(f"{statistics.median(one[field] for one in taken) * TURNS * 1000:.0f} ms")
            ratios = [one[field] / other[field] for one, other in zip(taken, measured["plain"], strict=True)]
            row.append(f"{statistics.median(ratios):.3f}")
        table.add_row(*row, aim)
    Console().print(table)


if __name__ == "__main__":
    main()
