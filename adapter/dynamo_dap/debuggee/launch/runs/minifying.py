"""Runs the program until a compile fails, minifies the graph in its process, and ends the program.

Runs on the main thread of a process made for this run; minifying runs on the compiling thread.
"""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path

import msgspec

from dynamo_dap.debuggee.launch.runs.program import Program, run
from dynamo_dap.debuggee.torch_api.compiles.minifying import MinifyingProcess
from dynamo_dap.protocol.requests.minifying import OUTCOME, MinifiedBody, MinifyingRun


def run_minifying(program: Program, asked: MinifyingRun) -> None:
    """Run the program; the first failing compile ends it."""
    folder = Path(asked.folder)

    def end(error: str, problem: str | None) -> None:
        (folder / OUTCOME).write_bytes(msgspec.json.encode(MinifiedBody(error, problem)))
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):
                stream.flush()
        os._exit(0)

    MinifyingProcess(folder, end).begin()
    run(program, before=lambda filename: None)
