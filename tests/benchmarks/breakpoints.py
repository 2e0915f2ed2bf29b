"""What setting breakpoints costs: 1,000 in ten files of a library, and 10,000 in one file, as an editor sends them.

``python tests/benchmarks/breakpoints.py`` prints medians over fresh sessions with the default launch options, besides
``justMyCode``, without which no breakpoint in a library is accepted: the seconds until all are answered when nothing
has been read yet, and when one more is clicked into each file, which sends all of that file again.
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
from rich.console import Console
from rich.table import Table

sys.path[:0] = [str(Path(__file__).resolve().parents[2]), str(Path(__file__).resolve().parents[2] / "adapter")]

from dynamo_dap.protocol.wire.types import SourceBreakpoint
from tests.benchmarks.debugged import DebuggedProgram

FILES, BREAKPOINTS_IN_EACH = 10, 100
SESSIONS = 5
AIM = "0.3 s"
MANY, AIM_OF_MANY = 10_000, "1 s"
FEWER = 2_000
"""With how many breakpoints many are compared: the time of each has to be the same."""


def files_of_library() -> list[Path]:
    """Ten files of models, as transformers has them; of torch where that is not installed."""
    packages = Path(next(path for path in sys.path if path.endswith("site-packages")))
    models = sorted(packages.glob("transformers/models/*/modeling_*.py"))
    found = models or sorted(packages.glob("torch/nn/modules/*.py"))
    lengths = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in found}
    usual = [path for path in found if 2 * BREAKPOINTS_IN_EACH < lengths[path] < 20 * BREAKPOINTS_IN_EACH]
    return random.Random(0).sample(usual, FILES)


def lines_in(path: Path) -> list[int]:
    """Return lines of ``path``, with code and without."""
    count = len(path.read_text(encoding="utf-8").splitlines())
    return sorted(random.Random(0).sample(range(1, count + 1), BREAKPOINTS_IN_EACH + 1))


def _seconds(program: DebuggedProgram, lines: dict[Path, list[int]]) -> float:
    began = time.perf_counter()
    for path, wanted in lines.items():
        program.client.set_breakpoints(path, [SourceBreakpoint(line=line) for line in wanted])
    return time.perf_counter() - began


def measure(program: Path, files: list[Path], sessions: int = SESSIONS) -> Iterator[tuple[float, float]]:
    """Yield, for each session, the seconds of all breakpoints at first, and of a click in each file."""
    lines = {path: lines_in(path) for path in files}
    for _ in range(sessions):
        with DebuggedProgram(program, eager=True, mode="both", justMyCode=False) as debugged:
            first = _seconds(debugged, {path: wanted[:-1] for path, wanted in lines.items()})
            yield first, _seconds(debugged, lines)


@dataclass(frozen=True)
class Cost:
    """What setting breakpoints took."""

    seconds: float
    """Until the answer was there; whatever else the machine does counts, too."""
    processor_seconds: float
    """Of the server and the program."""


def _cost(program: DebuggedProgram, path: Path, count: int) -> Cost:
    server = psutil.Process(program.server_process_id)
    processes = [server, *server.children(recursive=True)]
    before = sum(map(_processor_seconds, processes))
    seconds = _seconds(program, {path: list(range(1, count + 1))})
    return Cost(seconds, sum(map(_processor_seconds, processes)) - before)


def _processor_seconds(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def measure_many(program: Path, sessions: int = SESSIONS) -> Iterator[tuple[Cost, Cost]]:
    """Yield, for each session, the cost of fewer breakpoints in one file, and of many in another."""
    with tempfile.TemporaryDirectory() as folder:
        paths = {count: Path(folder, f"lines{count}.py") for count in (FEWER, MANY)}
        for count, path in paths.items():
            text = "".join(f"def function{number}(x):\n    return x + {number}\n" for number in range(count // 2))
            path.write_text(text, encoding="utf-8")
        for _ in range(sessions):
            with DebuggedProgram(program, eager=True, mode="both") as debugged:
                fewer, many = (_cost(debugged, path, count) for count, path in paths.items())
                yield fewer, many


def main() -> None:
    """Measure and print."""
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    files = files_of_library()
    waits = Path(__file__).with_name("programs") / "waits.py"
    taken = list(measure(waits, files))
    count = FILES * BREAKPOINTS_IN_EACH
    table = Table(f"{count} breakpoints in {FILES} files, {files[0].name} and others", "median", "aim at most")
    for what, index in (("set for the first time", 0), ("one more in each file", 1)):
        table.add_row(what, f"{statistics.median(one[index] for one in taken):.3f} s", AIM)
    costs = [many for _, many in measure_many(waits)]
    table.add_row(f"{MANY} in one file", f"{statistics.median(one.seconds for one in costs):.3f} s", "")
    processor = statistics.median(one.processor_seconds for one in costs)
    table.add_row("the same, time of the processor", f"{processor:.3f} s", AIM_OF_MANY)
    Console().print(table)


if __name__ == "__main__":
    main()
