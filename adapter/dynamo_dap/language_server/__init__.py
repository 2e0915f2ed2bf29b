"""The language server: shows the newest record of a workspace in the user's editor.

A process of its own, started by the editor (``dynamo-dap lsp``). It reads record files and the user's sources, and
never imports torch. One thread, pygls's event loop, runs everything in this package.
"""
