"""Starts the agent in a program: at launch, at attach, and in child processes."""
