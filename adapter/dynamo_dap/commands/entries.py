"""``dynamo-dap entries``: runs a program, then prints torch's cache entries of each function.

Runs on the command's main thread.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

import msgspec

from dynamo_dap.protocol.requests.cache_entries import EntriesBody
from dynamo_dap.records.program import add_program, given_program, read_options, run_program

_NOTHING = "No function has cache entries.\n"


def main(arguments: list[str]) -> int:
    """Run a program and print the entries; return its exit status."""
    parser = _parser()
    options = read_options(parser, arguments)
    program = given_program(parser, options)
    with tempfile.TemporaryDirectory(prefix="dynamo-dap-") as folder:
        file = Path(folder) / "entries.json"
        description = msgspec.structs.replace(program, entries=str(file), function=options.function)
        status = run_program(options.python, description, prints_for_others=True)
        text = file.read_bytes() if file.exists() else None
    if text is None and status < 0:
        sys.stderr.write("dynamo-dap: the program died before its cache could be read\n")
        return 128 - status
    body = EntriesBody([], _NOTHING) if text is None else msgspec.json.decode(text, type=EntriesBody)
    sys.stdout.write(msgspec.json.encode(body.functions).decode() + "\n" if options.json else body.text)
    return status


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="dynamo-dap entries",
        description="Run a program, and print torch's cache entries for each function at its end: guards, generated "
        "code, graphs, resume functions, memory. The exit status is the program's.",
    )
    parser.add_argument("--function", metavar="NAME", help="only functions of this name: fn, Model.forward")
    parser.add_argument("--json", action="store_true", help="print JSON: one list of objects")
    add_program(parser)
    return parser
