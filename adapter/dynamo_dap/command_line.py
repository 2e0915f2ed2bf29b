"""Runs the command ``dynamo-dap``, which is also ``python -m dynamo_dap``: a subcommand, or else the server."""

from __future__ import annotations

import argparse
import contextlib
import difflib
import io
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from dynamo_dap import __version__
from dynamo_dap.commands.failing import fail
from dynamo_dap.commands.registry import COMMANDS, help_text
from dynamo_dap.protocol.requests.contract import ACCESS_TOKEN_VARIABLE, LOG_VARIABLE
from dynamo_dap.protocol.texts import why_refused

_DESCRIPTION = """\
A debugger for torch.compile. Without arguments it is a debug adapter for an IDE: it speaks the Debug Adapter Protocol
over stdin and stdout.
"""
_VARIABLES_HELP = f"""\
environment variables:
  {ACCESS_TOKEN_VARIABLE}   as --access-token
  {LOG_VARIABLE}            as --log
"""


_CANNOT_WRITE = ("strict", "surrogateescape")
"""How streams handle errors that raise at a character that their encoding lacks; the second in the locale "C"."""
_NOT_READ = 141
"""Exit status that a shell reports for a process that SIGPIPE ended."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return the exit status: 2 for wrong usage."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and stream.errors in _CANNOT_WRITE:
            with contextlib.suppress(OSError):  # a stream whose file was replaced stays as it is
                stream.reconfigure(errors="replace")  # some terminals lack some characters
    try:
        if given and given[0] in COMMANDS:
            return COMMANDS[given[0]].load()(given[1:])
        if given and not given[0].startswith("-"):
            return fail(_no_such_command(given[0]))
        return _serve(_parser().parse_args(given))
    except BrokenPipeError:
        # The reader has gone, as in "dynamo-dap report | head". Python would report that again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _NOT_READ
    except OSError as error:
        return fail(why_refused(error))


def _no_such_command(word: str) -> str:
    """Return that ``word`` is not a command, and what to write instead."""
    from dynamo_dap.server.client.capabilities import FILTER_NAMES

    if word.endswith(".py"):
        return f"'{word}' is not a command; to debug it: dynamo-dap debug {word}"
    if word in FILTER_NAMES:
        return f"'{word}' is not a command; to stop a program there: dynamo-dap debug --catch {word} program.py"
    close = difflib.get_close_matches(word, COMMANDS, n=1)
    meant = f" Did you mean '{close[0]}'?" if close else ""
    return f"unknown command '{word}'.{meant} To list the commands: dynamo-dap --help"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="dynamo-dap",
        description=_DESCRIPTION,
        epilog=f"{help_text()}\n\n{_VARIABLES_HELP}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"dynamo-dap {__version__}")
    parser.add_argument("--listen", metavar="HOST:PORT", help="serve over TCP instead; port 0 is any free one")
    parser.add_argument(
        "--access-token",
        metavar="TOKEN",
        help='the "accessToken" that TCP clients must send in launch or attach; default: a random one, printed',
    )
    parser.add_argument(
        "--filters",
        metavar="NAMES",
        help="offer only these exception filters to the editor, separated by commas: graph-break,nan",
    )
    parser.add_argument("--log", metavar="FILE", help="write a log, including every message, to FILE")
    return parser


def _serve(options: argparse.Namespace) -> int:
    from dynamo_dap.server.client import log
    from dynamo_dap.server.client.capabilities import FILTER_NAMES

    filters = None if options.filters is None else frozenset(filter(None, options.filters.split(",")))
    if filters is not None and not filters <= FILTER_NAMES:
        unknown, known = sorted(filters - FILTER_NAMES), ", ".join(sorted(FILTER_NAMES))
        return fail(f"--filters: unknown filter {unknown[0]!r}; the filters are {known}")
    path = options.log or os.environ.get(LOG_VARIABLE)
    try:
        log.set_up(Path(path) if path else None)
    except OSError as error:
        return fail(f"cannot write the log {path}: {error.strerror or error}")
    if options.listen is not None:
        if filters is not None:
            return fail("--filters cannot be combined with --listen")
        return _serve_tcp(options.listen, options.access_token or os.environ.get(ACCESS_TOKEN_VARIABLE) or None)
    if options.access_token is not None:
        return fail("--access-token needs --listen: only the parent process reaches stdin and stdout")

    from dynamo_dap.protocol.wire.streams import take_standard_streams
    from dynamo_dap.server.sessions.transports import serve_pipes

    return serve_pipes(take_standard_streams(), filters)


def _serve_tcp(listen: str, access_token: str | None) -> int:
    from dynamo_dap.server.sessions.transports import Address, CannotListen, serve_tcp

    try:
        return serve_tcp(Address.parse(listen), access_token)
    except CannotListen as error:
        return fail(str(error))
