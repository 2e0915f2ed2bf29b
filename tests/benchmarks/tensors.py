"""What a look at a tensor of a billion elements takes: from the client's request to the answer, through the server.

``python tests/benchmarks/tensors.py`` prints medians over fresh sessions with the default launch options, of the first
looks of each kind at a stop: in ordinary Python, in the trace, in the next cached calls, and, in
sessions that stop there, in the generated code.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from rich.console import Console
from rich.table import Table

sys.path[:0] = [str(Path(__file__).resolve().parents[2]), str(Path(__file__).resolve().parents[2] / "adapter")]

from dynamo_dap.protocol.requests.contract import TENSOR
from dynamo_dap.protocol.requests.tensor_requests import ELEMENTS, PICTURE, STATISTICS, TensorArguments, TensorBody
from tests.benchmarks.debugged import DebuggedProgram
from tests.client.fixtures import Fixture

PROGRAM = Path(__file__).with_name("programs") / "billion.py"
SESSIONS = 5
LOOKS = {
    "first page, 100 x 100": TensorArguments(ELEMENTS),
    "another page": TensorArguments(ELEMENTS, start_row=20_000, start_column=30_000),
    "heat map": TensorArguments(PICTURE),
    "statistics of a sample": TensorArguments(STATISTICS),
}
AIMS = {"first page, 100 x 100": "50 ms"}
ORDINARY, TRACE, CACHED, GENERATED = "ordinary Python", "trace", "call 2", "generated code"

Taken = dict[tuple[str, str], float]


def _looks(program: DebuggedProgram, world: str, name: str) -> Iterator[tuple[tuple[str, str], float]]:
    """Yield, at the next stop, what each look took in seconds."""
    thread = program.wait_for_stop().thread_id
    assert thread is not None
    frame = program.client.stack_trace(thread, levels=1).stack_frames[0].id
    scope = program.client.scopes(frame)[0].variables_reference
    shown = next(one for one in program.client.variables(scope) if one.name == name)
    for look, arguments in LOOKS.items():
        arguments.variables_reference = shown.variables_reference
        began = time.perf_counter()
        body = program.client.ask(TENSOR, arguments, TensorBody)
        yield (world, look), time.perf_counter() - began
        assert body.shape == [25_000, 40_000]
    program.client.resume("continue", thread)


def session() -> Taken:
    """Return what each look took, in seconds."""
    taken: Taken = {}
    lines = [Fixture(PROGRAM).line("traced"), Fixture(PROGRAM).line("ordinary")]
    with DebuggedProgram(PROGRAM, breakpoints={PROGRAM: lines}, eager=True, mode="both") as program:
        taken.update(_looks(program, ORDINARY, "values"))
        taken.update(_looks(program, TRACE, "x"))
        taken.update(_looks(program, CACHED, "x"))
    with DebuggedProgram(PROGRAM, eager=True, mode="run-time", stopOnGeneratedCode=True) as program:
        taken.update(_looks(program, GENERATED, "x"))
    return taken


def main() -> None:
    """Measure and print."""
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    sessions = [session() for _ in range(SESSIONS)]
    worlds = (ORDINARY, TRACE, CACHED, GENERATED)
    table = Table("a billion elements", *worlds, "aim at most")
    for look in LOOKS:
        medians = [statistics.median(taken[world, look] for taken in sessions) for world in worlds]
        table.add_row(look, *(f"{seconds * 1000:.1f} ms" for seconds in medians), AIMS.get(look, ""))
    Console().print(table)


if __name__ == "__main__":
    main()
