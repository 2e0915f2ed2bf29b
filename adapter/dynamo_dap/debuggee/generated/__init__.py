"""Run-time mode: stepping code that Dynamo generated, with the value stack of CPython.

The agent uses ``engine``. Below it: the code objects seen so far, with the facts of each (``generated``), the two ways
to get events from the interpreter (``trace_events`` up to Python 3.11, ``monitoring_events`` since 3.12), the rules of
stepping, and what a stopped frame shows.
"""
