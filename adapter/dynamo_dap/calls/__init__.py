"""Handles saved calls of compiled functions: their folders, and the user's consent to run them. Imports no torch.

``debuggee.recording`` writes such folders and replays the calls; ``terminal`` has the commands.
"""
