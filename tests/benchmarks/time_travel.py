"""What a step back takes: from the client's request to the variables at the stop, through the server.

``python tests/benchmarks/time_travel.py`` stops at the end of a Llama of two layers (transformers, tiny, with random
weights), in the call that Dynamo traces and in the third one, for which the trace of the second is kept, and steps back
from there. A step forward in the same trace is what it is compared with. Default launch options, and libraries stepped
through as the program's own code is.
"""

from __future__ import annotations

import argparse
import importlib.util
import statistics
import sys
import time
from pathlib import Path

from rich.console import Console
from rich.table import Table

sys.path[:0] = [str(Path(__file__).resolve().parents[2]), str(Path(__file__).resolve().parents[2] / "adapter")]

from tests.benchmarks.debugged import DebuggedProgram

PROGRAM = Path(__file__).with_name("programs") / "llama.py"
STEPS = 60
LAST_STATEMENT = "logits = self.lm_head"


def _steps(program: DebuggedProgram, command: str, thread: int, count: int) -> list[float]:
    taken = []
    for _ in range(count):
        began = time.perf_counter()
        program.client.resume(command, thread)
        program.wait_for_stop()
        frame = program.client.stack_trace(thread, levels=1).stack_frames[0].id
        program.client.variables(program.client.scopes(frame)[0].variables_reference)
        taken.append(time.perf_counter() - began)
    return taken


def _of_call(program: DebuggedProgram, thread: int) -> dict[str, list[float]]:
    return {
        "step back": _steps(program, "stepBack", thread, STEPS),
        "step over": _steps(program, "next", thread, STEPS // 2),
        "reverse": _steps(program, "reverseContinue", thread, 1),
    }


def _next_stop(program: DebuggedProgram) -> int:
    thread = program.wait_for_stop().thread_id
    assert thread is not None
    return thread


def main() -> None:
    """Measure and print."""
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    library = importlib.util.find_spec("transformers")
    if library is None or library.origin is None:
        print("not measured: transformers is not installed")
        return
    model = Path(library.origin).parent / "models" / "llama" / "modeling_llama.py"
    line = next(
        number for number, text in enumerate(model.read_text().splitlines(), 1) if LAST_STATEMENT in text.strip()
    )
    table = Table("a step to its variables, Llama of two layers", "call 1, p50", "p99", "call 3, p50", "p99")
    with DebuggedProgram(PROGRAM, breakpoints={model: [line]}, justMyCode=False) as program:
        thread = _next_stop(program)
        first = _of_call(program, thread)
        # Forward to where the first call stands, then to the two calls after it.
        for _ in range(3):
            program.client.resume("continue", thread)
            thread = _next_stop(program)
        third = _of_call(program, thread)
    for name in first:
        row = [value for taken in (first[name], third[name]) for value in (statistics.median(taken), max(taken))]
        table.add_row(name, *(f"{seconds * 1000:.1f} ms" for seconds in row))
    Console().print(table)


if __name__ == "__main__":
    main()
