"""Reads a running trace: its frames, VariableTrackers, symbols and sizes; starts replays of a trace.

Runs on the tracing thread.
"""
