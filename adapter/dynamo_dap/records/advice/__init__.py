"""Gives advice on a record: what to change, and what it costs to leave it."""
