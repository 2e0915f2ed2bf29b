"""Ends a command that cannot do what the user wants. Runs on the command's main thread."""

from __future__ import annotations

import sys


def fail(text: str, status: int = 2) -> int:
    """Print why the command failed, and return its exit status."""
    sys.stderr.write(f"dynamo-dap: {text}\n")
    return status
