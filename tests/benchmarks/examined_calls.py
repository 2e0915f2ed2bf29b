"""What the exception filters ``nan`` and ``mismatch`` cost for each call of a compiled model: ``make bench``.

A transformer whose call takes about 10 ms on one thread, plain and under the debugger in turn, in one run, so that
whatever else the machine does falls on all alike. Medians of ratios; the thread's processor seconds say the same on a
busy machine. ``mismatch`` runs the graph again and the function in a fork, so it is what it is.

Measured with torch 2.13 on two busy cores, seconds of the thread's processor: ``nan`` 1.00 on a call of 11 ms; 1.02 to
1.06 on a step of training of 37 ms, in which the gradients of parameters are read once, at the speed of memory: 19 MB
in 2.1 ms, however many tokens the step has (64 here; of 512 it is 0.012).
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

PROGRAM = Path(__file__).with_name("programs") / "model_calls.py"
CALLS = 10
"""In each turn."""


def measure(turns: int) -> dict[str, dict[str, list[list[float]]]]:
    """Seconds of each turn, of calls alone and of training: plain, with no breakpoint set, and with each filter."""
    with TurnTakers(PROGRAM) as takers:
        programs = {"plain": takers.start_plainly()}
        kinds = {"nothing armed": (), "nan": ("nan",), "mismatch": ("mismatch",)}
        debugged: dict[str, DebuggedProgram] = {}
        for name, filters in kinds.items():  # one after the other: the next connection is that of the last program
            debugged[name] = DebuggedProgram(PROGRAM, [takers.port], filters=filters, mode="both")
            programs[name] = takers.start(debugged[name])
        taken: dict[str, dict[str, list[list[float]]]] = {
            kind: {name: [] for name in programs} for kind in ("calls", "training")
        }
        examined = programs.pop("mismatch")
        for _ in range(turns):
            for kind, of_kind in taken.items():
                for name, taker in programs.items():
                    of_kind[name].append(taker.do(f"{kind} {CALLS}"))
        # Apart: it takes so long that what comes after it finds nothing in the processor's caches.
        for kind, of_kind in taken.items():
            of_kind["mismatch"] = [examined.do(f"{kind} 1") for _ in range(turns)]
        assert not any(program.has_stopped for program in debugged.values()), "a correct model has stopped"
        return taken


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=40, help=f"of {CALLS} calls of each kind")
    measured = measure(parser.parse_args().turns)
    for kind, what in (("calls", "a call of a compiled model"), ("training", "with its backward pass")):
        print_table(measured[kind], what)


def print_table(measured: dict[str, list[list[float]]], what: str) -> None:
    """Print the medians of one kind."""
    table = Table(what, "median", "to plain", "processor", "to plain", "aim at most")
    plain = measured["plain"]
    for (name, taken), aim in zip(measured.items(), ("", "1.01", "1.02", ""), strict=True):
        calls = CALLS if name != "mismatch" else 1
        row = [name]
        for field in range(2):
            row.append(f"{statistics.median(one[field] for one in taken) / calls * 1000:.2f} ms")
            ratios = [one[field] / calls / (other[field] / CALLS) for one, other in zip(taken, plain, strict=True)]
            row.append(f"{statistics.median(ratios):.3f}")
        table.add_row(*row, aim)
    Console().print(table)


if __name__ == "__main__":
    main()
