"""``dynamo-dap run``: runs a program without a stop, and records its compiles.

This process becomes the program, which keeps its terminal; with ``--cold --warm`` it runs the program twice instead.
"""

from __future__ import annotations

import argparse
import os
import shlex
import sys
from pathlib import Path
from typing import NoReturn

import msgspec

from dynamo_dap.protocol.requests.contract import LaunchDescription
from dynamo_dap.records.folders import TRACE_VARIABLE, trace_folder
from dynamo_dap.records.program import add_program, given_program, launching, read_options


def main(arguments: list[str]) -> int:
    """Run a program; does not return unless the program runs twice."""
    parser = _parser()
    options = read_options(parser, arguments)
    description = msgspec.structs.replace(given_program(parser, options), with_children=True)
    if options.cold or options.warm:
        if not (options.cold and options.warm):
            parser.error("give --cold and --warm together")
        return _run_twice(options.python, description, tries=options.tries)
    if options.tries:
        parser.error("--try needs --cold --warm")
    return _replace_process(options, description)


def _replace_process(options: argparse.Namespace, description: LaunchDescription) -> NoReturn:
    command, variables = launching(options.python, description)
    environment = {**os.environ, **variables}
    if options.trace:
        environment.setdefault(TRACE_VARIABLE, str(trace_folder(Path.cwd())))
    os.execve(options.python, command, environment)


def _run_twice(python: str, description: LaunchDescription, *, tries: bool) -> int:
    # Imported only now: an ordinary run does not need it.
    from dynamo_dap.commands.diff import report_caches
    from dynamo_dap.diff.sides import CannotCompare, RunCommand

    words = ["-m", description.module] if description.module is not None else [description.program or ""]
    side = shlex.join([*words, *description.args]), RunCommand(python, description)
    try:
        return report_caches(side, side, names=("the cold run", "the warm run"), tries=tries)
    except CannotCompare as problem:
        print(f"dynamo-dap: {problem}", file=sys.stderr)  # noqa: T201 - the user of a terminal reads it
        return 2


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="dynamo-dap run",
        description="Run a program and record what torch.compile does. To see the record: dynamo-dap report",
    )
    parser.add_argument(
        "--trace", action="store_true", help="write torch's own trace too, for: dynamo-dap report --tlparse"
    )
    parser.add_argument(
        "--cold",
        action="store_true",
        help="run with empty caches; with --warm, a second run uses the filled ones",
    )
    parser.add_argument("--warm", action="store_true", help="report what the second run compiles again, and why")
    parser.add_argument(
        "--try",
        dest="tries",
        action="store_true",
        help="with --cold --warm: run again with each setting of the cold run that differs, and with edits on copies; "
        "report whether the warm run then hits the cache",
    )
    add_program(parser)
    return parser
