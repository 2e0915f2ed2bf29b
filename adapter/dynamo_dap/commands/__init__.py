"""The commands of ``dynamo-dap``, one module each."""
