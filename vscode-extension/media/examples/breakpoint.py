"""Press F5: the program stops on the marked line in each of the three calls. F10 steps, F11 goes into scale."""

import torch


def scale(tensor, factor):
    return tensor * factor


@torch.compile(backend="aot_eager")
def compute(x, y):
    z = x + y  # a breakpoint is set here
    z = scale(z, 2)
    return z.sum()


for number in range(3):
    print(compute(torch.ones(3) * number, torch.arange(3.0)))
