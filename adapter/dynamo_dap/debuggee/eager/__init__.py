"""Debugs ordinary Python: starts debugpy in the debugged process, and makes it and the agent one debugger.

Packages below: the agent, values and torch_api. It uses neither engine. Only the modules called ``pydevd_...`` touch
undocumented names of debugpy.
"""
