"""Records of a program's compiles: the data, its file, and its reports.

Needs only ``msgspec``: the debugged program writes records, the server and the command line read them. Never imports
torch.
"""
