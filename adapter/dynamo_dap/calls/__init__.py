"""Saved calls of compiled functions: the folder that one is kept in, and who agreed to run it. Imports no torch.

``debuggee.recording`` writes such folders and makes the calls again; ``terminal`` has the commands.
"""
