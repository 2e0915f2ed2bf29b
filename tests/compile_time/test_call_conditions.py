"""A replay restores the modes of its call, and nothing else."""

from __future__ import annotations

import torch

from dynamo_dap.debuggee.torch_api.compiles.call_conditions import enter_modes, modes


def test_modes_that_are_set_already_change_no_backend() -> None:
    """This matters because torch 2.15 guards the precision of each backend."""
    before = torch.backends.cuda.matmul.fp32_precision, torch.backends.mkldnn.matmul.fp32_precision
    enter_modes(modes(), lambda context: None)
    assert (torch.backends.cuda.matmul.fp32_precision, torch.backends.mkldnn.matmul.fp32_precision) == before
