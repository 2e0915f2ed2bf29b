"""Calls or trains a compiled Llama in bf16 whenever it is asked to: ``python llama_large.py PORT DEVICE [small]``.

It reads ``forward N`` or ``training N`` from its connection, does N steps, and answers with their seconds. Its sizes
are those of Llama 3.2 1B and its weights are random, so that nothing is downloaded; ``small`` is for the CPU.
"""

import socket
import sys
import time

import torch
from torch import nn

DEVICE = sys.argv[2]
IS_SMALL = "small" in sys.argv
LAYERS, WIDTH, HEADS, KEYS, HIDDEN, WORDS = (1, 64, 4, 2, 128, 256) if IS_SMALL else (16, 2048, 32, 8, 8192, 128256)
BATCH, LENGTH = (1, 16) if IS_SMALL else (1, 1024)


class Norm(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(WIDTH))

    def forward(self, x):
        return nn.functional.rms_norm(x, (WIDTH,), self.weight, 1e-5)


def rotated(x, cos, sin):
    first, second = x.chunk(2, -1)
    return x * cos + torch.cat((-second, first), -1) * sin


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        size = WIDTH // HEADS
        self.query = nn.Linear(WIDTH, WIDTH, bias=False)
        self.key = nn.Linear(WIDTH, KEYS * size, bias=False)
        self.value = nn.Linear(WIDTH, KEYS * size, bias=False)
        self.out = nn.Linear(WIDTH, WIDTH, bias=False)

    def forward(self, x, cos, sin):
        batch, length, _ = x.shape
        query = rotated(self.query(x).view(batch, length, HEADS, -1).transpose(1, 2), cos, sin)
        key = rotated(self.key(x).view(batch, length, KEYS, -1).transpose(1, 2), cos, sin)
        value = self.value(x).view(batch, length, KEYS, -1).transpose(1, 2)
        key, value = (each.repeat_interleave(HEADS // KEYS, 1) for each in (key, value))
        mixed = nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        return self.out(mixed.transpose(1, 2).reshape(batch, length, WIDTH))


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.attention, self.second = Norm(), Attention(), Norm()
        self.gate = nn.Linear(WIDTH, HIDDEN, bias=False)
        self.up = nn.Linear(WIDTH, HIDDEN, bias=False)
        self.down = nn.Linear(HIDDEN, WIDTH, bias=False)

    def forward(self, x, cos, sin):
        x = x + self.attention(self.first(x), cos, sin)
        y = self.second(x)
        return x + self.down(nn.functional.silu(self.gate(y)) * self.up(y))


class Llama(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH)
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
        self.norm = Norm()
        size = WIDTH // HEADS
        angles = torch.outer(torch.arange(LENGTH), 500000.0 ** (-torch.arange(0, size, 2) / size)).repeat(1, 2)
        self.register_buffer("cos", angles.cos())
        self.register_buffer("sin", angles.sin())

    def forward(self, words):
        x = self.words(words)
        for layer in self.layers:
            x = layer(x, self.cos, self.sin)
        return nn.functional.linear(self.norm(x), self.words.weight)


def never_called(x):
    return x + 1  # @never


def main():
    torch.manual_seed(0)
    model = Llama().to(DEVICE, torch.bfloat16)
    compiled = torch.compile(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    words = torch.randint(0, WORDS, (BATCH, LENGTH), device=DEVICE)

    def forward():
        with torch.no_grad():
            compiled(words)

    def training():
        loss = nn.functional.cross_entropy(compiled(words).view(-1, WORDS), words.view(-1))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    def wait():
        if DEVICE != "cpu":
            torch.cuda.synchronize()

    with socket.create_connection(("127.0.0.1", int(sys.argv[1]))) as connection:
        with connection.makefile("rw") as lines:
            for line in lines:
                name, count = line.split()
                step = {"forward": forward, "training": training}[name]
                wait()
                started, processor_started = time.perf_counter(), time.thread_time()
                for _ in range(int(count)):
                    step()
                wait()
                taken = time.perf_counter() - started, time.thread_time() - processor_started
                print(*taken, file=lines, flush=True)


if __name__ == "__main__":
    main()
