"""Parses, describes and starts the program of a subcommand that runs without a debugger.

Runs on the command's main thread.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys

import msgspec

from dynamo_dap.protocol.requests.contract import ENTRY, LAUNCH_VARIABLE, LaunchDescription
from dynamo_dap.protocol.user_files import why_not_a_program

UNCOMPILED = {"TORCHDYNAMO_DISABLE": "1"}
"""The environment variables that make a program run eagerly."""


def add_program(parser: argparse.ArgumentParser, what: str = "the Python file") -> None:
    """Add the last arguments of such a subcommand: the interpreter, the program or module, and its arguments."""
    parser.add_argument("--python", default=sys.executable, help="the interpreter; default: this one")
    parser.add_argument(
        "-m",
        dest="module",
        nargs=argparse.PARSER,
        metavar="MODULE",
        help="run a module instead of a file; the rest are its arguments, as with python -m",
    )
    # One argument for both: argparse drops the first -- of two, which may be the program's.
    given = parser.add_argument(
        "program", nargs=argparse.PARSER, metavar="program", help=f"{what}, and its own arguments"
    )
    given.required = False


def read_options(parser: argparse.ArgumentParser, arguments: list[str]) -> argparse.Namespace:
    """Parse the arguments of such a subcommand; an error ends the command with its usage."""
    options, rest = parser.parse_known_args(arguments)
    if rest == ["--"] and options.module is not None:  # the last argument: argparse has no value for it
        options.module.append("--")
    elif rest:
        parser.error(f"unrecognized arguments: {' '.join(rest)}")
    return options


def given_program(parser: argparse.ArgumentParser, options: argparse.Namespace) -> LaunchDescription:
    """Return the given program; if none is given, end the command with its usage."""
    given: list[str] = options.program or []
    if options.module is not None:
        # Users of earlier versions write -- before a module's arguments. The arguments of -m end there for argparse.
        dashes = ["--"] if given and _drops_dashes() else []
        words = [*options.module, *dashes, *given]
        return LaunchDescription(module=words[0], args=words[2:] if words[1:2] == ["--"] else words[1:])
    if given[:1] == ["--"]:
        given = given[1:]
    if not given:
        parser.error("give a program, or -m and a module")
    problem = why_not_a_program(given[0])
    if problem is not None:
        parser.error(f"cannot run {given[0]}: {problem}")
    return LaunchDescription(program=given[0], args=given[1:])


def _drops_dashes() -> bool:
    """Return whether this Python's argparse drops the -- before a program, as those from 3.14 on do."""
    parser = argparse.ArgumentParser()
    parser.add_argument("program", nargs=argparse.PARSER)
    return len(parser.parse_args(["--", "a"]).program) == 1


def launching(python: str, description: LaunchDescription) -> tuple[list[str], dict[str, str]]:
    """Return the command that runs a program as described, and its environment variables."""
    return [python, ENTRY], {LAUNCH_VARIABLE: msgspec.json.encode(description).decode()}


def run_silently(python: str, description: LaunchDescription, stdin: int) -> int:
    """Run a program without output, and return its exit status."""
    command, variables = launching(python, description)
    nothing = subprocess.DEVNULL
    environment = {**os.environ, **variables}
    return subprocess.run(command, env=environment, stdin=stdin, stdout=nothing, stderr=nothing, check=False).returncode


def run_program(
    python: str, description: LaunchDescription, *, prints_for_others: bool, stdin: int | None = None
) -> int:
    """Run a program in this terminal, and return its exit status.

    With ``prints_for_others`` another program reads this command's standard output, so the output of the user's
    program goes to standard error.
    """
    command, variables = launching(python, description)
    output = sys.stderr.fileno() if prints_for_others else None
    environment = {**os.environ, **variables}
    return subprocess.run(command, env=environment, stdin=stdin, stdout=output, check=False).returncode
