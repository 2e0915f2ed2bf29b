"""Pauses Dynamo's symbolic interpreter and shows its state: compile-time mode.

All of it runs on the tracing thread, which holds Dynamo's compile lock; only ``update_hooks`` and ``close`` are called
by others.
"""
