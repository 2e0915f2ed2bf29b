"""Pauses Dynamo's symbolic interpreter and shows its state: compile-time mode.

Runs on the tracing thread, which holds Dynamo's compile lock, unless a module says otherwise. Other threads call
``update_hooks`` and ``close``.
"""
