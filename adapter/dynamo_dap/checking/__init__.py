"""Whether a program still compiles as it should: ``dynamo-dap check``, pytest, and ``dynamo_dap.record()``.

What is found in a record is compared with limits, or with what was found before. Stands on ``records`` and never
imports torch; a program or test that wants to know its own compiles asks the debuggee's side to record.
"""
