"""Tick "Graph Breaks" under Breakpoints in the Run and Debug view, then press F5."""

import torch


@torch.compile(backend="aot_eager")
def step(x):
    hidden = x.relu()
    if hidden.sum() > 1:  # the graph breaks here: the branch depends on data
        hidden = hidden / hidden.sum()
    return hidden * 2


print(step(torch.ones(3)))
