"""Computes digests of tensors' contents. Runs on the program's thread that makes a call."""

from __future__ import annotations

import ctypes
import hashlib
import math

from dynamo_dap.debuggee.bytecode.exact_types import is_exactly
from dynamo_dap.debuggee.torch_api.graphs.graph_runs import has_own_memory

_LENGTH = 16
_NUMBERS = (bool, int, float, complex, str, type(None))


def digest_of(value: object) -> str | None:
    """Return the digest of a plain tensor or number, None for anything else."""
    if is_exactly(value, _NUMBERS):
        return hashlib.blake2b(repr(value).encode(), digest_size=_LENGTH).hexdigest()
    if not has_own_memory(value):
        return None
    digest = hashlib.blake2b(f"{value.dtype} {tuple(value.shape)}".encode(), digest_size=_LENGTH)
    try:
        tensor = value.detach().resolve_conj().resolve_neg().cpu().contiguous()
        if (tensor.is_floating_point() or tensor.is_complex()) and bool((is_nan := tensor.isnan()).any()):
            tensor = tensor.masked_fill(is_nan, math.nan)  # NaN with other bits is the same
        size = tensor.numel() * tensor.element_size()
        if size:
            digest.update((ctypes.c_char * size).from_address(tensor.data_ptr()))
    except RuntimeError:
        return None
    return digest.hexdigest()
