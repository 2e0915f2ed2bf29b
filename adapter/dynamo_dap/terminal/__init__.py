"""Debugs in the terminal: a small client that speaks DAP to the server like any IDE.

``client`` is the protocol alone; tests also drive the server with it. The other modules are the user interface:
commands, source excerpts, variables as text. Never imports torch.
"""
