"""Checks whether a program still compiles as it should: ``dynamo-dap check``, pytest, ``dynamo_dap.record()``.

Findings of a record are compared with limits, or with earlier findings. Uses ``records`` and never imports torch; a
program or test that needs its own compiles asks the debuggee's side to record.
"""
