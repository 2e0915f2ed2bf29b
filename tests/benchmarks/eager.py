"""What one session over eager code, tracing and generated code costs, beside the plain program and debugpy alone.

Runs everything in one go, in turn, so that a busy machine is busy for all. ``python tests/benchmarks/eager.py`` prints
medians and ratios: compile time of an encoder, steady-state call of it, an eager loop; and the latency of a step with
stack, scopes and variables in eager code.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
import time
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parents[2]), str(Path(__file__).resolve().parents[2] / "adapter")]

from tests.eager.peer import ADAPTERS, Peer

ROUNDS = 2
STEPS = 40

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


with torch.no_grad():
    begin = time.perf_counter(); compiled(x); compile_seconds = time.perf_counter() - begin
    for _ in range(20): compiled(x)
    calls = []
    for _ in range(100):
        begin = time.perf_counter(); compiled(x); calls.append(time.perf_counter() - begin)
loop(10)
begin = time.perf_counter(); loop(2_000_000); loop_seconds = time.perf_counter() - begin
json.dump([compile_seconds, sorted(calls)[50], loop_seconds], open(sys.argv[1], "w"))
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


def _under(adapter: str, program: Path, result: Path, **options: object) -> list[float]:
    peer = Peer(adapter, program)
    try:
        with peer.launching(args=[str(result)], justMyCode=True, **options):
            peer.ask("setExceptionBreakpoints", {"filters": []})
        peer.timeline.expect_event("exited", deadline=300)
    finally:
        peer.close()
    return list(json.loads(result.read_text()))


def _plainly(program: Path, result: Path) -> list[float]:
    import subprocess

    subprocess.run([sys.executable, str(program), str(result)], check=True, timeout=300)
    return list(json.loads(result.read_text()))


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
    with tempfile.TemporaryDirectory() as folder:
        program, steps, result = Path(folder, "program.py"), Path(folder, "steps.py"), Path(folder, "result.json")
        program.write_text(_PROGRAM, encoding="utf-8")
        steps.write_text(_STEPS, encoding="utf-8")
        rounds: dict[str, list[list[float]]] = {"plain": [], "dynamo": [], "debugpy": []}
        for _ in range(ROUNDS):
            rounds["plain"].append(_plainly(program, result))
            rounds["dynamo"].append(_under("dynamo", program, result))
            rounds["debugpy"].append(_under("debugpy", program, result))
        for position, what in enumerate(("compile of an encoder", "steady-state call", "eager loop")):
            medians = {who: statistics.median(one[position] for one in found) for who, found in rounds.items()}
            ratios = {who: medians[who] / medians["plain"] for who in ("dynamo", "debugpy")}
            seconds = f"{medians['plain'] * 1000:.2f} ms plain"
            print(f"{what:24} {seconds:>18}   ours {ratios['dynamo']:.2f}x   debugpy alone {ratios['debugpy']:.2f}x")
        for adapter in ADAPTERS:
            found = sorted(_step_latency(adapter, steps))
            p50, p90 = found[len(found) // 2], found[len(found) * 9 // 10]
            print(f"step with stack, scopes, variables  {adapter:8} p50 {p50:.1f} ms   p90 {p90:.1f} ms")


if __name__ == "__main__":
    main()
