"""Starts the agent with all features, and runs the user's program under it."""
