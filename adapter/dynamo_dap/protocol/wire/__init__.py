"""Reads and writes DAP messages: framing, streams, and typed messages."""
