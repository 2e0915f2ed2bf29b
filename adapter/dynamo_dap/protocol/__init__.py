"""Speaks the Debug Adapter Protocol on the wire.

It has the framing, typed messages, and a connection that pairs requests with responses. It never imports torch. The
server, the agent inside the debugged program, the terminal client and the tests all use this package, so there is one
codec and one set of message types.
"""
