"""What one session over eager code, tracing and generated code costs, beside the plain program and debugpy alone.

Runs everything in one go, in turn, so that a busy machine is busy for all. ``python tests/benchmarks/eager.py`` prints
medians, least times and ratios to the plain program. With nothing armed: the compile time of a 12-layer encoder, a steady-state call
of it, and an eager loop. Then the loop with a breakpoint in its function that is never reached, and the latency of a
step with stack, scopes and variables in eager code, beside debugpy's own adapter. The first compile, in which Dynamo
itself is imported, and the first calls do not count. The least time leaves out most of what else the machine does.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parents[2]), str(Path(__file__).resolve().parents[2] / "adapter")]

from tests.eager.peer import ADAPTERS, Peer

STEPS = 100

_PROGRAM = """
import json, sys, time
import torch

layer = torch.nn.TransformerEncoderLayer(64, 4, 128, batch_first=True)
model = torch.nn.TransformerEncoder(layer, 12, enable_nested_tensor=False).eval()
x = torch.randn(2, 16, 64)
compiled = torch.compile(model, backend="eager")


def loop(n):
    total = 0
    for i in range(n):
        total += i % 7
    return total


def measured(work, repeat, before=lambda: None):
    found = []
    for _ in range(repeat):
        before()
        begin = time.perf_counter()
        work()
        found.append(time.perf_counter() - begin)
    return found


torch.set_num_threads(1)
with torch.no_grad():
    compiled(x)
    result = {"compile of an encoder": measured(lambda: compiled(x), 3, before=torch.compiler.reset)}
    for _ in range(20): compiled(x)
    result["steady-state call"] = measured(lambda: compiled(x), 1000)
loop(10)
result["eager loop"] = measured(lambda: loop(500_000), 10)
json.dump(result, open(sys.argv[1], "w"))
"""

_ARMED = """
import json, sys, time


def armed(n):
    total = 0
    for i in range(n):
        if i < 0:
            total = -1  #@never
        total += i % 7
    return total


found = []
for _ in range(3):
    begin = time.perf_counter()
    armed(100_000)
    found.append(time.perf_counter() - begin)
json.dump({"eager loop, breakpoint near": found}, open(sys.argv[1], "w"))
"""

_STEPS = """
def steps(n):
    a = 0
    for i in range(n):
        a = a + 1
        b = a * 2
    return b

steps(1000)  #@begin
"""


Measured = dict[str, list[float]]
"""Seconds, by what was measured."""


def _under(adapter: str, program: Path, result: Path) -> Measured:
    peer = Peer(adapter, program, is_checked=False)
    try:
        with peer.launching(args=[str(result)], justMyCode=True):
            peer.ask("setExceptionBreakpoints", {"filters": []})
            if "never" in peer.fixture.markers:
                peer.breakpoints("never")
        peer.timeline.expect_event("exited", deadline=600)
    finally:
        peer.close()
    return dict(json.loads(result.read_text()))


def _plainly(program: Path, result: Path) -> Measured:
    subprocess.run([sys.executable, str(program), str(result)], check=True, timeout=600)
    return dict(json.loads(result.read_text()))


def _step_latency(adapter: str, program: Path) -> list[float]:
    peer = Peer(adapter, program, is_checked=False)
    try:
        with peer.launching():
            peer.ask("setBreakpoints", {"source": {"path": str(program)}, "breakpoints": [{"line": 5}]})
        peer.stop()
        peer.ask("setBreakpoints", {"source": {"path": str(program)}, "breakpoints": []})
        found = []
        for _ in range(STEPS):
            begin = time.perf_counter()
            peer.step("next")
            found.append((time.perf_counter() - begin) * 1000)
        return found
    finally:
        peer.close()


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3, help="how often every program is run (3)")
    rounds = parser.parse_args().rounds
    with tempfile.TemporaryDirectory() as folder:
        program, armed, steps = Path(folder, "program.py"), Path(folder, "armed.py"), Path(folder, "steps.py")
        result = Path(folder, "result.json")
        for path, text in ((program, _PROGRAM), (armed, _ARMED), (steps, _STEPS)):
            path.write_text(text, encoding="utf-8")
        found: dict[str, list[Measured]] = {"plain": [], "dynamo": [], "debugpy": []}
        for _ in range(rounds):
            found["plain"].append(_plainly(program, result) | _plainly(armed, result))
            for adapter in ADAPTERS:
                found[adapter].append(_under(adapter, program, result) | _under(adapter, armed, result))
        _tell_ratios(found)
        for adapter in ADAPTERS:
            latencies = sorted(_step_latency(adapter, steps))
            p50, p90 = latencies[len(latencies) // 2], latencies[len(latencies) * 9 // 10]
            print(f"step with stack, scopes, variables  {adapter:8} p50 {p50:.1f} ms   p90 {p90:.1f} ms")


def _tell_ratios(found: dict[str, list[Measured]]) -> None:
    for what in found["plain"][0]:
        for name, summary in (("median", statistics.median), ("least", min)):
            values = {who: summary(one for result in found[who] for one in result[what]) for who in found}
            plain = f"{values['plain'] * 1000:.2f} ms plain"
            ours, alone = (values[who] / values["plain"] for who in ("dynamo", "debugpy"))
            print(f"{what:28} {name:7} {plain:>18}   ours {ours:.2f}x   debugpy alone {alone:.2f}x")


if __name__ == "__main__":
    main()
