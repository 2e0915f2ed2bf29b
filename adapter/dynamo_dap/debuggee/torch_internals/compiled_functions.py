"""Functions that ``torch.compile`` wrapped, told from the user's own. Any thread; reads only what is stored."""

from __future__ import annotations

import types
from typing import Any


def compiled_original(function: types.FunctionType) -> Any:
    """Return the user's function behind what ``torch.compile`` or ``disable`` returned; None for other functions."""
    return function.__dict__.get("_torchdynamo_orig_callable")


def is_disabled(function: types.FunctionType) -> bool:
    """Whether the wrapper keeps Dynamo out (``torch.compiler.disable``) rather than compiling."""
    return bool(function.__dict__.get("_torchdynamo_disable", False))
