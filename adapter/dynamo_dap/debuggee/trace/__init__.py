"""Pauses Dynamo's symbolic interpreter and shows its state: compile-time mode.

Runs on the tracing thread, which holds Dynamo's compile lock, unless a module says otherwise. Methods called
``update_hooks`` and ``close`` run on any thread.
"""
