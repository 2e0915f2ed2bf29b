"""Finds the user's line whose call runs a CUDA graph, and how this line uses the result.

It reads no frame's locals: before Python 3.13 that keeps references, so that an output would live longer. Runs on the
calling thread; answers hold no frame.
"""

from __future__ import annotations

import dis
import functools
import os
import sys
import types
from dataclasses import dataclass

from dynamo_dap.debuggee.torch_api.code_objects.generated_code import original_of
from dynamo_dap.debuggee.torch_api.traced.variable_trackers import Place

_PACKAGE = os.path.dirname(str(sys.modules[__name__.partition(".")[0]].__file__)) + os.sep
_AUTOGRAD = os.path.join("torch", "autograd", "graph.py")
_BETWEEN = frozenset(("CACHE", "EXTENDED_ARG", "LOAD_CONST", "BINARY_SUBSCR", "UNPACK_SEQUENCE", "NOP"))
_STORES = ("STORE_FAST", "STORE_NAME", "STORE_GLOBAL", "STORE_DEREF")
"""Prefixes: Python 3.13 stores two names in one instruction."""


@dataclass(frozen=True)
class CallSite:
    """A call in the user's code."""

    code: types.CodeType
    offset: int
    place: Place
    function: str

    def is_same_call(self, other: CallSite) -> bool:
        """Return whether both are the same instruction."""
        return self.code is other.code and self.offset == other.offset

    @property
    def binds_a_name(self) -> bool:
        """Whether only names get the result: ``y = f(x)``, ``y, z = f(x)``."""
        following = (each for each in dis.get_instructions(self.code) if each.offset > self.offset)
        first = next((each for each in following if each.opname not in _BETWEEN), None)
        return first is not None and first.opname.startswith(_STORES)


def frame_of_caller(top: types.FrameType) -> types.FrameType | None:
    """Return the frame that called the compiled function, or the backward pass; None if unknown."""
    frame: types.FrameType | None = top
    while frame is not None and not _is_boundary(frame):
        frame = frame.f_back
    while frame is not None and (_is_boundary(frame) or _is_machinery(frame.f_code.co_filename)):
        frame = frame.f_back
    return frame


def call_site(top: types.FrameType) -> CallSite | None:
    """Return the user's call that led to the frame ``top``; None if unknown."""
    frame = frame_of_caller(top)
    if frame is None:
        return None
    place = Place(frame.f_code.co_filename, frame.f_lineno or frame.f_code.co_firstlineno, 1)
    return CallSite(frame.f_code, frame.f_lasti, place, frame.f_code.co_name)


def _is_boundary(frame: types.FrameType) -> bool:
    return frame.f_code.co_filename.endswith(_AUTOGRAD) or original_of(frame.f_code) is not None


@functools.lru_cache(maxsize=1024)
def _is_machinery(path: str) -> bool:
    torch_folder = os.path.dirname(str(sys.modules["torch"].__file__)) + os.sep
    return path.startswith((torch_folder, _PACKAGE))
