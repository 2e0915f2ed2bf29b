"""The exception table of a code object: which instructions are protected, and where control goes when they raise.

Python 3.11 and newer keep it in ``co_exceptiontable``, in the variable-length format that CPython's
``InternalDocs/exception_handling.md`` describes; Python 3.10 has blocks instead, and no table. Pure; any thread.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from types import CodeType


@dataclass(frozen=True, slots=True)
class ProtectedRange:
    """Instructions at offsets from ``start`` up to, not including, ``end`` go to ``handler`` when they raise."""

    start: int
    end: int
    handler: int
    depth: int
    """The value stack is cut to this depth before the handler runs."""
    pushes_offset: bool
    """Whether the offset of the raising instruction is pushed below the exception."""

    @property
    def handler_depth(self) -> int:
        """The depth of the value stack before the first instruction of the handler: the exception is on top."""
        return self.depth + self.pushes_offset + 1


def exception_table(code: CodeType) -> list[ProtectedRange]:
    """Return the protected ranges of ``code``, innermost first where they overlap as CPython looks them up."""
    return list(_entries(getattr(code, "co_exceptiontable", b"")))


def _entries(table: bytes) -> Iterator[ProtectedRange]:
    numbers = _numbers(table)
    for start in numbers:
        length, handler, depth_and_flag = next(numbers), next(numbers), next(numbers)
        yield ProtectedRange(
            start * 2, (start + length) * 2, handler * 2, depth_and_flag >> 1, bool(depth_and_flag & 1)
        )


def _numbers(table: bytes) -> Iterator[int]:
    """Decode numbers of six bits a byte, most significant first; bit 6: more follow, bit 7: an entry begins."""
    number = 0
    for byte in table:
        number = number << 6 | byte & 0x3F
        if not byte & 0x40:
            yield number
            number = 0
