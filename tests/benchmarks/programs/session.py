"""Compiles, calls what it compiled, and loops in ordinary Python, each when it is asked to; answers what that took.

``python session.py PORT``: connects to the benchmark, which writes a line per turn (the name of a function below) and
reads the answer: seconds of the clock and of the processor. Ends when the connection does.
"""

import gc
import socket
import sys
import time

import torch

layer = torch.nn.TransformerEncoderLayer(64, 4, 128, batch_first=True)
model = torch.nn.TransformerEncoder(layer, 12, enable_nested_tensor=False).eval()
compiled = torch.compile(model, backend="eager")
inputs = torch.randn(2, 16, 64)


def compile_encoder():
    torch.compiler.reset()
    gc.collect()
    gc.disable()
    taken = timed(lambda: compiled(inputs))
    gc.enable()
    return taken


def calls():
    return timed(lambda: [compiled(inputs) for _ in range(100)])


def loop():
    return timed(lambda: count(100_000))


def count(n):
    total = 0
    for i in range(n):
        if i < 0:
            total = -1  # @never
        total += i % 7
    return total


def timed(work):
    begin, processor_begin = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - begin, time.process_time() - processor_begin


def main():
    torch.set_num_threads(1)
    with socket.create_connection(("127.0.0.1", int(sys.argv[1]))) as connection:
        with connection.makefile("rw") as lines, torch.no_grad():
            for line in lines:
                print(*globals()[line.strip()](), file=lines, flush=True)


if __name__ == "__main__":
    main()
