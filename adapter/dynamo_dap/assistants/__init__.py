"""``dynamo-dap mcp``: serves coding assistants over stdin and stdout, by the Model Context Protocol.

Each client has a process of its own, which uses the official SDK. It runs the other commands and the debugger as a
person in a terminal would, and bounds what they print. Never imports torch.
"""
