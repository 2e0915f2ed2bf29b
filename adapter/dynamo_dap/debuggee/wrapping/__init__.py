"""Wraps functions of torch, debugpy and Python, and removes the wrappers again."""
