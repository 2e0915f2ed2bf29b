"""Writing local variables of a running frame. Held thread only."""

from __future__ import annotations

import ctypes
import sys
from types import FrameType
from typing import Any


def write_local(frame: FrameType, name: str, value: Any) -> None:
    """Set the local variable or cell ``name`` of ``frame``, which must have one of that name."""
    if sys.version_info >= (3, 13):
        # PEP 667: f_locals writes through.
        frame.f_locals[name] = value
        return
    # f_locals is a copy, made anew at each look; the interpreter carries over what is changed in the last one.
    copy = frame.f_locals
    copy[name] = value
    ctypes.pythonapi.PyFrame_LocalsToFast(ctypes.py_object(frame), ctypes.c_int(0))
