"""Tick "NaN and Inf" under Breakpoints in the Run and Debug view, then press F5."""

import torch


@torch.compile(backend="aot_eager")
def share(part, whole):
    whole = whole - whole.mean()
    ratio = part / whole  # 0 / 0 is made here
    return ratio.sum()


print(share(torch.ones(3), torch.tensor([1.0, 2.0, 4.0])))
print(share(torch.zeros(3), torch.ones(3)))
