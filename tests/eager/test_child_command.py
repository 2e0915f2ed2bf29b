"""Command lines of child processes: which of them get the debugger's command in front."""

from __future__ import annotations

import sys

import pytest

from dynamo_dap.debuggee.launch.children.child_command import Argument, debugged_command

ENTRY = [*(["-u"] if getattr(sys.__stdout__, "write_through", False) else []), "ENTRY", "--child", "FILE"]
WORKER = "from multiprocessing.spawn import spawn_main; spawn_main()"


@pytest.mark.parametrize(
    ("command", "own", "program"),
    [
        (["python", "a.py", "-c", "x"], ["python"], ["a.py", "-c", "x"]),
        (["/usr/bin/python3.11", "-u", "-X", "dev", "a.py"], ["/usr/bin/python3.11", "-u", "-X", "dev"], ["a.py"]),
        (["python", "-Xdev", "-Werror", "a.py"], ["python", "-Xdev", "-Werror"], ["a.py"]),
        (["python", "-W", "-c", "a.py"], ["python", "-W", "-c"], ["a.py"]),
        (["python", "-c", WORKER, "--multiprocessing-fork"], ["python"], ["-c", WORKER, "--multiprocessing-fork"]),
        (["python", "-uc" + WORKER, "x"], ["python", "-u"], ["-c", WORKER, "x"]),
        (["python", "-qm", "module", "x"], ["python", "-q"], ["-m", "module", "x"]),
        (["python", "-mmodule"], ["python"], ["-m", "module"]),
        (
            ["python", "--check-hash-based-pycs", "always", "a.py"],
            ["python", "--check-hash-based-pycs", "always"],
            ["a.py"],
        ),
        ([b"python", b"a.py"], ["python"], ["a.py"]),
    ],
)
def test_the_entry_comes_between_pythons_options_and_the_program(
    command: list[Argument], own: list[str], program: list[str]
) -> None:
    assert debugged_command(command, "ENTRY", "FILE") == [*own, *ENTRY, *program]


@pytest.mark.parametrize(
    "command",
    [
        [],
        ["ls", "a.py"],
        ["python"],
        ["python", "-V"],
        ["python", "--version"],
        ["python", "-"],
        ["python", "-m"],
        ["python", "-c"],
        ["python", *ENTRY, "a.py"],
        ["python", "-c", "from multiprocessing.resource_tracker import main;main(5)"],
        ["python", "-c", "from multiprocessing.forkserver import main; main(3, 4, [])"],
        ["python", "-c", "from ctypes import cdll"],
        ["python", "-m", "pip", "list"],
        ["python", "-m", "torch._inductor.compile_worker"],
        ["python", "/x/torch/_inductor/compile_worker/__main__.py", "--pickler"],
    ],
)
def test_what_runs_nothing_of_the_users_is_left_alone(command: list[Argument]) -> None:
    assert debugged_command(command, "ENTRY", "FILE") is None
