"""``dynamo-dap minify`` on the failing backend of torch's own guides, and what it leaves when it is interrupted."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import IO

import msgspec

from dynamo_dap.terminal.minifying import JsonMinified
from tests.client.processes import MARK, wait_until_gone
from tests.client.timeline import DEADLINE

PROGRAM = """
import torch

@torch.compile(backend="relu_compile_error_TESTING_ONLY")
def f(x):
    y = torch.sin(x)
    y = torch.relu(y)
    return torch.cos(y) + 1

f(torch.randn(4))
"""
WAITS = """
import torch, time
torch.zeros(1)
print("Started off with 7 nodes", flush=True)
time.sleep(500)
"""


def started(folder: Path, text: str, *options: str) -> subprocess.Popen[str]:
    path = folder / "program.py"
    path.write_text(text)
    # As from a person's shell: whoever runs the tests in the background has them ignore Ctrl-C.
    before = signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        return subprocess.Popen(
            [sys.executable, "-m", "dynamo_dap", "minify", *options, str(path)],
            env={**os.environ, MARK: str(folder)},
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
    finally:
        signal.signal(signal.SIGINT, before)


def wait_for(stream: IO[str], text: str) -> None:
    """Its process ends by itself when the test's time is over."""
    for line in stream:
        if text in line:
            return
    raise AssertionError(f"it has ended without {text!r}")


def test_the_guides_failing_backend(tmp_path: Path) -> None:
    """Nothing fails after AOTAutograd; after Dynamo it is relu alone that does."""
    output, told = started(tmp_path, PROGRAM, "--json").communicate(timeout=250)
    found = json.loads(output)
    assert msgspec.convert(found, JsonMinified)
    assert found["stage"] == "dynamo", told
    assert found["nodes"] < found["before"]
    assert "ReluCompileError" in found["error"]
    text = Path(found["path"]).read_text()
    assert "relu" in text
    assert "torch.cos" not in text
    assert "torch.sin" not in text
    assert Path(found["path"]).is_relative_to(tmp_path / "minified")
    assert sorted(each.name for each in tmp_path.iterdir()) == ["minified", "program.py"]


def test_it_is_interrupted_with_all_its_processes(tmp_path: Path) -> None:
    process = started(tmp_path, WAITS)
    assert process.stderr is not None
    wait_for(process.stderr, "7 of 7 nodes")
    process.send_signal(signal.SIGINT)
    _, told = process.communicate(timeout=DEADLINE)
    assert process.returncode == 130
    assert "cancelled" in told
    assert not wait_until_gone(str(tmp_path), 15)
    assert not list((tmp_path / "minified").iterdir())
