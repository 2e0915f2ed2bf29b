"""Forms the boundary to torch: private names, hooks, and typed readers of torch's objects.

Each name is declared in a ``Feature`` and probed once, after torch was imported; a missing name turns that feature off,
with a message. Nothing here imports torch before the user's program does: functions look modules up in ``sys.modules``,
or are only called from inside a trace.
"""
