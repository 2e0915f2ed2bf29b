"""Records what Dynamo does with each function, as data of ``dynamo_dap.records``."""
