"""Which names of exceptions the ``except`` clauses around an instruction of a running function mention.

From the exception table, so for Python 3.11 and newer; Python 3.10 tells nothing. Pure; any thread.
"""

from __future__ import annotations

import dis
import functools
import sys
from types import CodeType

from dynamo_dap.debuggee.code_analysis.exception_table import ProtectedRange, exception_table

HAS_EXCEPTION_TABLE = sys.version_info >= (3, 11)
"""Whether this Python can tell."""

_NAMES = frozenset({"LOAD_GLOBAL", "LOAD_NAME", "LOAD_DEREF", "LOAD_ATTR", "LOAD_FAST"})


@functools.lru_cache(maxsize=1024)
def names_caught_at(code: CodeType, offset: int) -> frozenset[str]:
    """Return the names that the handlers around the instruction at ``offset`` (``f_lasti``) compare exceptions with."""
    ranges = exception_table(code)
    instructions = list(dis.get_instructions(code))
    found: set[str] = set()
    seen: set[int] = set()
    entry = _range_at(ranges, offset)
    while entry is not None and entry.handler not in seen:
        seen.add(entry.handler)
        names: list[str] = []
        last = offset
        for instruction in instructions:
            if instruction.offset < entry.handler:
                continue
            last = instruction.offset
            if instruction.opname in _NAMES:
                names.append(str(instruction.argval))
            elif instruction.opname == "CHECK_EXC_MATCH":
                found.update(names)
                names.clear()
            elif instruction.opname == "RERAISE":
                break
        entry = _range_at(ranges, last)
    return frozenset(found)


def _range_at(ranges: list[ProtectedRange], offset: int) -> ProtectedRange | None:
    return next((one for one in ranges if one.start <= offset < one.end), None)
