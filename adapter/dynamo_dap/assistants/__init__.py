"""``dynamo-dap mcp``: what an assistant asks, by the Model Context Protocol over stdin and stdout.

A process of its own, one for each client, on the official SDK. It runs the other commands and the debugger as a person
in a terminal would, and bounds what they print. Never imports torch.
"""
