"""Calls compiled models of several sizes as often as it is asked to, and answers what that took.

It receives ``small 10``, ``middle 10``, ``large 10``, or ``training 10``. ``python sized_calls.py PORT``: see
``calls.py``.
"""

import socket
import sys
import time

import torch
from torch import nn

SIZES = {"small": (64, 3, 16), "middle": (256, 4, 32), "large": (384, 4, 48), "training": (1024, 3, 32)}
"""Width, layers and batch."""


def model(width, layers):
    return nn.Sequential(*[each for _ in range(layers) for each in (nn.Linear(width, width), nn.ReLU())])


def call(step, x, times, trains):
    started, processor_started = time.perf_counter(), time.thread_time()
    for _ in range(times):
        with torch.set_grad_enabled(trains):
            y = step(x)
        if trains:
            y.square().mean().backward()
            for each in step.parameters():
                each.grad = None
    return time.perf_counter() - started, time.thread_time() - processor_started


def main():
    torch.set_num_threads(1)
    steps = {
        name: (torch.compile(model(width, layers), backend="aot_eager"), torch.randn(batch, width))
        for name, (width, layers, batch) in SIZES.items()
    }
    with socket.create_connection(("127.0.0.1", int(sys.argv[1]))) as connection:
        for name, (step, x) in steps.items():
            call(step, x, 5, name == "training")
        with connection.makefile("rw") as lines:
            for line in lines:
                name, times = line.split()
                print(*call(*steps[name], int(times), name == "training"), file=lines, flush=True)


if __name__ == "__main__":
    main()
