"""The stages of each compile as documents, from the user's line to its kernels: data, links, the command, the page.

Knows nothing of torch: ``debuggee.inductor.stages`` makes the documents. Used by the command ``dynamo-dap explore``
and by the agent; imports ``protocol`` and ``records`` only.
"""
