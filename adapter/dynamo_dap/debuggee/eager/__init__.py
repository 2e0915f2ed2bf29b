"""Debugs ordinary Python: starts debugpy in the debugged process, and coordinates it with the agent.

The package imports the agent, values, torch_api and triton, but no engine. Only modules whose names begin with
``pydevd_`` use undocumented names of debugpy.
"""
