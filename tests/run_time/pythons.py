"""Names of instructions for tests of generated code, which differ on Python 3.10."""

from __future__ import annotations

import sys

import pytest

IS_3_10 = sys.version_info < (3, 11)

CALL = "CALL_FUNCTION" if IS_3_10 else "CALL"
"""The instruction that calls a function with arguments by position."""

FIRST_LINE = 1 if IS_3_10 else 2
"""The first line of a function in a listing; on newer Pythons, ``RESUME`` comes before it."""

not_on_3_10 = pytest.mark.skipif(IS_3_10, reason="Python 3.10 has neither NULL slots nor instructions that make cells")
slots_are_written = pytest.mark.skipif(
    IS_3_10 or sys.version_info >= (3, 14), reason="slots of this Python's value stack are shown, not written"
)
