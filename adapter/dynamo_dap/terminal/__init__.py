"""A debugger in the terminal: a small client that speaks DAP to the server like any other IDE.

``client`` and ``server_process`` know the protocol and nothing of presentation; the tests drive the server with them,
too. The other modules are what a person sees: commands, source excerpts, variables as text. Never imports torch.
"""
