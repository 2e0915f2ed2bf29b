"""Importing this package registers every handler. One module per family of requests; plain functions on the loop."""

from dynamo_dap.server.handlers import breakpoints, cancelling, ending, initializing, restarting, starting, threads

__all__ = ["breakpoints", "cancelling", "ending", "initializing", "restarting", "starting", "threads"]
