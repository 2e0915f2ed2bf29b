"""Debugs ordinary Python: starts debugpy in the debugged process, and coordinates it with the agent.

The package uses the agent, values, torch_api and triton, but neither engine. Only the modules called ``pydevd_...`` use
undocumented names of debugpy.
"""
