"""Calls a compiled model that takes about 10 ms as often as it is asked to, and answers what that took.

It receives ``calls 10``, or ``training 10`` for a backward pass after each. ``python model_calls.py PORT``: see
``calls.py``.
"""

import socket
import sys
import time

import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        layer = nn.TransformerEncoderLayer(512, 8, 1408, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, 2)
        self.norm = nn.BatchNorm1d(64)

    def forward(self, x):
        return self.norm(self.layers(x))


def call(step, times, trains):
    x = torch.randn(1, 64, 512)
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
    net = Net()
    net.layers.eval()
    step = torch.compile(net, backend="eager")
    with socket.create_connection(("127.0.0.1", int(sys.argv[1]))) as connection:
        call(step, 10, False)
        call(step, 10, True)
        with connection.makefile("rw") as lines:
            for line in lines:
                kind, times = line.split()
                print(*call(step, int(times), kind == "training"), file=lines, flush=True)


if __name__ == "__main__":
    main()
