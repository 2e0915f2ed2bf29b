"""Shows the newest record of a workspace in the user's editor.

The editor starts it as a process (``dynamo-dap lsp``). It reads record files and the user's sources, and never imports
torch. One thread, pygls's event loop, runs everything in this package.
"""
