"""What debugging costs while Dynamo traces: ``make bench``.

Medians of ratios, measured in one run: the plain program and the debugged ones compile in turn, again and again, so
that whatever else the machine does falls on all of them alike; the processor's seconds say the same on a busy machine.
And the time of a step as a user has it: from ``next`` to the variables that the IDE shows.
"""

from __future__ import annotations

import argparse
import ast
import statistics
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.benchmarks.debugged import DebuggedProgram
from tests.benchmarks.turns import TurnTakers

PROGRAMS = Path(__file__).with_name("programs")
ENCODER = PROGRAMS / "encoder.py"
STEPS = PROGRAMS / "steps.py"
BREAKPOINTS = 200


def lines_that_are_not_reached() -> dict[Path, list[int]]:
    """200 lines of code, in files that are traced and in the program, that no compile of the encoder comes to."""
    import torch.nn.functional as functional  # noqa: PLR0402  for the path of its file

    own = _lines_of_functions(ENCODER, ("never_called",))
    names = ("pool", "pad", "embedding", "interpolate", "upsample", "loss", "grid_sample", "cosine")
    others = _lines_of_functions(Path(functional.__file__), names)
    found = {ENCODER: own, Path(functional.__file__): others[: BREAKPOINTS - len(own)]}
    assert sum(map(len, found.values())) == BREAKPOINTS, "too few lines to set breakpoints on"
    return found


def _lines_of_functions(path: Path, names: Sequence[str]) -> list[int]:
    """Lines of the statements in functions that have one of ``names`` in theirs."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    lines: set[int] = set()
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef) and any(name in function.name for name in names):
            # The first statement may be the docstring, which has no code.
            lines |= {statement.lineno for statement in function.body[1:]}
    return sorted(lines)


def measure_compiles(repeats: int) -> dict[str, list[list[float]]]:
    """Seconds and processor seconds of each compile.

    Plain, with the debugger attached, with the record on, and with breakpoints that are not hit.
    """
    with TurnTakers(ENCODER) as takers:
        programs = {"plain": takers.start_plainly()}
        attached = DebuggedProgram(ENCODER, [takers.port], record=False)  # the record has a row of its own
        programs["attached, nothing armed"] = takers.start(attached)
        programs["attached, with the record"] = takers.start(DebuggedProgram(ENCODER, [takers.port]))
        lines = lines_that_are_not_reached()
        armed = DebuggedProgram(ENCODER, [takers.port], lines, justMyCode=False, record=False)  # as in the row above
        programs[f"{BREAKPOINTS} breakpoints, not hit"] = takers.start(armed)
        assert armed.unverified == 0, f"{armed.unverified} breakpoints are not verified"
        for program in programs.values():
            program.do("compile")
        taken: dict[str, list[list[float]]] = {name: [] for name in programs}
        for _ in range(repeats):
            for name, program in programs.items():
                taken[name].append(program.do("compile"))
        assert not attached.has_stopped, "a program with nothing armed has stopped"
        assert not armed.has_stopped, "a breakpoint was hit that should not have been"
        return taken


def measure_steps(repeats: int) -> list[float]:
    """Seconds of each step: ``next``, until ``stopped``, ``stackTrace``, ``scopes`` and ``variables`` have come."""
    first_line = 1 + STEPS.read_text(encoding="utf-8").splitlines().index("    total = x * 0")
    seconds = []
    with DebuggedProgram(STEPS, breakpoints={STEPS: [first_line]}) as program:
        stop = program.wait_for_stop()
        for _ in range(repeats):
            assert stop.thread_id is not None
            started = time.perf_counter()
            program.client.resume("next", stop.thread_id)
            stop = program.wait_for_stop()
            assert stop.thread_id is not None
            frame = program.client.stack_trace(stop.thread_id, levels=20).stack_frames[0]
            scope = program.client.scopes(frame.id)[0]
            program.client.variables(scope.variables_reference)
            seconds.append(time.perf_counter() - started)
    return seconds


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=15, help="compiles of each kind")
    parser.add_argument("--steps", type=int, default=500)
    options = parser.parse_args()
    console = Console()

    compiles = measure_compiles(options.repeats)
    plain = compiles["plain"]
    aims = ["", "1.02", "1.03", "1.05"]
    table = Table("compile of a 12-layer encoder", "median", "to plain", "processor", "to plain", "aim at most")
    for (name, taken), aim in zip(compiles.items(), aims, strict=True):
        row = [name]
        for field in range(2):
            row.append(f"{statistics.median(one[field] for one in taken) * 1000:.0f} ms")
            ratios = [one[field] / other[field] for one, other in zip(taken, plain, strict=True)]
            row.append(f"{statistics.median(ratios):.3f}")
        table.add_row(*row, aim)
    console.print(table)

    steps = sorted(measure_steps(options.steps))
    table = Table("a step, to its variables", "time", "aim at most", title="Latency while tracing is paused")
    table.add_row("p50", f"{statistics.median(steps) * 1000:.2f} ms", "3 ms")
    table.add_row("p99", f"{steps[int(len(steps) * 0.99)] * 1000:.2f} ms", "")
    console.print(table)


if __name__ == "__main__":
    main()
