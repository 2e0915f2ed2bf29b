"""Reading the arguments of commands."""

from __future__ import annotations

from dynamo_dap.terminal.errors import UsageError


def number(text: str) -> int:
    """Read a number that is not negative.

    Raises:
        UsageError: it is none.
    """
    if not text.isdigit():
        raise UsageError(f"{text!r} is not a number")
    return int(text)
