"""What debugging costs while Dynamo traces: ``make bench``.

Medians of ratios, measured in one run: the plain program and the debugged ones compile in turn, again and again, so
that whatever else the machine does falls on all of them alike; the processor's seconds say the same on a busy machine.
And the time of a step as a user has it: from ``next`` to the variables that the IDE shows.
"""

from __future__ import annotations

import argparse
import ast
import inspect
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.benchmarks.debugged import DebuggedProgram
from tests.benchmarks.turns import TurnTakers

PROGRAMS = Path(__file__).with_name("programs")
ENCODER = PROGRAMS / "encoder.py"
STEPS = PROGRAMS / "steps.py"
BREAKPOINTS = 200
PLAIN = "plain"
IDLE = "attached, nothing armed"
RECORD = "attached, with the record"
ELSEWHERE = f"{BREAKPOINTS} breakpoints, not hit"
FALSE = f"{BREAKPOINTS} breakpoints, a false condition"


def lines_that_are_not_reached() -> dict[Path, list[int]]:
    """200 lines of code, in files that are traced and in the program, that no compile of the encoder comes to."""
    functional = torch.nn.functional
    own = lines_of_functions(ENCODER, ("never_called",))
    names = ("pool", "pad", "embedding", "interpolate", "upsample", "loss", "grid_sample", "cosine")
    others = lines_of_functions(Path(functional.__file__), names)
    found = {ENCODER: own, Path(functional.__file__): others[: BREAKPOINTS - len(own)]}
    assert sum(map(len, found.values())) == BREAKPOINTS, "too few lines to set breakpoints on"
    return found


def lines_that_are_reached() -> dict[Path, list[int]]:
    """200 lines of functions that are traced in each compile of the encoder."""
    traced = {
        torch.nn.TransformerEncoder: ("forward", "_sa_block", "_ff_block", "_get_seq_len"),
        torch.nn.MultiheadAttention: ("forward", "merge_masks"),
        torch.nn.functional.layer_norm: (
            "multi_head_attention_forward",
            "_in_proj",
            "_canonical",
            "dropout",
            "layer_norm",
        ),
    }
    found: dict[Path, list[int]] = {}
    for where, names in traced.items():
        path = Path(inspect.getfile(where))
        left = BREAKPOINTS - sum(map(len, found.values()))
        found[path] = lines_of_functions(path, names, is_deep=True)[:left]
    assert sum(map(len, found.values())) == BREAKPOINTS, "too few lines to set breakpoints on"
    return found


def peers_of_compiles(folder: Path) -> dict[str, dict[str, str]]:
    """What torch itself offers to tell of a compile, by name: the environment that turns it on."""
    return {
        "TORCH_LOGS=+dynamo": {"TORCH_LOGS": "+dynamo", "TORCH_LOGS_OUT": str(folder / "log")},
        "TORCH_TRACE (tlparse)": {"TORCH_TRACE": str(folder / "trace")},
    }


def lines_of_functions(path: Path, names: Sequence[str], *, is_deep: bool = False) -> list[int]:
    """Lines of the statements in functions that have one of ``names`` in theirs; ``is_deep``: those in blocks, too."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    lines: set[int] = set()
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef) and any(name in function.name for name in names):
            # The first statement may be the docstring, which has no code.
            for statement in function.body[1:]:
                inner = ast.walk(statement) if is_deep else (statement,)
                lines |= {node.lineno for node in inner if isinstance(node, ast.stmt)}
    return sorted(lines)


def measure_compiles(repeats: int) -> dict[str, list[list[float]]]:
    """Seconds and processor seconds of each compile.

    Plain, with the debugger attached, with the record on, with breakpoints that are not hit, and with breakpoints that
    are come to, whose condition is false; and with what torch itself writes of a compile.
    """
    with TurnTakers(ENCODER) as takers, tempfile.TemporaryDirectory() as folder:
        programs = {PLAIN: takers.start_plainly()}
        attached = DebuggedProgram(ENCODER, [takers.port], record=False)  # the record has a row of its own
        programs[IDLE] = takers.start(attached)
        programs[RECORD] = takers.start(DebuggedProgram(ENCODER, [takers.port]))
        lines = lines_that_are_not_reached()
        set_lines = DebuggedProgram(
            ENCODER, [takers.port], lines, justMyCode=False, record=False
        )  # as in the row above
        programs[ELSEWHERE] = takers.start(set_lines)
        assert set_lines.unverified == 0, f"{set_lines.unverified} breakpoints are not verified"
        reached = lines_that_are_reached()
        conditional = DebuggedProgram(
            ENCODER, [takers.port], reached, condition="1 > 2", justMyCode=False, record=False
        )
        programs[FALSE] = takers.start(conditional)
        for name, variables in peers_of_compiles(Path(folder)).items():
            programs[name] = takers.start_plainly(variables)
        for program in programs.values():
            program.do("compile")
        taken: dict[str, list[list[float]]] = {name: [] for name in programs}
        for _ in range(repeats):
            for name, program in programs.items():
                taken[name].append(program.do("compile"))
        assert not attached.has_stopped, "a program with nothing armed has stopped"
        assert not set_lines.has_stopped, "a breakpoint was hit that should not have been"
        assert not conditional.has_stopped, "a condition that is false was true"
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
    plain = compiles[PLAIN]
    aims = {IDLE: "1.02", RECORD: "1.03", ELSEWHERE: "1.05", FALSE: "1.3"}
    table = Table("compile of a 12-layer encoder", "median", "to plain", "processor", "to plain", "aim at most")
    for name, taken in compiles.items():
        row = [name]
        for field in range(2):
            row.append(f"{statistics.median(one[field] for one in taken) * 1000:.0f} ms")
            ratios = [one[field] / other[field] for one, other in zip(taken, plain, strict=True)]
            row.append(f"{statistics.median(ratios):.3f}")
        table.add_row(*row, aims.get(name, ""))
    console.print(table)

    steps = sorted(measure_steps(options.steps))
    table = Table("a step, to its variables", "time", "aim at most", title="Latency while tracing is paused")
    table.add_row("p50", f"{statistics.median(steps) * 1000:.2f} ms", "3 ms")
    table.add_row("p99", f"{steps[int(len(steps) * 0.99)] * 1000:.2f} ms", "")
    console.print(table)


if __name__ == "__main__":
    main()
