"""``dynamo-dap compare`` beside torch's own accuracy minifier, on programs with a known fault: answer and time of each.

The programs are those of ``tests/end_to_end/test_mismatch.py``. The minifier runs as its documentation says, with
``TORCHDYNAMO_REPRO_AFTER`` and ``TORCHDYNAMO_REPRO_LEVEL=4``, which compares each call; then the launcher that it
wrote, which makes the graph smaller. It works in processes of its own, so the fault is put into every process that runs
a script, as if it were torch's. Each program has run once before, so that Inductor's C++ headers are compiled. Seconds
are those of a clock and of processors, since Inductor compiles on all of them: on a busy machine the latter tell more.
``python tests/benchmarks/minifier.py [FAULT ...]``.

Measured with torch 2.13 on two busy cores, seconds of processors:

- decomposition: its line, in 11; the minifier finds nothing wrong, in 9. What it compares is decomposed already.
- lowering: its line, in 11; the minifier leaves a graph of one operation, ``aten.erf``, in 132 (545 by the clock).
- pass: its line, in 11; the minifier finds nothing wrong, in 9. It compares with the graph that the pass has changed.
- aot: its line, in 7; the minifier fails, and skips the graph, in 6.
- remembers: its line, in 11; the minifier finds nothing wrong, in 9.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.end_to_end.test_mismatch import INJECTED, OPERATORS

AFTER = {"decomposition": "aot", "lowering": "aot", "pass": "aot", "aot": "dynamo", "remembers": "aot"}
"""The faults, and after which stage the minifier is to look for each."""
SECONDS = 600.0
"""After which a command is ended."""
NO_ANSWER = f"no answer in {SECONDS:g} s"
_FAULT_IN_SCRIPTS = """
import sys

if len(sys.orig_argv) > 1 and sys.orig_argv[1].endswith(".py"):
    import fault
"""
"""Not in those that Inductor starts only to see whether what it compiled can be loaded."""


_CACHES = {"TORCHINDUCTOR_FX_GRAPH_CACHE": "0", "TORCHINDUCTOR_AUTOGRAD_CACHE": "0"}
"""The minifier compares what is compiled; a graph that comes out of a cache it does not see."""


class Taken(NamedTuple):
    """What a command took, in seconds."""

    clock: float
    processor: float
    """Of its child processes, too."""

    def __add__(self, other: Taken) -> Taken:  # type: ignore[override]
        return Taken(self.clock + other.clock, self.processor + other.processor)


def _write(folder: Path, kind: str) -> list[str]:
    """Write the program, and its fault into every Python that runs in ``folder``. Return the program's arguments."""
    is_operator = kind not in INJECTED
    text = OPERATORS if is_operator else INJECTED
    if is_operator:
        fault, _, rest = text.partition("\ndef called")
        program = f"import sys\nfrom fault import *\n\ndef called{rest}"
    else:
        _, _, rest = text.partition('if kind == "decomposition":')
        fault = text[: text.index("def decomposed")] + 'if kind == "decomposition":' + rest.partition("function = {")[0]
        program = text
    (folder / "fault.py").write_text(fault.replace("kind = sys.argv[1]", f"kind = {kind!r}"))
    (folder / "sitecustomize.py").write_text(_FAULT_IN_SCRIPTS)
    (folder / "program.py").write_text(program)
    return [kind, "inductor"]


def _timed(command: list[str], folder: Path, environment: dict[str, str]) -> tuple[Taken, str, str]:
    begun, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    process = subprocess.Popen(
        command,
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        reported, problem = process.communicate(timeout=SECONDS)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        reported, problem = "", NO_ANSWER
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    processor = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Taken(time.perf_counter() - begun, processor), reported, problem


def compared(program: Path, arguments: list[str], environment: dict[str, str]) -> tuple[Taken, str]:
    """Return how long ``dynamo-dap compare`` takes, and what it says first."""
    command = [sys.executable, "-m", "dynamo_dap", "compare", "--json", str(program), *arguments]
    taken, reported, problem = _timed(command, program.parent, environment)
    found = [each for each in map(json.loads, reported.splitlines()) if not each["same"]]
    if not found:
        return taken, problem.strip()[-200:] or "nothing differs"
    return taken, f"line {found[0]['line']}, {found[0]['stage']}"


def minified(program: Path, arguments: list[str], after: str, variables: dict[str, str]) -> tuple[Taken, str]:
    """Return how long the minifier takes, and the operations of the graph that it leaves."""
    folder = program.parent / f"minifier-{after}"
    environment = {
        **variables,
        "TORCHDYNAMO_REPRO_AFTER": after,
        "TORCHDYNAMO_REPRO_LEVEL": "4",
        "TORCH_COMPILE_DEBUG_DIR": str(folder),
    }
    taken, _, problem = _timed([sys.executable, str(program), *arguments], program.parent, environment)
    launchers = sorted(folder.rglob("minifier_launcher.py"))
    if launchers:
        more, _, problem = _timed([sys.executable, str(launchers[-1])], program.parent, environment)
        taken += more
    repros = sorted([*folder.rglob("repro.py"), *program.parent.glob("repro.py")])
    if problem == NO_ANSWER:
        return taken, NO_ANSWER
    if not repros:
        # backend_accuracy_fails of torch/_dynamo/debug_utils.py logs what it meets itself, and skips the graph.
        is_skipped = "in accuracy minification mode" in problem
        return taken, f"no answer: it {'fails, and skips the graph' if is_skipped else 'finds nothing wrong'}"
    lines = [line.partition("#")[0].partition(";")[0].strip() for line in repros[-1].read_text().splitlines()]
    graph = [line.partition(" = ")[2] for line in lines if " = torch." in line and "config" not in line]
    return taken, "a graph of " + (", ".join(graph)[:120] or "no operations")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kinds", nargs="*", choices=[*AFTER, []], help="which programs; default: all")
    seconds = "s, of processors"
    table = Table("fault", "dynamo-dap compare", seconds, "accuracy minifier", seconds)
    for kind in parser.parse_args().kinds or AFTER:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            arguments, program = _write(folder, kind), folder / "program.py"
            environment = {
                **os.environ,
                **_CACHES,
                "PYTHONPATH": name,
                "TORCHINDUCTOR_CACHE_DIR": str(folder / "cache"),
            }
            _timed([sys.executable, str(program), *arguments], folder, environment)
            ours = compared(program, arguments, environment)
            theirs = minified(program, arguments, AFTER[kind], environment)
        times = [f"{taken.clock:.0f}, {taken.processor:.0f}" for taken, _ in (ours, theirs)]
        table.add_row(kind, ours[1], times[0], theirs[1], times[1])
    Console(width=160).print(table)


if __name__ == "__main__":
    main()
