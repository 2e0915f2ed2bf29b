"""``dynamo-dap mcp``: reads the command line, then serves an assistant.

Runs on the main thread of the server's own process.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import sys
from pathlib import Path


def main(arguments: list[str]) -> int:
    """Serve one client over stdin and stdout; return the exit status."""
    parser = argparse.ArgumentParser(
        prog="dynamo-dap mcp",
        description="Serve a coding assistant by the Model Context Protocol over stdin and stdout. The assistant can "
        "ask why a function breaks or recompiles, which line is wrong, and which kernels compute a line. It can also "
        "use the debugger. The server runs only programs below the client's roots; without roots, below --folder.",
    )
    parser.add_argument("--python", default=sys.executable, help="the interpreter of the programs; default: this one")
    parser.add_argument("--folder", default=".", help="the root for clients without roots; default: this one")
    options = parser.parse_args(arguments)
    if importlib.util.find_spec("mcp") is None or importlib.util.find_spec("mcp.server.mcpserver") is None:
        sys.stderr.write("dynamo-dap: the MCP SDK is missing or too old; run: pip install 'dynamo-dap[mcp]'\n")
        return 1
    from dynamo_dap.assistants.server import serve

    serve(options.python, Path(os.path.realpath(options.folder)))
    return 0
