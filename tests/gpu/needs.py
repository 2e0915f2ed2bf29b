"""What a test here needs, and where it runs: on a GPU, or on the CPU to rehearse the test itself."""

from __future__ import annotations

import importlib.util
import os

import pytest
import torch

from dynamo_dap.debuggee.torch_api.code_objects.generated_code import NOTIFICATION

REHEARSAL = "DYNAMO_DAP_REHEARSE_GPU"
"""Set to 1, tests that can run on the CPU do so: what they expect of the debugger is the same there."""
CARDS = torch.cuda.device_count() if torch.cuda.is_available() else 0
IS_REHEARSED = not CARDS and os.environ.get(REHEARSAL) == "1"
DEVICE = "cuda" if CARDS else "cpu"
NO_GPU = "no GPU"

needs_device = pytest.mark.skipif(not CARDS and not IS_REHEARSED, reason=NO_GPU)
"""For a test that says the same of the CPU, but for the counts."""
needs_two_gpus = pytest.mark.skipif(
    CARDS < 2 and not IS_REHEARSED, reason=NO_GPU if not CARDS else "one GPU: this needs two"
)
needs_triton = pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="Triton is not installed")
needs_generated_code = pytest.mark.skipif(
    NOTIFICATION.problem is not None, reason=f"off in this torch: {NOTIFICATION.problem}"
)
"""Torch 2.11 has no hook before generated code: neither that nor cached calls stop there."""
