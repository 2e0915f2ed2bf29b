"""Follows the child processes and ranks that a program starts."""
