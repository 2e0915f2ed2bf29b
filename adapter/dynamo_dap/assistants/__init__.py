"""``dynamo-dap mcp``: serves coding assistants over stdin and stdout, by the Model Context Protocol.

Each client has its own process, which uses the official SDK. It runs the other commands and the debugger as a user in a
terminal would, and limits their output. Never imports torch.
"""
