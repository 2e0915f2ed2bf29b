"""What is large, each at a stop: 10,000 names, a list of a million, a graph of 5,000 nodes."""

import torch


def many_names():
    for number in range(10_000):
        globals()[f"name{number}"] = number
    million = list(range(10**6))
    return len(million)  # @names


@torch.compile(backend="eager")
def many_nodes(x):
    for _ in range(5_000):
        x = x + 1
    return x * 2  # @nodes


many_names()
many_nodes(torch.ones(2))
