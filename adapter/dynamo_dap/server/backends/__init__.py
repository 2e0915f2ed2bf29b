"""Sends each request to the agent or to debugpy, and merges their answers."""
