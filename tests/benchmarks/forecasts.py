"""How long a forecast takes to ask 20 cache entries about 129 sizes: ``make bench ARGUMENTS=forecast``.

It runs in this process, without trials, which compile.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import torch

from dynamo_dap.debuggee.launch.forecasts.forecaster import ask_entries, begin_forecast
from dynamo_dap.protocol.requests.forecasts import ForecastRun
from tests.benchmarks.figures import Measured

ENTRIES = 20


def unrolled(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """Have one cache entry for each size."""
    for number in range(x.shape[0]):
        x = (x @ weight) + number
    return x


def forecast(is_quick: bool) -> Iterator[Measured]:
    """How long a forecast takes."""
    begin_forecast(ForecastRun(""))
    torch._dynamo.config.recompile_limit = ENTRIES
    compiled = torch.compile(unrolled, backend="eager")
    for size in range(2, ENTRIES + 2):
        compiled(torch.ones(size, 4), torch.ones(4, 4))
    seconds = []
    for _ in range(1 if is_quick else 5):
        began = time.perf_counter()
        body, _ = ask_entries(ForecastRun("", first=0, last=128))
        seconds.append(time.perf_counter() - began)
    (function,) = body.functions
    assert len(function.entries) == ENTRIES
    assert sum(one.entry is not None for one in function.sizes[0].served) == ENTRIES
    yield Measured("forecast.entries", seconds)
