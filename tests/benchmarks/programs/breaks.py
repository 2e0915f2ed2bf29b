"""Compiles and calls the functions of ``forty.py``, which the benchmark writes beside it, whenever it is asked to.

``python breaks.py PORT``: see ``encoder.py``.
"""

import gc
import socket
import sys
import time

import forty
import torch


def compile_all(x):
    torch.compiler.reset()
    gc.collect()
    gc.disable()
    started, processor_started = time.perf_counter(), time.process_time()
    for function in forty.functions:
        torch.compile(function, backend="eager")(x)
    seconds = time.perf_counter() - started, time.process_time() - processor_started
    gc.enable()
    return seconds


def main():
    torch.set_num_threads(1)
    with socket.create_connection(("127.0.0.1", int(sys.argv[1]))) as connection:
        with connection.makefile("rw") as lines:
            for _ in lines:
                print(*compile_all(torch.ones(4)), file=lines, flush=True)


if __name__ == "__main__":
    main()
