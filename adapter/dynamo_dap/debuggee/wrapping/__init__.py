"""Wraps functions of torch, debugpy and Python, and takes the wrappers off again."""
