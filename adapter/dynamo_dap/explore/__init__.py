"""Explores compiles from the user's line to its kernels: stages as documents, links, the command, the page.

Knows nothing of torch: ``debuggee.inductor.stages`` makes the documents. Used by the command ``dynamo-dap explore`` and
by the agent; imports only ``protocol`` and ``records``.
"""
