"""Fixes for the findings of a record: edits, and trials of the program with them. Never imports torch."""
