"""Starts a program under the debugger: options, child process or terminal, handshake with the agent."""
