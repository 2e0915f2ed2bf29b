"""What a breakpoint that stops nowhere costs in each cached call: ``python -m tests.benchmarks.passed_calls``.

A hit count, conditions and log messages on the last line of a model, in one program under the debugger. They take turns
in one run, with a turn without a breakpoint before each; the difference of the thread's processor seconds is the cost.
"""

from __future__ import annotations

import argparse
import statistics
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from dynamo_dap.protocol.wire.types import SourceBreakpoint
from tests.benchmarks.debugged import DebuggedProgram
from tests.benchmarks.turns import TurnTakers

PROGRAM = Path(__file__).with_name("programs") / "passed_calls.py"
CALLS = 50
"""In each turn."""


@dataclass(frozen=True)
class Kind:
    """Fields of a breakpoint, its row in ``make bench``, and how many milliseconds it is to cost at most."""

    row: str
    fields: dict[str, Any]
    aim: float | None = None


KINDS = {
    "hit count": Kind("passed.count", {"hit_condition": "1000000000"}, 0.1),
    "false condition on an argument": Kind("passed.if-argument", {"condition": "step == 500"}),
    "false condition on a list's length": Kind("passed.if-length", {"condition": "len(outputs) > 7"}),
    "false condition on a tensor": Kind("passed.if-tensor", {"condition": "total.item() > 1e9"}, 1.0),
    "log message of an argument": Kind("passed.log-argument", {"log_message": "step {step}"}),
    "log message of a list's length": Kind("passed.log-length", {"log_message": "{len(outputs)} outputs"}),
    "log message of a tensor": Kind("passed.log-tensor", {"log_message": "total {total}"}, 2.0),
}


def measure(turns: int) -> dict[str, list[tuple[float, float]]]:
    """Return, for each kind and turn, the seconds of the thread's processor per call without it and with it."""
    path = str(PROGRAM)
    line = next(number for number, text in enumerate(PROGRAM.read_text().splitlines(), 1) if text.endswith("@line"))
    taken: dict[str, list[tuple[float, float]]] = {name: [] for name in KINDS}
    with TurnTakers(PROGRAM) as takers:
        program = DebuggedProgram(PROGRAM, [takers.port], mode="both", eager=True)
        taker = takers.start(program)
        for _ in range(turns):
            for name, kind in KINDS.items():
                program.client.set_breakpoints(path, [])
                taker.do(3)
                without = taker.do(CALLS)[1] / CALLS
                program.client.set_breakpoints(path, [SourceBreakpoint(line=line, **kind.fields)])
                taker.do(3)
                taken[name].append((without, taker.do(CALLS)[1] / CALLS))
        assert not program.has_stopped, "a breakpoint has stopped"
    return taken


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=10, help=f"of {CALLS} calls of each kind")
    table = Table("breakpoint", "plain call", "cost", "aim at most")
    for kind, taken in measure(parser.parse_args().turns).items():
        aim = KINDS[kind].aim
        plain = statistics.median(one for one, _ in taken) * 1000
        cost = statistics.median(other - one for one, other in taken) * 1000
        table.add_row(kind, f"{plain:.3f} ms", f"{cost:.3f} ms", "" if aim is None else f"{aim:.1f} ms")
    Console().print(table)


if __name__ == "__main__":
    main()
