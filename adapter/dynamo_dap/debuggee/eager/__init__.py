"""Ordinary Python: starts debugpy in the debugged process, and makes it and the agent work as one debugger.

Packages below: the agent, values and torch_api. It uses neither engine. Only the modules called ``pydevd_...`` touch
names of debugpy that it does not document.
"""
