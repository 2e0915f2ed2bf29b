"""What the exception filter ``nan`` costs by the size of a call: ``python -m tests.benchmarks.examined_sizes``.

The same program plain and under the debugger with the filter on, in turns in one run. Medians of the ratios of the
thread's processor seconds.
"""

from __future__ import annotations

import statistics
from pathlib import Path

from rich.console import Console
from rich.table import Table

from tests.benchmarks.debugged import DebuggedProgram
from tests.benchmarks.turns import TurnTakers

PROGRAM = Path(__file__).with_name("programs") / "sized_calls.py"
CALLS = {"small": 60, "middle": 20, "large": 15, "training": 4}
"""In each turn."""
TURNS = 25


def main() -> None:
    """Measure and print."""
    table = Table("call", "without the filter", "with / without")
    with TurnTakers(PROGRAM) as takers:
        plain = takers.start_plainly()
        examined = takers.start(DebuggedProgram(PROGRAM, [takers.port], filters=["nan"], mode="both"))
        for name, calls in CALLS.items():
            pairs = [(plain.do(f"{name} {calls}")[1], examined.do(f"{name} {calls}")[1]) for _ in range(TURNS)]
            milliseconds = statistics.median(one for one, _ in pairs) / calls * 1000
            table.add_row(name, f"{milliseconds:.2f} ms", f"{statistics.median(on / one for one, on in pairs):.2f}")
    Console().print(table)


if __name__ == "__main__":
    main()
