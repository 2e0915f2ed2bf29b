"""The only place that touches torch's private names.

Each name is declared in a ``Feature`` and probed once, when torch is there; a missing one turns off that feature with a
message that says so. Nothing here imports torch before the user's program has: functions look modules up in
``sys.modules``, or are only called from inside a trace.
"""
