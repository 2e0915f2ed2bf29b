"""``dynamo-dap connect``: runs a program under the debugger that the environment names, on this machine or another one.

For the ranks of a job: their launcher (``torchrun``, ``srun``) starts this command instead. This process becomes the
program; without the variable, or where it leads to no debugger, the program runs as without this command.
"""

from __future__ import annotations

import argparse
import os
import sys

import msgspec

from dynamo_dap.protocol.contract import CONNECT_VARIABLE
from dynamo_dap.records.program import add_program, given_program, launching, read_options


def main(arguments: list[str]) -> int:
    """Run a program; does not return, but for wrong usage."""
    parser = argparse.ArgumentParser(
        prog="dynamo-dap connect",
        description=f"Run a program under the debugger that {CONNECT_VARIABLE} names: an attach configuration with "
        '"listen" waits there, and says in its console what to export.',
    )
    add_program(parser)
    options = read_options(parser, arguments)
    description = msgspec.structs.replace(given_program(parser, options), connects=True)
    command, variables = launching(options.python, description)
    # A launcher has its processes write at once.
    unbuffered = ["-u"] if getattr(sys.stdout, "write_through", False) else []
    os.execve(options.python, [command[0], *unbuffered, *command[1:]], {**os.environ, **variables})
