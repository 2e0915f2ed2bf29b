"""Starts code of this package in another Python, without modules of the current folder.

Python puts the current folder first on the path of ``-c`` and ``-m``. Another person's ``msgspec.py`` or ``dynamo_dap``
there would run. Has no state.
"""

from __future__ import annotations

from pathlib import Path

_HOME = str(Path(__file__).resolve().parents[3])


def own_code(statements: str, *, here: bool = True) -> str:
    """Return code for Python's ``-c`` that runs ``statements`` without modules of the current folder.

    With ``here``, they run in this interpreter's environment, and find this package even if it is not installed.
    """
    found = f"sys.path.append({_HOME!r}); " if here else ""
    return f"import sys; sys.path[:1] = filter(None, sys.path[:1]); {found}{statements}"
