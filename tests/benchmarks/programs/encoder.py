"""Compiles an ``nn.TransformerEncoder`` each time it is asked to, ``compile`` or ``compile LAYERS``; says what it took.

``python encoder.py PORT``: connects to the benchmark, which writes a line per compile and reads the answer: seconds
of the clock and of the processor. Ends when the connection does.
"""

import gc
import socket
import sys
import time

import torch
from torch import nn


def make_model(layers=12):
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(d_model=16, nhead=2, dim_feedforward=32, batch_first=True)
    return nn.TransformerEncoder(layer, num_layers=layers, enable_nested_tensor=False).train()


def compile_once(model, inputs):
    """Trace the model from scratch and run it; return the seconds of the clock and of the processor."""
    torch.compiler.reset()
    gc.collect()
    gc.disable()
    started, processor_started = time.perf_counter(), time.process_time()
    torch.compile(model, backend="eager")(inputs)
    seconds = time.perf_counter() - started, time.process_time() - processor_started
    gc.enable()
    return seconds


def main():
    torch.set_num_threads(1)
    models, inputs = {}, torch.ones(2, 5, 16)
    with socket.create_connection(("127.0.0.1", int(sys.argv[1]))) as connection:
        with connection.makefile("rw") as lines:
            for line in lines:
                layers = int(line.partition(" ")[2] or 12)
                if layers not in models:
                    models[layers] = make_model(layers)
                print(*compile_once(models[layers], inputs), file=lines, flush=True)


def never_called(x):
    """Where breakpoints are set that are not hit."""
    x = x + 1
    x = x + 2
    x = x + 3
    x = x + 4
    return x


if __name__ == "__main__":
    main()
