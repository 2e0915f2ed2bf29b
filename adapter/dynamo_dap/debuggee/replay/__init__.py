"""Cached calls shown again: isolation, saved traces, graph runs, real values."""
