"""Reads from debugpy which functions have begun: it notes each function when it first sees one of its calls.

Uses debugpy's private names, as ``pydevd_internals`` does. Runs on any thread.
"""

from __future__ import annotations

import sys
import types

_START_MARK = (0, "", None)
"""A mark of this module among debugpy's notes."""


def note_code_from_here() -> None:
    """Add the mark to debugpy's notes, at the beginning of the program."""
    sys.modules["pydevd"].PyDB.get_cache_file_type(None)[_START_MARK] = None


def functions_seen() -> set[tuple[str, int, str]] | None:
    """Return path, first line and name of each function that debugpy has seen; None if notes since the mark are lost.

    The notes outlive debugpy's session, which ends before the program's ``atexit`` functions run.
    """
    notes = dict(sys.modules["pydevd"].PyDB.get_cache_file_type(None))
    if notes.pop(_START_MARK, notes) is notes:
        return None
    # debugpy also notes files of breakpoints, with a placeholder instead of code.
    return {(path, line, code.co_name) for line, path, code in notes if isinstance(code, types.CodeType)}
