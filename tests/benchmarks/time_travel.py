"""What going back in a trace costs, on a Llama of two layers (transformers, tiny, with random weights).

``python tests/benchmarks/time_travel.py``, part of ``make bench``. Steps back, reverse continue and going to a
snapshot, each from the client's request to the variables at the stop, in the call that Dynamo traces and in the third
one, for which the trace of the second is kept. Libraries are stepped through as the program's own code is.

And what the log of a trace costs, from which all that is shown: traces with it and without it take turns in one
process, and what they need of the processor is compared; the medians of the ratios.
"""

from __future__ import annotations

import argparse
import gc
import importlib.util
import statistics
import sys
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from dynamo_dap.debuggee.agent.stepping import StepKind
from dynamo_dap.debuggee.history import snapshots, state_log, trace_changes
from tests.benchmarks.debugged import DebuggedProgram
from tests.compile_time.travelling import Move, travelling
from tests.run_time.in_process import SeenStop

PROGRAM = Path(__file__).with_name("programs") / "llama.py"
SNAPSHOTS = 50
FIRST_STATEMENT = "outputs: BaseModelOutputWithPast = self.model("
LAST_STATEMENT = "logits = self.lm_head"
AIM = "100 ms"


# -- from the client, through the server -------------------------------------------------------------------------------


