"""A debugger in the terminal: a small client that speaks DAP to the server like any other IDE.

``client`` and ``server_process`` are the protocol alone; the tests drive the server with them, too. The other modules
are the user interface: commands, source excerpts, variables as text. Never imports torch.
"""
