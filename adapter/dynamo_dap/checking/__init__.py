"""Checks whether a program still compiles as it should: ``dynamo-dap check``, pytest, ``dynamo_dap.record()``.

It compares the findings in records with limits, or with earlier findings. Never imports torch: ``debuggee`` records the
compiles of a program or test.
"""
