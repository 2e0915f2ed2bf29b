"""Ordinary Python: debugpy, started in the debugged process, and what makes it and the agent one debugger.

Rooms below: the agent, values and torch_internals. It knows neither engine. Only the modules called ``pydevd_...``
touch names of debugpy that it does not document.
"""
