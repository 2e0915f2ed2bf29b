"""``dynamo-dap lsp``: starts the language server, which an editor ends. Runs on the command's main thread."""

from __future__ import annotations

import argparse
import gc

from dynamo_dap.language_server.server import make_server


def main(arguments: list[str]) -> int:
    """Serve until the editor ends it; return the exit status."""
    parser = argparse.ArgumentParser(
        prog="dynamo-dap lsp",
        description="Start a language server that shows what torch.compile did: graph breaks, recompiles, shapes. "
        "It speaks the Language Server Protocol over stdin and stdout, and watches the newest record of the workspace.",
    )
    # Some clients always pass this option.
    parser.add_argument("--stdio", action="store_true", help="accepted for compatibility; stdio is the only transport")
    parser.parse_args(arguments)
    server = make_server()
    # Imported modules stay forever: collecting garbage among them would only delay a hover.
    gc.freeze()
    try:
        server.start_io()
    finally:
        server.close()
    return 0
