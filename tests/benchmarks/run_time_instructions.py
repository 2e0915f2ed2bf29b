"""How many instructions of generated code a second can be stepped through: ``make bench``.

Our engine evaluates a condition that is never true before every instruction; torch's own debugger is prompted at every
instruction, its output thrown away. In turn, in one run; seconds are the thread's processor seconds, so that other work
on the machine does not count.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from dynamo_dap.protocol.requests.options import AgentOptions
from dynamo_dap.protocol.wire.types import InstructionBreakpoint
from tests.run_time.in_process import ScriptedHost, debugging
from tests.run_time.programs import compiled, programs, replay_arguments

PROGRAM = Path(__file__).with_name("programs") / "torch_stepping.py"
CONDITION = "x.shape[0] > 100"


class Measured:
    """A compiled function and the number of instructions that one call of it executes."""

    def __init__(self) -> None:
        self._function = compiled(programs.replay)
        self.call()
        self.instructions = 0

    def call(self) -> None:
        """Call it once, with the cache hit."""
        programs.TOTAL = 0
        self._function(*replay_arguments())

    def seconds(self, calls: int) -> float:
        """Processor seconds of ``calls`` calls."""
        started = time.thread_time()
        for _ in range(calls):
            self.call()
        return time.thread_time() - started


def _break_everywhere(host: ScriptedHost, measured: Measured) -> None:
    host.request_pause()
    host.engine.update_hooks()
    measured.call()
    (generated,) = host.engine.codes
    wanted = [
        InstructionBreakpoint(instruction_reference=generated.reference(one.index), condition=CONDITION)
        for one in generated.table
        if one.index >= generated.entry
    ]
    measured.instructions = len(wanted)
    assert all(made.verified for made in host.engine.set_instruction_breakpoints(wanted))
    host.engine.update_hooks()


def ours(measured: Measured, calls: int) -> float:
    """Seconds under our engine with the condition at every instruction."""
    with debugging(lambda stop: None) as host:
        _break_everywhere(host, measured)
        measured.call()
        return measured.seconds(calls)


def traced(measured: Measured, calls: int) -> float:
    """Seconds under our engine with ``traceInstructions``: every instruction is reported, nothing is asked."""
    with debugging(lambda stop: None) as host:
        host.options = AgentOptions(mode="run-time", trace_instructions=True)
        host.engine.update_hooks()
        measured.call()
        return measured.seconds(calls)


class TorchStepping:
    """The benchmark's end of a process that runs ``programs/torch_stepping.py``."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, str(PROGRAM)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def seconds_per_instruction(self, calls: int) -> float:
        """Have it step through ``calls`` calls."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(calls, file=self._process.stdin, flush=True)
        seconds, count = self._process.stdout.readline().split()
        assert int(count) > 0, "torch's debugger prompted nowhere"
        return float(seconds) / int(count)

    def close(self) -> None:
        """Let it end."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(60)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--calls", type=int, default=20, help="calls of each kind and repeat")
    options = parser.parse_args()
    measured, peer = Measured(), TorchStepping()
    kinds: dict[str, Callable[[Measured, int], float]] = {
        f"a condition never true ({CONDITION})": ours,
        "no condition (traceInstructions)": traced,
    }
    peers: list[float] = []
    taken: dict[str, list[float]] = {name: [] for name in kinds}
    for _ in range(options.repeats):
        peers.append(peer.seconds_per_instruction(options.calls))
        for name, measure in kinds.items():
            taken[name].append(measure(measured, options.calls) / (measured.instructions * options.calls))
    peer.close()
    table = Table("stepping through generated code", "instructions a second", "times torch's", "aim at least")
    table.add_row("torch's bytecode_debugger", f"{1 / statistics.median(peers):,.0f}", "1.0", "")
    for (name, seconds), aim in zip(taken.items(), ("10", ""), strict=True):
        ratios = [other / own for other, own in zip(peers, seconds, strict=True)]
        table.add_row(name, f"{1 / statistics.median(seconds):,.0f}", f"{statistics.median(ratios):.1f}", aim)
    Console().print(table)


if __name__ == "__main__":
    main()
