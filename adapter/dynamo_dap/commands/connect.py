"""``dynamo-dap connect``: runs a program under the debugger that an environment variable names, on any machine.

A job's launcher (``torchrun``, ``srun``) starts this command for each rank instead of the program. This process becomes
the program. Without the variable, or if no debugger answers, the program runs normally.
"""

from __future__ import annotations

import argparse
import os
import sys

import msgspec

from dynamo_dap.protocol.requests.contract import CONNECT_VARIABLE
from dynamo_dap.records.program import add_program, given_program, launching, read_options


def main(arguments: list[str]) -> int:
    """Replace this process by the program; never returns."""
    parser = argparse.ArgumentParser(
        prog="dynamo-dap connect",
        description=f"Run a program under the debugger that {CONNECT_VARIABLE} names. An attach configuration with "
        '"listen" waits there; its console shows the value to export.',
    )
    add_program(parser)
    options = read_options(parser, arguments)
    description = msgspec.structs.replace(given_program(parser, options), connects=True)
    command, variables = launching(options.python, description)
    # A launcher may have started this process unbuffered (-u): start the program the same way.
    unbuffered = ["-u"] if getattr(sys.stdout, "write_through", False) else []
    os.execve(options.python, [command[0], *unbuffered, *command[1:]], {**os.environ, **variables})
