"""Replays cached calls: saved traces, graph runs, real values."""
