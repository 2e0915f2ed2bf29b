"""A compiled function over a tensor of a billion elements that are all there, for the benchmark of its viewer."""

import torch


@torch.compile(backend="eager")
def step(x, y):
    z = y + 1
    return z.sum()  # @traced


values = torch.ones(10**9, dtype=torch.uint8).view(25_000, 40_000)
step(values, torch.ones(3))  # @ordinary
step(values, torch.ones(3))
