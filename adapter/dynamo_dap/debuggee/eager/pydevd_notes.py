"""Reads debugpy's own notes of the code that has begun, which it makes when it first sees a function of any thread.

Uses debugpy's private names, as ``pydevd_internals`` does.
"""

from __future__ import annotations

import sys
import types

_BEGUN = (0, "", None)
"""Our own mark among the code objects that debugpy has seen."""


def note_code_from_here() -> None:
    """Mark the beginning of the program among the notes."""
    sys.modules["pydevd"].PyDB.get_cache_file_type(None)[_BEGUN] = None


def functions_seen() -> set[tuple[str, int, str]] | None:
    """Return path, first line and name of each function that debugpy has seen; None if notes since the mark are lost.

    The notes outlive debugpy's session, which ends before the program's functions of ``atexit`` do.
    """
    notes = dict(sys.modules["pydevd"].PyDB.get_cache_file_type(None))
    if notes.pop(_BEGUN, notes) is notes:
        return None
    # debugpy also notes files of breakpoints, with a placeholder instead of code.
    return {(path, line, code.co_name) for line, path, code in notes if isinstance(code, types.CodeType)}
