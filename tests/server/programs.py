"""Small programs without torch, written where a test wants them: what the server does needs no tracing."""

from __future__ import annotations

from pathlib import Path

PAUSING = """\
import dynamo_dap, sys
print("before", flush=True)
value = [len(sys.argv), sys.argv[1:]]
dynamo_dap.breakpoint()
print("after", flush=True)
"""

RUNNING_ON = """\
import time
print("running", flush=True)
deadline = time.monotonic() + 600
while time.monotonic() < deadline:
    time.sleep(0.05)
"""


def write(folder: Path, text: str, name: str = "program.py") -> Path:
    """Write a program and return its path."""
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path
