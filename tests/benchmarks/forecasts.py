"""How long a forecast takes to ask 20 cache entries about 129 sizes: ``python -m tests.benchmarks.forecasts``.

Median of several turns in one process. The target is 2 s, without trials, which compile.
"""

from __future__ import annotations

import statistics
import sys
import time

import torch

from dynamo_dap.debuggee.launch.forecasts import ask_entries, begin_forecast
from dynamo_dap.protocol.forecasts import ForecastRun

ENTRIES = 20
TURNS = 5


def unrolled(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """Have one cache entry for each size."""
    for number in range(x.shape[0]):
        x = (x @ weight) + number
    return x


def main() -> int:
    """Measure and print; return 1 if the target is missed."""
    begin_forecast(ForecastRun(""))
    torch._dynamo.config.recompile_limit = ENTRIES
    compiled = torch.compile(unrolled, backend="eager")
    for size in range(2, ENTRIES + 2):
        compiled(torch.ones(size, 4), torch.ones(4, 4))
    seconds = []
    for _ in range(TURNS):
        began = time.perf_counter()
        body, _ = ask_entries(ForecastRun("", first=0, last=128))
        seconds.append(time.perf_counter() - began)
    (function,) = body.functions
    assert len(function.entries) == ENTRIES
    assert sum(one.entry is not None for one in function.sizes[0].served) == ENTRIES
    sys.stdout.write(f"{ENTRIES} entries, 129 sizes: {statistics.median(seconds):.2f} s\n")
    return 0 if statistics.median(seconds) < 2 else 1


if __name__ == "__main__":
    sys.exit(main())
