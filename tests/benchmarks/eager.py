"""What one session over eager code, tracing and generated code costs, beside the plain program and debugpy alone.

``python tests/benchmarks/eager.py`` prints medians of ratios: plain and debugged programs take turns, so that whatever
else the machine does falls on all alike. With no breakpoint set: the compile time of a 12-layer encoder, calls of what
was compiled, and an eager loop; then the loop with a breakpoint in its function that is never reached. And the latency
of a step with stack, scopes and variables in eager code, beside debugpy's own adapter.
"""

from __future__ import annotations

import argparse
import contextlib
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from rich.console import Console
from rich.table import Table

sys.path[:0] = [str(Path(__file__).resolve().parents[2]), str(Path(__file__).resolve().parents[2] / "adapter")]

from tests.benchmarks.turns import TurnTakers
from tests.eager.peer import ADAPTERS, Peer

PROGRAM = Path(__file__).with_name("programs") / "session.py"
TURNS = {"compile_encoder": 10, "calls": 30, "loop": 30}
"""How often each is done in every program, the first time not counted."""
AIMS = {"compile_encoder": "1.05", "calls": "1.02", "loop": "debugpy's"}
STEPS = 100

STEPPED = """
def steps(n):
    a = 0
    for i in range(n):
        a = a + 1
        b = a * 2
    return b

steps(1000)  #@begin
"""


@contextlib.contextmanager
def _debugged(adapter: str, port: str, *, set_lines: bool) -> Iterator[None]:
    peer = Peer(adapter, PROGRAM, is_checked=False)
    try:
        with peer.launching(args=[port], justMyCode=True):
            peer.ask("setExceptionBreakpoints", {"filters": ["uncaught"]})
            if set_lines:
                peer.breakpoints("never")
        yield
    finally:
        peer.close()


def measure() -> dict[tuple[str, str], list[list[float]]]:
    """Seconds and processor seconds of each turn by what was done and by whom.

    That is: plain, or under an adapter, perhaps with a breakpoint.
    """
    with TurnTakers(PROGRAM) as takers:
        programs = {"plain": takers.start_plainly()}
        for set_lines in (False, True):
            for adapter in ADAPTERS:
                name = f"{adapter}, armed" if set_lines else adapter
                programs[name] = takers.start(_debugged(adapter, takers.port, set_lines=set_lines))
        taken: dict[tuple[str, str], list[list[float]]] = {}
        for work, turns in TURNS.items():
            for turn in range(turns + 1):
                for name, program in programs.items():
                    # A breakpoint far from a compile or a call of compiled code costs what the loop says.
                    if work == "loop" or not name.endswith("armed"):
                        seconds = program.do(work)
                        taken.setdefault((work, name), []).extend([seconds] if turn else [])
        return taken


def step_latency(adapter: str, program: Path) -> list[float]:
    """Return the milliseconds of each step, to the variables at its stop."""
    peer = Peer(adapter, program, is_checked=False)
    try:
        with peer.launching():
            peer.ask("setBreakpoints", {"source": {"path": str(program)}, "breakpoints": [{"line": 5}]})
        peer.stop()
        peer.ask("setBreakpoints", {"source": {"path": str(program)}, "breakpoints": []})
        found = []
        for _ in range(STEPS):
            begin = time.perf_counter()
            peer.step("next")
            found.append((time.perf_counter() - begin) * 1000)
        return found
    finally:
        peer.close()


def main() -> None:
    """Measure and print."""
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    console = Console()
    taken = measure()
    table = Table("all at once", "under", "median", "to plain", "processor", "to plain", "aim at most")
    for (work, name), turns in taken.items():
        row = [work, name]
        for field in range(2):
            row.append(f"{statistics.median(one[field] for one in turns) * 1000:.1f} ms")
            ratios = [one[field] / plain[field] for one, plain in zip(turns, taken[work, "plain"], strict=True)]
            row.append(f"{statistics.median(ratios):.3f}")
        table.add_row(*row, AIMS[work] if name == "dynamo" else "")
    console.print(table)

    table = Table("a step, to its variables, in eager code", "p50", "p90", "aim at most")
    with tempfile.TemporaryDirectory() as folder:
        steps = Path(folder, "steps.py")
        steps.write_text(STEPPED, encoding="utf-8")
        for adapter in ADAPTERS:
            latencies = sorted(step_latency(adapter, steps))
            p50, p90 = latencies[len(latencies) // 2], latencies[len(latencies) * 9 // 10]
            table.add_row(adapter, f"{p50:.1f} ms", f"{p90:.1f} ms", "3 ms" if adapter == "dynamo" else "")
    console.print(table)


if __name__ == "__main__":
    main()
