"""Steps code that Dynamo generated, with CPython's value stack: run-time mode.

The agent uses ``engine``. Below it: the known code objects with their facts (``known_code``), the two ways to get
events from the interpreter (``trace_events`` up to Python 3.11, ``monitoring_events`` since 3.12), the rules of
stepping, and the scopes of a stopped frame.
"""
