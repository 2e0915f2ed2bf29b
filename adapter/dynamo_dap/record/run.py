"""``dynamo-dap run``: runs a program without any stop, and records its compiles.

This process becomes the program: signals, exit status and terminal are the program's own.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

import msgspec

from dynamo_dap.protocol.contract import LAUNCH_VARIABLE, LaunchDescription
from dynamo_dap.record.folders import TRACE_SUFFIX, new_name, records_folder

_ENTRY = Path(__file__).resolve().parents[1] / "debuggee" / "bootstrap" / "entry.py"
TRACE_VARIABLE = "TORCH_TRACE"


def main(arguments: list[str]) -> int:
    """Run a program; does not return, but for wrong usage."""
    options = _parser().parse_args(arguments)
    program = [options.program] if options.program is not None else []
    if options.module is not None:
        description = LaunchDescription(module=options.module, args=[*program, *options.arguments])
    elif options.program is not None:
        description = LaunchDescription(program=options.program, args=options.arguments)
    else:
        _parser().error("give a program, or -m and a module")
    command, variables = launching(options.python, description)
    environment = {**os.environ, **variables}
    if options.trace:
        environment.setdefault(TRACE_VARIABLE, str(trace_folder(Path.cwd())))
    os.execve(options.python, command, environment)


def launching(python: str, description: LaunchDescription) -> tuple[list[str], dict[str, str]]:
    """Return the command that runs a program and takes its record, and the variables it needs."""
    return [python, str(_ENTRY)], {LAUNCH_VARIABLE: msgspec.json.encode(description).decode()}


def trace_folder(directory: Path) -> Path:
    """Return a new folder for torch's own trace of a program that is to run in ``directory``."""
    return records_folder(directory) / f"{new_name()}{TRACE_SUFFIX}"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="dynamo-dap run",
        description="Run a program and record what torch.compile does; look at it with: dynamo-dap report",
    )
    parser.add_argument(
        "--trace", action="store_true", help="write torch's own trace too, for: dynamo-dap report --tlparse"
    )
    parser.add_argument("--python", default=sys.executable, help="the interpreter; default: this one")
    parser.add_argument("-m", dest="module", help="run a module instead of a file")
    parser.add_argument("program", nargs="?", help="the Python file")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="the program's own arguments")
    return parser
