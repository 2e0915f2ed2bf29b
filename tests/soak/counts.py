"""How long each part of ``make soak`` is, by variables of the environment, which ``make`` sets.

Without one, a part has its short form.
"""

from __future__ import annotations

import os


def count(name: str, in_the_suite: int) -> int:
    """How often to do what ``name`` (``LIVES``, ``MESSAGES``, ...) counts."""
    return int(os.environ.get(f"SOAK_{name}") or in_the_suite)


def is_soaking(name: str) -> bool:
    """Whether somebody asked for a number: what is drawn is then drawn anew each time."""
    return bool(os.environ.get(f"SOAK_{name}"))
