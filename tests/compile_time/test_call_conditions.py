"""The conditions of a call are set again for a replay, and nothing beside them."""

from __future__ import annotations

import torch

from dynamo_dap.debuggee.torch_api.compiles.call_conditions import enter_modes, modes


def test_modes_that_are_set_already_change_no_backend() -> None:
    """Torch 2.15 has a guard for the precision of each backend."""
    before = torch.backends.cuda.matmul.fp32_precision, torch.backends.mkldnn.matmul.fp32_precision
    enter_modes(modes(), lambda context: None)
    assert (torch.backends.cuda.matmul.fp32_precision, torch.backends.mkldnn.matmul.fp32_precision) == before
