"""What a session learned about each compile: the data, its file, and its reports.

Stands on nothing but ``msgspec``: the debugged program writes records, the server and the command line read them. Never
imports torch.
"""
