"""The command ``dynamo-dap``, the same as ``python -m dynamo_dap``. Reads the arguments and starts what they ask for.

A subcommand is imported only when it is used: a server started by an IDE loads none of the terminal's modules.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from dynamo_dap import __version__
from dynamo_dap.protocol.contract import ACCESS_TOKEN_VARIABLE, LOG_VARIABLE

_SUBCOMMANDS = {
    "debug": "dynamo_dap.commands.debug",
    "connect": "dynamo_dap.terminal.connecting",
    "run": "dynamo_dap.records.run",
    "report": "dynamo_dap.records.report",
    "check": "dynamo_dap.commands.check",
    "compare": "dynamo_dap.commands.compare",
    "bisect": "dynamo_dap.commands.bisect",
    "minify": "dynamo_dap.commands.minify",
    "record-call": "dynamo_dap.commands.saved_calls:record_call",
    "replay": "dynamo_dap.commands.saved_calls:replay",
    "profile": "dynamo_dap.commands.profile",
    "entries": "dynamo_dap.commands.entries",
    "explore": "dynamo_dap.commands.explore",
    "fix": "dynamo_dap.commands.fix",
    "lsp": "dynamo_dap.language_server.server",
    "mcp": "dynamo_dap.commands.mcp",
    "schema": "dynamo_dap.assistants.schemas",
}
"""Subcommands and the modules whose ``main(arguments) -> int`` runs them, or another function after a colon."""

_DESCRIPTION = """\
A debugger for torch.compile. Without arguments it is a debug adapter for an IDE: it speaks the Debug Adapter Protocol
over stdin and stdout.
"""
_SUBCOMMAND_HELP = f"""\
subcommands:
  debug       debug a program in this terminal; see: dynamo-dap debug -h
  connect     run a program under the debugger that waits for it; see: dynamo-dap connect -h
  run         run a program without stops and record what torch.compile does; see: dynamo-dap run -h
  report      print what was recorded last in this directory; see: dynamo-dap report -h
  check       run a program and fail if it breaks or recompiles more than it may; see: dynamo-dap check -h
  compare     run a program and tell which lines differ when compiled; see: dynamo-dap compare -h
  bisect      run a program stage by stage and tell which is wrong; see: dynamo-dap bisect -h
  minify      make a program that fails when compiled small; see: dynamo-dap minify -h
  record-call save a call of a compiled function as a folder; see: dynamo-dap record-call -h
  replay      make a saved call again, in the debugger or alone; see: dynamo-dap replay -h
  profile     run a program and tell where compile time goes; see: dynamo-dap profile -h
  entries     run a program and print torch's cache for each function; see: dynamo-dap entries -h
  explore     show what becomes of each line: graphs, operations, kernels; see: dynamo-dap explore -h
  fix         try the known fixes for a line, on a copy; see: dynamo-dap fix -h
  lsp         a language server that shows the record in an editor; see: dynamo-dap lsp -h
  mcp         answer an assistant by the Model Context Protocol; see: dynamo-dap mcp -h
  schema      print the JSON Schema of what a command prints with --json; see: dynamo-dap schema -h

environment variables:
  {ACCESS_TOKEN_VARIABLE}   as --access-token
  {LOG_VARIABLE}            as --log
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return the exit status: 2 for wrong usage."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    if given and given[0] in _SUBCOMMANDS:
        module, _, name = _SUBCOMMANDS[given[0]].partition(":")
        return int(getattr(importlib.import_module(module), name or "main")(given[1:]))
    return _serve(_parser().parse_args(given))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="dynamo-dap",
        description=_DESCRIPTION,
        epilog=_SUBCOMMAND_HELP,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"dynamo-dap {__version__}")
    parser.add_argument("--listen", metavar="HOST:PORT", help="serve over TCP instead; port 0 is any free one")
    parser.add_argument(
        "--access-token",
        metavar="TOKEN",
        help='what TCP clients have to give as "accessToken" in launch or attach; a random one is printed without this',
    )
    parser.add_argument("--log", metavar="FILE", help="write a log, including every message, to FILE")
    return parser


def _serve(options: argparse.Namespace) -> int:
    from dynamo_dap.server import log

    path = options.log or os.environ.get(LOG_VARIABLE)
    try:
        log.set_up(Path(path) if path else None)
    except OSError as error:
        return _fail(f"cannot write the log {path}: {error.strerror or error}")
    if options.listen is not None:
        return _serve_tcp(options.listen, options.access_token or os.environ.get(ACCESS_TOKEN_VARIABLE) or None)
    if options.access_token is not None:
        return _fail("--access-token is for --listen; over stdin and stdout, whoever started the server is its user")

    from dynamo_dap.protocol.streams import take_standard_streams
    from dynamo_dap.server.transports import serve_pipes

    return serve_pipes(take_standard_streams())


def _serve_tcp(listen: str, access_token: str | None) -> int:
    from dynamo_dap.server.transports import Address, CannotListen, serve_tcp

    try:
        return serve_tcp(Address.parse(listen), access_token)
    except CannotListen as error:
        return _fail(str(error))


def _fail(text: str) -> int:
    print(f"dynamo-dap: {text}", file=sys.stderr)  # noqa: T201 - the user of a terminal reads it
    return 2
