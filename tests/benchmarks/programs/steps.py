"""A compiled loop with many lines to step over, and a few locals of different kinds."""

import torch


@torch.compile(backend="eager")
def loop(x, config):
    total = x * 0
    parts = []
    for index in range(400):
        total = total + x
        total = total * 2
    return total, parts


if __name__ == "__main__":
    loop(torch.ones(3, 4), {"rate": 0.5, "names": ["a", "b"]})
