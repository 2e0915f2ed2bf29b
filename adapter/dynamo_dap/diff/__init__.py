"""``dynamo-dap diff``: compares what two runs compiled, and finds where they first differ.

May import ``protocol``, ``records``, ``calls`` and ``trace_logs``. Never imports torch, and executes
nothing that a record names.
"""
