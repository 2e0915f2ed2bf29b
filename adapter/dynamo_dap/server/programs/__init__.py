"""Follows one debugged program from its start to its end, with its child processes and ranks."""
