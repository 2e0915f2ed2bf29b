"""Watches compiles: their start and end, phases and times, graph breaks, errors, and the backend they call.

The hooks run on the thread that compiles.
"""
