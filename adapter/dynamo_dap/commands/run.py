"""``dynamo-dap run``: runs a program without any stop, and records its compiles.

This process becomes the program: signals, exit status and terminal are the program's own.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

import msgspec

from dynamo_dap.records.folders import TRACE_VARIABLE, trace_folder
from dynamo_dap.records.program import add_program, given_program, launching, read_options


def main(arguments: list[str]) -> int:
    """Run a program; does not return, but for wrong usage."""
    parser = _parser()
    options = read_options(parser, arguments)
    command, variables = launching(
        options.python, msgspec.structs.replace(given_program(parser, options), with_children=True)
    )
    environment = {**os.environ, **variables}
    if options.trace:
        environment.setdefault(TRACE_VARIABLE, str(trace_folder(Path.cwd())))
    os.execve(options.python, command, environment)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="dynamo-dap run",
        description="Run a program and record what torch.compile does; look at it with: dynamo-dap report",
    )
    parser.add_argument(
        "--trace", action="store_true", help="write torch's own trace too, for: dynamo-dap report --tlparse"
    )
    add_program(parser)
    return parser
