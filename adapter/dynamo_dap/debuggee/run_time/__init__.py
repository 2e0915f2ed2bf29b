"""Run-time mode: stepping code that Dynamo generated, with the value stack of CPython.

``engine`` is what the agent knows. Below it: the code objects met so far and what is known of each (``generated``), the
two ways to get events from the interpreter (``trace_events`` up to Python 3.11, ``monitoring_events`` since 3.12), the
rules of stepping, and what a stopped frame shows.
"""
