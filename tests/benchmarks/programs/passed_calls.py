"""Calls a compiled function of a training step as often as it is asked to, and answers what that took.

It receives how many calls. ``python passed_calls.py PORT``: see ``calls.py``.
"""

import socket
import sys
import time

import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(16, 16) for _ in range(4))

    def forward(self, x, step):
        outputs = []
        for layer in self.layers:
            x = torch.relu(layer(x))
            outputs.append(x)
        total = torch.stack(outputs).mean()
        return total  # @line


def call(compiled, x, times):
    started, processor_started = time.perf_counter(), time.thread_time()
    for _ in range(times):
        compiled(x, 3)
    return time.perf_counter() - started, time.thread_time() - processor_started


def main():
    torch.set_num_threads(1)
    compiled = torch.compile(Net(), backend="eager")
    x = torch.randn(4, 16)
    with socket.create_connection(("127.0.0.1", int(sys.argv[1]))) as connection:
        call(compiled, x, 5)
        with connection.makefile("rw") as lines:
            for line in lines:
                print(*call(compiled, x, int(line)), file=lines, flush=True)


if __name__ == "__main__":
    main()
