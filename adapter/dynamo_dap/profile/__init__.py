"""Profiles compile time: the data, files for other tools, and the command ``dynamo-dap profile``.

May import ``protocol`` and ``records``. The debugged program makes the profile, in ``debuggee.recording.profiler``.
"""
