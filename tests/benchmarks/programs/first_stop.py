"""Compiles a function whose first line says when it is traced, for the benchmark of the way to the first stop."""

import torch
from torch._dynamo.comptime import comptime


def reached(_):
    print("reached", flush=True)


@torch.compile(backend="eager")
def function(x):
    comptime(reached)
    y = x + 1  # @traced
    return y * 2


function(torch.ones(3))  # @call
