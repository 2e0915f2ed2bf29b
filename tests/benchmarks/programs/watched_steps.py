"""Makes training steps of a compiled model as often as it is asked to, and answers what that took.

It receives how many steps. ``python watched_steps.py PORT``: see ``calls.py``.
"""

import socket
import sys
import time

import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(*[nn.Sequential(nn.Linear(256, 256), nn.ReLU()) for _ in range(6)])
        self.scale = 1.0

    def forward(self, x):  # @forward
        return self.layers(x) * self.scale


def step(compiled, optimizer, x):
    loss = compiled(x).sum()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()


def steps(compiled, optimizer, x, times):
    started, processor_started = time.perf_counter(), time.thread_time()
    for _ in range(times):
        step(compiled, optimizer, x)
    return time.perf_counter() - started, time.thread_time() - processor_started


def main():
    torch.set_num_threads(1)
    model = Net()
    compiled = torch.compile(model, backend="eager")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
    x = torch.randn(64, 256)
    with socket.create_connection(("127.0.0.1", int(sys.argv[1]))) as connection:
        steps(compiled, optimizer, x, 5)
        with connection.makefile("rw") as lines:
            for line in lines:
                print(*steps(compiled, optimizer, x, int(line)), file=lines, flush=True)


if __name__ == "__main__":
    main()
