"""What ``dynamo-dap compare`` says before the program ends: differences, and at a terminal the call that takes long."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
from pathlib import Path

from tests.client.environments import own_command

PROGRAM = """
import time
import torch

compiles = []

def slow_again(graph, inputs):
    compiles.append(graph)
    if len(compiles) > 1:
        time.sleep(6)
    return graph.forward

@torch.compile(backend=slow_again)
def doubled(x):
    return x * 2

doubled(torch.ones(3))
doubled(torch.ones(3))
"""


def test_a_terminal_shows_the_call_that_is_compared(tmp_path: Path) -> None:
    """The backend compiles the graph again for each compared call; the result has the same lines as elsewhere."""
    program = tmp_path / "program.py"
    program.write_text(PROGRAM, encoding="utf-8")
    master, follower = pty.openpty()
    words = [*own_command(), "compare", str(program)]
    run = subprocess.run(words, stdout=subprocess.PIPE, stderr=follower, text=True, timeout=250, check=False)
    os.close(follower)
    shown = os.read(master, 65536).decode().splitlines()
    os.close(master)
    assert [line.partition(" (")[0] for line in shown if "comparing" in line] == [
        "dynamo-dap: comparing call 1 of doubled [0/0]",
        "dynamo-dap: comparing call 2 of doubled [0/0]",
    ]
    assert run.returncode == 0
    assert run.stdout.splitlines()[-1] == "2 calls: 2 same"


def test_a_file_gets_no_progress(tmp_path: Path) -> None:
    """Standard error that is not a terminal has only what the program writes."""
    program = tmp_path / "program.py"
    program.write_text(PROGRAM, encoding="utf-8")
    words = [*own_command(), "compare", str(program)]
    run = subprocess.run(words, capture_output=True, text=True, timeout=250, check=False)
    assert (run.returncode, run.stderr) == (0, "")


DIFFERS = """
import time
import torch

def wrong(graph, inputs):
    return lambda *given: tuple(each + 1 for each in graph(*given))

@torch.compile(backend=wrong)
def doubled(x):
    return x * 2

doubled(torch.ones(3))
time.sleep(500)
"""


def test_a_difference_is_printed_before_the_program_ends(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(DIFFERS, encoding="utf-8")
    words = [*own_command(), "compare", str(program)]
    with subprocess.Popen(
        words, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        assert process.stderr is not None
        line = process.stderr.readline()
        os.killpg(process.pid, signal.SIGKILL)
    assert line == "dynamo-dap: call 1 of doubled differs at program.py:10\n"
