"""Explores compiles from the user's line to its kernels: the stages as documents, their links, files and views.

Knows nothing of torch: ``debuggee.inductor.stages`` makes the documents. The command ``dynamo-dap explore`` and the
agent use it; it imports only ``protocol`` and ``records``.
"""
