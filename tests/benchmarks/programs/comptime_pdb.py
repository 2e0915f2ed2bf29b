"""Stops in torch's own terminal debugger at each turn of a loop that is traced: ``comptime.breakpoint()``."""

import torch
from torch._dynamo.comptime import comptime


@torch.compile(backend="eager")
def loop(x, config):
    total = x * 0
    parts = []
    for index in range(400):
        comptime.breakpoint()
        total = total + x
    return total, parts


loop(torch.ones(3, 4), {"rate": 0.5, "names": ["a", "b"]})
