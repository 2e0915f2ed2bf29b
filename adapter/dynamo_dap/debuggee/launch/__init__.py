"""Wires the rooms of the debuggee together: starts the agent, and runs the user's program under it."""
