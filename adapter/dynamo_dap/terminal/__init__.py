"""Debugs in the terminal: a small client that speaks DAP to the server like any IDE.

``client`` and ``server_process`` are the protocol alone; tests also drive the server with them. The other modules are
the user interface: commands, source excerpts, variables as text. Never imports torch.
"""
