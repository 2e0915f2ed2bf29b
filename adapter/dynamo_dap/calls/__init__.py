"""Handles saved calls of compiled functions: their folders, and the user's consent to run them. Imports no torch.

``debuggee.saved_calls`` writes such folders and replays the calls; ``terminal`` has the commands.
"""