class Held:
    """The program, held in a trace."""

    def __init__(self, program: DebuggedProgram, thread: int) -> None:
        self._program = program
        self._client = program.client
        self.thread = thread

    def seconds(self, go: Callable[[], object]) -> float:
        """Return what a move takes, to the local variables at its stop."""
        began = time.perf_counter()
        go()
        self._program.wait_for_stop()
        frame = self._client.stack_trace(self.thread, levels=20).stack_frames[0].id
        self._client.variables(self._client.scopes(frame)[0].variables_reference)
        return time.perf_counter() - began

    def step(self, command: str) -> float:
        """Return what a step takes."""
        return self.seconds(lambda: self._client.resume(command, self.thread))

    def go_to(self, snapshot: int) -> float:
        """Return what going to a snapshot takes."""
        arguments = {"threadId": self.thread, "snapshot": snapshot}
        return self.seconds(lambda: self._client.request("dynamoGoTo", arguments))

    def snapshots(self, count: int) -> list[int]:
        """Return snapshots that are spread over the trace, but for its end."""
        asked = {"threadId": self.thread, "start": 0, "count": 10_000}
        entries = msgspec.json.decode(self._client.request("dynamoTimeline", asked))["entries"]
        return [entries[number * 7919 % (len(entries) * 9 // 10)]["snapshot"] for number in range(count)]


def measured_moves(held: Held, count: int) -> dict[str, list[float]]:
    """Return seconds of moves by their kind; it ends at the beginning of the trace."""
    found: dict[str, list[float]] = {"step back": [], "step over": [], "go to a snapshot": [], "reverse": []}
    for snapshot in held.snapshots(count):
        found["go to a snapshot"].append(held.go_to(snapshot))
        found["step back"].append(held.step("stepBack"))
        found["step over"].append(held.step("next"))
        found["reverse"].append(held.step("reverseContinue"))
    return found


def moves_of_calls(model: Path, count: int = SNAPSHOTS) -> list[dict[str, list[float]]]:
    """Return what moves take in the first call, and in the third."""
    found = []
    with DebuggedProgram(
        PROGRAM, breakpoints={model: [_line_of(model, LAST_STATEMENT)]}, justMyCode=False, mode="both"
    ) as program:
        thread = program.wait_for_stop().thread_id
        assert thread is not None
        found.append(measured_moves(Held(program, thread), count))
        # Forward to where the first call stands, then to the same line of the two calls after it.
        for _ in range(3):
            program.client.resume("continue", thread)
            program.wait_for_stop()
        found.append(measured_moves(Held(program, thread), count))
    return found


# -- the log, in this process ------------------------------------------------------------------------------------------


class LoggedTraces:
    """Traces of the model, which a step goes out of from its first line, or that nothing is set in."""

    def __init__(self, model: Path) -> None:
        import torch
        import transformers

        config = transformers.LlamaConfig(
            vocab_size=64, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4
        )
        self._model: Any = transformers.LlamaForCausalLM(config).eval()
        self._tokens = torch.arange(6).reshape(1, 6)
        self._path = str(model)
        self._first, self._last = _line_of(model, FIRST_STATEMENT), _line_of(model, LAST_STATEMENT)

    def _trace(self) -> float:
        import torch

        torch._dynamo.reset()
        gc.collect()
        began = time.thread_time()
        with torch.no_grad():
            torch.compile(self._model, backend="eager")(input_ids=self._tokens)
        return time.thread_time() - began

    def seconds(self, kind: str) -> float:
        """Return what a trace of a kind takes of the processor."""
        if kind == PLAIN:
            return self._trace()
        lines = {self._path: [self._first]} if kind in (WITHOUT_LOG, WITH_LOG) else {}
        with travelling(lambda stop: Move(StepKind.OUT), lines, just_my_code=False) as host:
            if kind == WITHOUT_LOG:
                logs: Any = host.tracing._logs
                logs.want(False)
                logs.want = lambda wanted: None
            return self._trace()

    def bytes_of_log(self) -> tuple[int, int]:
        """Return how many bytes the log of a trace has at its end, and how many statements."""
        found: list[tuple[int, int]] = []

        def look(stop: SeenStop) -> Move | None:
            if stop.frame.position.line == self._last and stop.stop.history is not None and not found:
                files = [tracemalloc.Filter(True, str(each.__file__)) for each in (state_log, snapshots, trace_changes)]
                taken = tracemalloc.take_snapshot().filter_traces(files).statistics("filename")
                found.append((sum(each.size for each in taken), stop.stop.history.timeline(0, 1).total))
            return None

        with travelling(look, {self._path: [self._first, self._last]}, just_my_code=False):
            tracemalloc.start()
            self._trace()
            tracemalloc.stop()
        return found[0]


PLAIN = "without a debugger"
IDLE = "nothing armed"
WITHOUT_LOG = "a step over all of it, no log"
WITH_LOG = "a step over all of it, with the log"


def cost_of_log(model: Path, repeats: int) -> Table:
    """Measure what the log costs."""
    traces = LoggedTraces(model)
    kinds = (PLAIN, IDLE, WITHOUT_LOG, WITH_LOG)
    for kind in kinds:
        traces.seconds(kind)
    taken: dict[str, list[float]] = {kind: [] for kind in kinds}
    for _ in range(repeats):
        for kind in kinds:
            taken[kind].append(traces.seconds(kind))

    def ratio(kind: str, other: str) -> str:
        return f"{statistics.median(one / two for one, two in zip(taken[kind], taken[other], strict=True)):.3f}"

    size, statements = traces.bytes_of_log()
    table = Table("a trace of Llama of two layers", "processor", "ratio", "to", "aim")
    table.add_row(PLAIN, f"{statistics.median(taken[PLAIN]) * 1000:.0f} ms", "", "", "")
    for kind, other, aim in ((IDLE, PLAIN, "1.00"), (WITHOUT_LOG, PLAIN, ""), (WITH_LOG, WITHOUT_LOG, "1.05")):
        table.add_row(kind, f"{statistics.median(taken[kind]) * 1000:.0f} ms", ratio(kind, other), other, aim)
    table.add_row("the log", f"{size / 2**20:.1f} MiB", f"{size / statements:.0f} bytes", "a statement", "")
    return table


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=15, help="traces of each kind")
    parser.add_argument("--only-log", action="store_true", help="not what moves take")
    options = parser.parse_args()
    try:
        model = path_of_model()
    except ImportError as problem:
        print(f"going back in a trace is not measured: {problem}")
        return
    console = Console()
    console.print(cost_of_log(model, options.repeats))
    if options.only_log:
        return

    table = Table("to the variables, Llama of two layers", "call 1: p50", "p95", "call 3: p50", "p95", "aim, p50")
    first, third = moves_of_calls(model)
    for name in first:
        row = [each for taken in (first[name], third[name]) for each in (statistics.median(taken), _p95(taken))]
        table.add_row(name, *(f"{seconds * 1000:.1f} ms" for seconds in row), AIM if name == "step back" else "")
    console.print(table)


def path_of_model() -> Path:
    """Return the file of the model.

    Raises:
        ImportError: it is not installed.
    """
    library = importlib.util.find_spec("transformers")
    if library is None or library.origin is None:
        raise ImportError("transformers is not installed")
    return Path(library.origin).parent / "models" / "llama" / "modeling_llama.py"


def _line_of(model: Path, text: str) -> int:
    lines = model.read_text(encoding="utf-8").splitlines()
    return next(number for number, line in enumerate(lines, 1) if text in line)


def _p95(taken: list[float]) -> float:
    return sorted(taken)[int(len(taken) * 0.95)]


if __name__ == "__main__":
    main()
