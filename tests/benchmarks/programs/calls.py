"""Calls compiled functions as often as it is asked to, and answers what that took.

``python calls.py PORT``: connects to the benchmark, which writes a number of calls per line and reads the answer:
seconds of the clock and of the thread's processor. Ends when the connection does.
"""

import socket
import sys
import time

import torch


@torch.compile(backend="eager")
def step(x, d):
    y = x + 1
    d["y"] = y  # @store
    return y * 2


@torch.compile(backend="eager")
def never_called(x):
    return x + 1  # @never


def call(times):
    x, d = torch.ones(4), {"y": None}
    started, processor_started = time.perf_counter(), time.thread_time()
    for _ in range(times):
        step(x, d)
    return time.perf_counter() - started, time.thread_time() - processor_started


def main():
    torch.set_num_threads(1)
    step(torch.ones(4), {"y": None})
    step(torch.ones(4), {"y": torch.ones(4)})
    call(100)
    with socket.create_connection(("127.0.0.1", int(sys.argv[1]))) as connection:
        with connection.makefile("rw") as lines:
            for line in lines:
                print(*call(int(line)), file=lines, flush=True)


if __name__ == "__main__":
    main()
